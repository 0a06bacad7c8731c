// @ts-check
/** API keys of the tenant: list, create, revoke. */
import { html, useState } from "../vendor/preact.js";
import { json, post } from "../parts/api.js";
import { Dialog } from "../parts/dialog.js";
import { Alert, Line } from "../parts/fields.js";
import { Confirm, Frame, List } from "../parts/frame.js";
import { useMe } from "../parts/person.js";
import { number, visible } from "../parts/text.js";
import { Age, Button, Code, Empty, Loaded, useLoaded, useNow } from "../parts/ui.js";

/** @type {[string, string][]} */
const FIGURES = [
  ["requests", "Requests a minute"],
  ["tokens", "Tokens a minute"],
  ["cost", "Cost a day"],
  ["concurrency", "At the same time"],
  ["expires_days", "Expires in days"],
];

export default function Keys() {
  const person = useMe();
  const now = useNow(30000);
  const found = useLoaded(() => json("keys"), []);
  const [creates, setCreates] = useState(false);
  const [revokes, setRevokes] = useState("");
  const [made, setMade] = useState(/** @type {any} */ (null));
  if ((person && !person.can?.manage_keys) || found.error?.status === 403)
    return html`
      <${Frame} title="Keys">
        <${Empty} title="Keys are not yours to manage">
          ${person?.auth === "none"
            ? "The service runs without authentication, so there are no keys."
            : "It needs can_manage_keys."}
        <//>
      <//>
    `;
  const age = (/** @type {any} */ time) =>
    time ? html`<${Age} time=${time} now=${now} />` : "never";
  const create = html`
    <${Button} kind="primary" icon="keys" onClick=${() => setCreates(true)}>
      New key
    <//>
  `;
  return html`
    <${Frame} title="Keys" actions=${create}>
      ${made && html`
        <section class="card" role="status">
          <h2>
            The key ${made.public_id} of ${visible(made.user)}
          </h2>
          <p>It is shown once. Copy it now.</p>
          <${Code} label="New key" text=${made.secret} />
        </section>
      `}
      <${Loaded} of=${found}>
        ${(/** @type {any} */ all) =>
          all.data.length === 0 ? html`
            <${Empty} title="There are no keys" />
          ` : html`
            <${List}
              rows=${all.data}
              id=${(/** @type {any} */ key) => key.public_id}
              columns=${[
                ["Key", (/** @type {any} */ key) => html`<code>${key.public_id}</code>`],
                ["User", (/** @type {any} */ key) => visible(key.user)],
                ["Permissions", (/** @type {any} */ key) => visible(key.permissions.join(", "))],
                ["Limits", limits],
                ["Made", (/** @type {any} */ key) => age(key.created_at)],
                ["Used", (/** @type {any} */ key) => age(key.last_used_at)],
                ["Expires", (/** @type {any} */ key) => age(key.expires_at)],
                [
                  html`<span class="hidden">Revoke</span>`,
                  (/** @type {any} */ key) =>
                    key.revoked_at ? html`
                      <span class="muted">revoked</span>
                    ` : html`
                      <${Button}
                        kind="quiet danger"
                        aria-label=${`Revoke ${key.public_id}`}
                        onClick=${() => setRevokes(key.public_id)}>
                        Revoke
                      <//>
                    `,
                ],
              ]}
            />
          `
        }
      <//>
      ${revokes && html`
        <${Confirm}
          title=${`Revoke ${revokes}?`}
          text="Requests with it are refused from then on."
          act="Revoke"
          run=${async () => {
            await json(`keys/${encodeURIComponent(revokes)}`, { method: "DELETE" });
            setRevokes("");
            found.again();
          }}
          close=${() => setRevokes("")}
        />
      `}
      ${creates && html`
        <${Create}
          close=${() => setCreates(false)}
          done=${(/** @type {any} */ key) => {
            setMade(key);
            setCreates(false);
            found.again();
          }}
          user=${person?.user ?? ""}
        />
      `}
    <//>
  `;
}

/** @param {any} key */
const limits = (key) =>
  Object.entries(key.limits ?? {})
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name} ${number(Number(value))}`)
    .join(", ") || "none";

/** @param {any} props */
function Create({ close, done, user }) {
  const [form, setForm] = useState(
    /** @type {Record<string, string>} */ ({ user, permissions: "", expires_days: "90" }),
  );
  const [error, setError] = useState("");
  const field = (/** @type {[string, string]} */ [name, label], rest = {}) => html`
    <${Line}
      key=${name}
      label=${label}
      value=${form[name] ?? ""}
      set=${(/** @type {string} */ value) => setForm({ ...form, [name]: value })}
      ...${rest}
    />
  `;
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const given = FIGURES.filter(([name]) => form[name]?.trim());
    const permissions = form.permissions.split(/[\s,]+/).filter(Boolean);
    post("keys", {
      user: form.user.trim(),
      ...(permissions.length ? { permissions } : {}),
      ...Object.fromEntries(given.map(([name]) => [name, Number(form[name])])),
    }).then(done, (failure) => setError(failure.message));
  };
  return html`
    <${Dialog} title="New key" close=${close}>
      <form class="form" onSubmit=${submit}>
        ${field(["user", "User"], { required: true, maxlength: 256 })}
        ${field(["permissions", "Permissions"], { placeholder: "the default, as far as you have them" })}
        <div class="pairs">
          ${FIGURES.map((each) => field(each, { inputmode: "decimal" }))}
        </div>
        <${Alert} text=${error} />
        <button class="button primary" type="submit">
          Make the key
        </button>
      </form>
    <//>
  `;
}
