// @ts-check
/** API keys of the tenant: list, create, revoke. */
import { html, useState } from "../vendor/preact.js";
import { json, post } from "../parts/api.js";
import { useMe } from "../parts/person.js";
import { number, visible } from "../parts/text.js";
import {
  Age,
  Button,
  Code,
  Dialog,
  Empty,
  Heading,
  Loaded,
  useLoaded,
  useNow,
} from "../parts/ui.js";

const FORM = {
  user: "",
  permissions: "",
  requests: "",
  tokens: "",
  cost: "",
  concurrency: "",
  expires_days: "90",
};

export default function Keys() {
  const person = useMe();
  const now = useNow(30000);
  const found = useLoaded(() => json("keys"), []);
  const [creates, setCreates] = useState(false);
  const [revokes, setRevokes] = useState("");
  const [made, setMade] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const revoke = () =>
    json(`keys/${encodeURIComponent(revokes)}`, { method: "DELETE" }).then(
      () => {
        setRevokes("");
        found.again();
      },
      (failure) => setError(failure.message),
    );
  const needs = person && !person.can?.manage_keys ? "can_manage_keys" : undefined;
  if (needs || found.error?.status === 403) {
    return html`
      <div class="page">
        <header class="top">
          <${Heading}>Keys<//>
        </header>
        <${Empty} title="Keys are not yours to manage">
          ${person?.auth === "none"
            ? "The service runs without authentication, so there are no keys."
            : "It needs can_manage_keys."}
        <//>
      </div>
    `;
  }
  return html`
    <div class="page">
      <header class="top">
        <${Heading}>Keys<//>
        <span class="grow"></span>
        <${Button} kind="primary" icon="keys" onClick=${() => setCreates(true)}>
          New key
        <//>
      </header>
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
            <table class="list">
              <thead>
                <tr>
                  <th>Key</th>
                  <th>User</th>
                  <th>Permissions</th>
                  <th>Limits</th>
                  <th>Made</th>
                  <th>Used</th>
                  <th>Expires</th>
                  <th></th>
                </tr>
              </thead>
              <tbody>
                ${all.data.map((/** @type {any} */ key) => html`
                  <tr key=${key.public_id}>
                    <td>
                      <code>${key.public_id}</code>
                    </td>
                    <td data-name="User">${visible(key.user)}</td>
                    <td data-name="Permissions">${visible(key.permissions.join(", "))}</td>
                    <td data-name="Limits">
                      ${Object.entries(key.limits ?? {})
                        .filter(([, value]) => value !== null)
                        .map(([name, value]) => `${name} ${number(Number(value))}`)
                        .join(", ") || "none"}
                    </td>
                    <td data-name="Made">
                      <${Age} time=${key.created_at} now=${now} />
                    </td>
                    <td data-name="Used">
                      ${key.last_used_at ? html`<${Age} time=${key.last_used_at} now=${now} />` : "never"}
                    </td>
                    <td data-name="Expires">
                      ${key.expires_at ? html`<${Age} time=${key.expires_at} now=${now} />` : "never"}
                    </td>
                    <td>
                      ${key.revoked_at ? html`
                        <span class="muted">revoked</span>
                      ` : html`
                        <${Button}
                          kind="quiet danger"
                          aria-label=${`Revoke ${key.public_id}`}
                          onClick=${() => setRevokes(key.public_id)}>
                          Revoke
                        <//>
                      `}
                    </td>
                  </tr>
                `)}
              </tbody>
            </table>
          `
        }
      <//>
      ${revokes && html`
        <${Dialog} title=${`Revoke ${revokes}?`} close=${() => setRevokes("")}>
          <p>Requests with it are refused from then on.</p>
          ${error && html`
            <p class="bad" role="alert">
              ${visible(error)}
            </p>
          `}
          <div class="actions">
            <${Button} kind="danger" onClick=${revoke}>
              Revoke
            <//>
            <${Button} kind="quiet" onClick=${() => setRevokes("")}>
              Keep it
            <//>
          </div>
        <//>
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
    </div>
  `;
}

/** @param {any} props */
function Create({ close, done, user }) {
  const [form, setForm] = useState({ ...FORM, user });
  const [error, setError] = useState("");
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) =>
    setForm({ ...form, [name]: event.target.value });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const numbers = Object.fromEntries(
      ["requests", "tokens", "cost", "concurrency", "expires_days"]
        .filter((name) => /** @type {any} */ (form)[name].trim())
        .map((name) => [name, Number(/** @type {any} */ (form)[name])]),
    );
    const permissions = form.permissions.split(/[\s,]+/).filter(Boolean);
    post("keys", {
      user: form.user.trim(),
      ...(permissions.length ? { permissions } : {}),
      ...numbers,
    }).then(done, (failure) => setError(failure.message));
  };
  const field = (/** @type {string} */ name, /** @type {string} */ title) => html`
    <label>
      ${title}
      <input value=${/** @type {any} */ (form)[name]} onInput=${set(name)} inputmode="decimal" />
    </label>
  `;
  return html`
    <${Dialog} title="New key" close=${close}>
      <form class="form" onSubmit=${submit}>
        <label>
          User
          <input value=${form.user} onInput=${set("user")} required maxlength="256" />
        </label>
        <label>
          Permissions
          <input
            value=${form.permissions}
            onInput=${set("permissions")}
            placeholder="the default, as far as you have them"
          />
        </label>
        <div class="pairs">
          ${field("requests", "Requests a minute")}
          ${field("tokens", "Tokens a minute")}
          ${field("cost", "Cost a day")}
          ${field("concurrency", "At the same time")}
          ${field("expires_days", "Expires in days")}
        </div>
        ${error && html`
          <p class="bad" role="alert">
            ${visible(error)}
          </p>
        `}
        <button class="button primary" type="submit">
          Make the key
        </button>
      </form>
    <//>
  `;
}
