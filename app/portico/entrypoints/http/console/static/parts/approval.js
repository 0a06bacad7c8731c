// @ts-check
/** The approval of a call: its arguments, who has approved it, other arguments, a grant, and the denial. */
import { html, useEffect, useState } from "../vendor/preact.js";
import { json } from "./api.js";
import { jsonDifference } from "./difference.js";
import { Area, Check, Choice, parsed } from "./fields.js";
import { useRows } from "./frame.js";
import { useMe } from "./person.js";
import { age, asText, visible } from "./text.js";
import { Button } from "./ui.js";

/** @type {Record<string, string>} */
const BECAUSE = {
  rule: "A rule of the policy asks for it.",
  repeated: "This call was made before, and may not be safe to repeat.",
  untrusted_text: "The conversation holds text that is not trusted.",
  tool: "The tool is declared so.",
};
/** Longer arguments are folded, and an approval waits until they were seen. */
const LONG = 600;
/** @type {Record<string, number>} */
const LENGTHS = { "10 minutes": 600, "1 hour": 3600, "24 hours": 86400 };
/** @type {Record<string, string>} */
const SCOPES = { "in this execution": "execution", "in this session": "session" };

/** @param {any} props */
export function Approval({ suspension, send, off, needs, wide, now }) {
  const person = useMe();
  const { arguments: asked = {}, tool } = suspension.value ?? {};
  const approvals = suspension.approvals ?? null;
  const given = approvals?.arguments ?? asked;
  const [seen, setSeen] = useState(/** @type {Set<string>} */ (new Set()));
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [reason, setReason] = useState("");
  const [grant, setGrant] = useState({ scope: "", length: "1 hour", same: false });
  const previous = usePrevious(suspension, wide);
  const safety = useTool(tool ?? suspension.tool_id);
  const edited = text === null ? given : parsed(text, null);
  const wrong = !edited || typeof edited !== "object" || Array.isArray(edited);
  const names = Object.keys(given);
  const folded =
    text === null && names.some((name) => asText(given[name]).length > LONG && !seen.has(name));
  const mine =
    approvals?.given.some((/** @type {any} */ each) => each.user === person?.user) &&
    (wrong || jsonDifference(given, edited).length === 0);
  const before = approvals?.arguments ? asked : previous?.arguments;
  const comment = reason.trim() ? { reason: reason.trim() } : {};
  const approve = () => {
    const changed = jsonDifference(asked, edited).length > 0;
    send(
      {
        decision: "approve",
        ...comment,
        ...(changed ? { arguments: edited } : {}),
        ...(grant.scope ? { grant: terms(grant) } : {}),
      },
      approvals ? "Your approval is given." : "Approved.",
    );
  };
  const why = folded
    ? "Show all arguments first"
    : wrong
      ? "Arguments are a JSON object"
      : mine
        ? "You have approved it; another user must, too"
        : "It is settled";
  return html`
      <${Arguments}
        given=${given}
        before=${before}
        title=${approvals?.arguments ? "As asked" : "Call before"}
        seen=${seen}
        see=${(/** @type {string} */ name) => setSeen(new Set([...seen, name]))}
      />
      <p class="muted small">
        ${BECAUSE[suspension.asked_because] ?? ""}${" "}
        ${safety
          ? `Effects: ${safety.side_effects}${safety.at_most_once ? ", at most once" : ""}.`
          : ""}
        ${suspension.on_expiry === "deny" ? " Without an answer it is denied." : ""}
      </p>
      ${approvals && html`<${Given} approvals=${approvals} now=${now} />`}
      <details>
        <summary>Change arguments, or approve later calls, too</summary>
        <div class="form">
          <${Area}
            label="Arguments"
            value=${text ?? asText(given)}
            set=${setText}
            disabled=${off || Boolean(needs)}
            spellcheck=${false}
          />
          ${wrong && html`<p class="bad small">Arguments are a JSON object.</p>`}
          ${!approvals && html`
            <div class="pairs">
              <${Choice}
                label="Later calls"
                value=${grant.scope}
                none="wait for a person again"
                options=${Object.keys(SCOPES).slice(0, suspension.session_id ? 2 : 1)}
                set=${(/** @type {string} */ scope) => setGrant({ ...grant, scope })}
              />
              <${Choice}
                label="For"
                value=${grant.length}
                options=${Object.keys(LENGTHS)}
                disabled=${!grant.scope}
                set=${(/** @type {string} */ length) => setGrant({ ...grant, length })}
              />
            </div>
            <${Check}
              label="with the same arguments only"
              checked=${grant.same}
              disabled=${!grant.scope}
              set=${(/** @type {boolean} */ same) => setGrant({ ...grant, same })}
            />
          `}
        </div>
      </details>
      <div class="actions">
        <${Button}
          kind="primary"
          icon="check"
          data-hotkey="a"
          hotkey="A"
          needs=${needs}
          off=${off || folded || wrong || mine}
          reason=${why}
          onClick=${approve}>
          Approve
        <//>
        <${Deny} send=${send} off=${off} needs=${needs} reason=${reason} set=${setReason} />
      </div>
  `;
}

/** @param {{scope: string, length: string, same: boolean}} grant */
const terms = ({ scope, length, same }) => ({
  for: SCOPES[scope],
  seconds: LENGTHS[length],
  match: same ? "arguments" : "tool",
});

/** Arguments as a table, beside others with what changed marked. @param {any} props */
function Arguments({ given, before, title, seen, see }) {
  const names = Object.keys({ ...given, ...(before ?? {}) });
  const changed = new Set(
    before ? jsonDifference(before, given).map((each) => each.path.split(/[.[]/)[0]) : [],
  );
  if (!names.length) return html`<p class="muted">It has no arguments.</p>`;
  return html`
    <table class="arguments">
      <caption class="hidden">Arguments</caption>
      ${before && html`
        <thead>
          <tr>
            <th>Argument</th>
            <th>Now</th>
            <th>${title}</th>
          </tr>
        </thead>
      `}
      <tbody>
        ${names.map((name) => {
          const text = asText(given[name] ?? "—");
          const hides = text.length > LONG && !seen.has(name);
          return html`
            <tr key=${name} class=${changed.has(name) ? "changed" : ""}>
              <th scope="row">${visible(name)}</th>
              <td>
                <div class="text mono" data-text>
                  ${visible(hides ? text.slice(0, LONG) : text)}
                  ${hides && html`
                      …${" "}
                      <button class="link" onClick=${() => see(name)}>
                        Show all of ${visible(name)}
                      </button>
                  `}
                </div>
              </td>
              ${before && html`
                <td>
                  <div class="text mono muted" data-text>
                    ${visible(asText(before[name] ?? "—"))}
                  </div>
                </td>
              `}
            </tr>
          `;
        })}
      </tbody>
    </table>
  `;
}

/** Who has approved a call that several users must approve. @param {any} props */
const Given = ({ approvals, now }) => html`
    <p class="small">
      ${approvals.given.length} of ${approvals.needed} approvals
      ${approvals.arguments ? ", with changed arguments" : ""}
    </p>
    <ul class="plain">
      ${approvals.given.map((/** @type {any} */ each) => html`
        <li key=${each.user}>
          <b>${visible(each.user)}</b>, ${age(each.at, now)}
          ${each.reason ? `: ${visible(each.reason)}` : ""}
        </li>
      `)}
    </ul>
`;

/** Deny, with a reason. @param {any} props */
export const Deny = ({ send, off, needs, reason, set, because = "It is settled" }) => html`
    <${Button}
      icon="close"
      data-hotkey="d"
      hotkey="D"
      needs=${needs}
      off=${off}
      reason=${because}
      onClick=${() =>
        send({ decision: "deny", ...(reason.trim() ? { reason: reason.trim() } : {}) }, "Denied.")
      }>
      Deny
    <//>
    <label class="reason">
      <span class="hidden">Reason</span>
      <input
        value=${reason}
        disabled=${off || Boolean(needs)}
        maxlength="4096"
        placeholder="Reason, for the model"
        onInput=${(/** @type {any} */ event) => set(event.target.value)}
      />
    </label>
`;

/** Return the facts of a tool, undefined before they are known. @param {string} name */
export const useTool = (name) => useRows("tools").find((each) => each.name === name);

/**
 * Return the previous call of the same tool in the execution, where the caller may read it.
 * @param {any} suspension
 * @param {boolean} wanted
 */
function usePrevious(suspension, wanted) {
  const [call, setCall] = useState(/** @type {any} */ (null));
  useEffect(() => {
    if (!wanted) return;
    json(`executions/${encodeURIComponent(suspension.request_id)}`).then(
      (view) => {
        const calls = (view.response?.tool_calls_made ?? []).filter(
          (/** @type {any} */ each) =>
            each.name === suspension.value?.tool &&
            each.id !== suspension.tool_call_id &&
            each.status === "done",
        );
        setCall(calls.at(-1) ?? null);
      },
      () => {},
    );
  }, [suspension.request_id, suspension.suspension_id]);
  return call;
}
