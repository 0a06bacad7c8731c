// @ts-check
/** One open suspension, with what settles it: Approve and Deny, an answer, or one of three outcomes. */
import { html, useEffect, useState } from "../vendor/preact.js";
import { json, once, post } from "./api.js";
import { jsonDifference } from "./difference.js";
import { SUSPENSIONS } from "./fold.js";
import { foreign, missing, useMe } from "./person.js";
import { link } from "./route.js";
import { age, asText, contentText, fullTime, visible } from "./text.js";
import { Button, Text } from "./ui.js";

/** @type {Record<string, string>} */
const BECAUSE = {
  rule: "A rule of the policy asks for it.",
  repeated: "This call was made before, and may not be safe to repeat.",
  untrusted_text: "The conversation holds text that is not trusted.",
  tool: "The tool is declared so.",
};
/** Longer arguments are folded, and an approval waits until they were seen. */
const LONG = 600;

/** @param {{suspension: any, open: boolean, now: number, inside?: boolean, row?: any}} props */
export function Question({ suspension, open, now, inside = false, row = null }) {
  const person = useMe();
  const [busy, setBusy] = useState(false);
  const [done, setDone] = useState("");
  const [error, setError] = useState("");
  const { kind, request_id, tool_id, suspension_id } = suspension;
  const send = async (/** @type {any} */ payload, /** @type {string} */ text) => {
    setBusy(true);
    setError("");
    try {
      await post(
        `executions/${encodeURIComponent(request_id)}/resume`,
        { tool_id, suspension_id, payload },
        { headers: { Prefer: "respond-async" } },
      );
      setDone(text);
    } catch (failure) {
      setError(
        /** @type {any} */ (failure).code
          ? `${/** @type {any} */ (failure).code}: ${/** @type {any} */ (failure).message}`
          : /** @type {any} */ (failure).message,
      );
    }
    setBusy(false);
  };
  const expired = Date.parse(suspension.expires_at) < now;
  const others = foreign(person, suspension);
  const decides = kind === "approval" || kind === "unknown_outcome";
  const needs = missing(person, decides ? "approve" : "send_messages");
  const off = busy || !open || expired || Boolean(done);
  const Ask = KINDS[kind] ?? Answer;
  return html`
    <article
      class=${`question${inside ? "" : " card"}`}
      data-suspension-id=${suspension_id}
      data-request-id=${request_id}>
      ${!inside && html`
        <header>
          <h2>
            ${SUSPENSIONS[kind] ?? kind} ·${" "}
            ${visible((decides && suspension.value?.tool) || tool_id)}
          </h2>
          <p class="muted small">
            <a href=${link(["executions", request_id])}>${visible(row?.title || request_id)}</a>
            ${suspension.agent ? ` · agent ${visible(suspension.agent)}` : ""}
            ${suspension.step_name ? ` · step ${visible(suspension.step_name)}` : ""} ·${" "}
            ${visible(suspension.user ?? "")}
            ${suspension.asked_at ? html`
                ${" "}
                · <time title=${fullTime(suspension.asked_at)}>${age(suspension.asked_at, now)}</time>
            ` : ""}${" "}
            · expires${" "}
            <time title=${fullTime(suspension.expires_at)}>${age(suspension.expires_at, now)}</time>
          </p>
        </header>
      `}
      <${Ask}
        suspension=${suspension}
        send=${send}
        off=${off}
        needs=${needs}
        other=${others}
        wide=${!inside}
      />
      ${error && html`
        <p class="bad" role="alert">
          ${visible(error)}
        </p>
      `}
      <p class="outcome" role="status">
        ${done || (expired ? "It has expired." : !open ? "It was settled." : "")}
      </p>
    </article>
  `;
}

/** @param {any} props */
function Approval({ suspension, send, off, needs, wide }) {
  const { arguments: given = {}, tool } = suspension.value ?? {};
  const [seen, setSeen] = useState(/** @type {Set<string>} */ (new Set()));
  const [safety, setSafety] = useState(/** @type {any} */ (null));
  const previous = usePrevious(suspension, wide);
  useEffect(
    () =>
      void once("tools").then(
        (all) =>
          setSafety(
            all.data.find((/** @type {any} */ each) => each.name === (tool ?? suspension.tool_id)),
          ),
        () => {},
      ),
    [tool],
  );
  const names = Object.keys(given);
  const long = names.filter((name) => asText(given[name]).length > LONG);
  const folded = long.some((name) => !seen.has(name));
  const changed = new Set(
    previous
      ? jsonDifference(previous.arguments, given).map((each) => each.path.split(/[.[]/)[0])
      : [],
  );
  return html`
      <table class="arguments">
        <caption class="hidden">Arguments</caption>
        ${previous && html`
          <thead>
            <tr>
              <th>Argument</th>
              <th>Now</th>
              <th>Call before</th>
            </tr>
          </thead>
        `}
        <tbody>
          ${names.map((name) => {
            const text = asText(given[name]);
            const hides = text.length > LONG && !seen.has(name);
            return html`
              <tr key=${name} class=${changed.has(name) ? "changed" : ""}>
                <th scope="row">${visible(name)}</th>
                <td>
                  <div class="text mono" data-text>
                    ${visible(hides ? text.slice(0, LONG) : text)}
                    ${hides && html`
                        …${" "}
                        <button class="link" onClick=${() => setSeen(new Set([...seen, name]))}>
                          Show all of ${visible(name)}
                        </button>
                    `}
                  </div>
                </td>
                ${previous && html`
                  <td>
                    <div class="text mono muted" data-text>
                      ${visible(asText(previous.arguments[name] ?? "—"))}
                    </div>
                  </td>
                `}
              </tr>
            `;
          })}
        </tbody>
      </table>
      ${names.length === 0 && html`<p class="muted">It has no arguments.</p>`}
      <p class="muted small">
        ${BECAUSE[suspension.asked_because] ?? ""}${" "}
        ${safety
          ? `Effects: ${safety.side_effects}${safety.at_most_once ? ", at most once" : ""}.`
          : ""}
      </p>
      <div class="actions">
        <${Button}
          kind="primary"
          icon="check"
          data-hotkey="a"
          hotkey="A"
          needs=${needs}
          off=${off || folded}
          reason=${folded ? "Show all arguments first" : "It is settled"}
          onClick=${() => send({ decision: "approve" }, "Approved.")}>
          Approve
        <//>
        <${Deny} send=${send} off=${off} needs=${needs} />
      </div>
  `;
}

/** @param {any} props */
function Deny({ send, off, needs, reason: because = "It is settled" }) {
  const [reason, setReason] = useState("");
  return html`
      <${Button}
        icon="close"
        data-hotkey="d"
        hotkey="D"
        needs=${needs}
        off=${off}
        reason=${because}
        onClick=${() =>
          send(
            { decision: "deny", ...(reason.trim() ? { reason: reason.trim() } : {}) },
            "Denied.",
          )
        }>
        Deny
      <//>
      <label class="reason">
        <span class="hidden">Reason</span>
        <input
          value=${reason}
          disabled=${off || Boolean(needs)}
          maxlength="2000"
          placeholder="Reason, for the model"
          onInput=${(/** @type {any} */ event) => setReason(event.target.value)}
        />
      </label>
  `;
}

/**
 * A person denies here. Once the credential is set, the call goes on by itself.
 * @param {any} props
 */
function Authorization({ suspension, send, off, needs, other }) {
  const { credential, description } = suspension.value ?? {};
  return html`
      <p>
        The call needs the credential <code>${visible(credential)}</code>. It goes on as soon as its
        owner has set it: <code>portico credentials set ${visible(credential)}</code>
      </p>
      ${description && html`<${Text} class="muted" text=${description} />`}
      <div class="actions">
        <${Deny} send=${send} off=${off || Boolean(other)} needs=${needs} reason=${other || undefined} />
      </div>
  `;
}

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

/** @param {any} props */
function Answer({ suspension, send, off, needs, other }) {
  const [text, setText] = useState("");
  const [failed, setFailed] = useState(false);
  const [asJson, setJson] = useState(suspension.kind === "flow");
  const { value } = suspension;
  const client = suspension.kind === "client_tool";
  const question = client
    ? "The client that sent the request runs this call. Its result can be given here instead."
    : contentText(value?.question ?? value);
  const rest = client
    ? value
    : value && typeof value === "object" && value.question
      ? Object.fromEntries(Object.entries(value).filter(([name]) => name !== "question"))
      : null;
  let payload = /** @type {any} */ (text);
  let wrong = "";
  if (asJson) {
    try {
      payload = JSON.parse(text || "null");
    } catch (error) {
      wrong = "This is no JSON";
    }
  }
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (wrong || !text.trim()) return;
    if (client) send({ result: payload, is_error: failed }, "It goes on with that result.");
    else send(payload, "Answered.");
  };
  return html`
      <${Text} text=${question} />
      ${rest && Object.keys(rest).length > 0 && html`<${Text} class="mono muted" text=${asText(rest)} />`}
      <form class="form" onSubmit=${submit}>
        <label>
          ${client ? "Its result" : "Your answer"}
          <textarea
            value=${text}
            disabled=${off || Boolean(needs || other)}
            onInput=${(/** @type {any} */ event) => setText(event.target.value)}
            placeholder=${asJson ? '{"by": "ada"}' : ""}></textarea>
        </label>
        ${client && html`
          <label class="check">
            <input
              type="checkbox"
              checked=${failed}
              onChange=${(/** @type {any} */ event) => setFailed(event.target.checked)}
            />
            as an error
          </label>
        `}
        <label class="check">
          <input
            type="checkbox"
            checked=${asJson}
            onChange=${(/** @type {any} */ event) => setJson(event.target.checked)}
          />
          as JSON
        </label>
        <div class="actions">
          <${Button}
            type="submit"
            kind="primary"
            needs=${needs}
            off=${off || !text.trim() || Boolean(wrong || other)}
            reason=${other || wrong || (off ? "It is settled" : "Write an answer")}>
            Answer
          <//>
          ${wrong && text && html`<span class="bad small">${wrong}</span>`}
        </div>
      </form>
  `;
}

/** @param {any} props */
function Outcome({ suspension, send, off, needs }) {
  const [result, setResult] = useState("");
  return html`
      <p>The service stopped while this call ran. It is not known whether it happened.</p>
      <${Text} class="mono" text=${asText(suspension.value)} />
      <div class="form">
        <label>
          Its result
          <textarea
            value=${result}
            disabled=${off}
            onInput=${(/** @type {any} */ event) => setResult(event.target.value)}></textarea>
        </label>
      </div>
      <div class="actions">
        <${Button}
          needs=${needs}
          off=${off}
          onClick=${() => send({ decision: "happened", result }, "It goes on with that result.")}>
          It happened
        <//>
        <${Button} needs=${needs} off=${off} onClick=${() => send({ decision: "run" }, "It runs again.")}>
          Run it
        <//>
        <${Button}
          kind="danger"
          needs=${needs}
          off=${off}
          onClick=${() => send({ decision: "give_up" }, "Given up.")}>
          Give up
        <//>
      </div>
  `;
}

/** @type {Record<string, any>} */
const KINDS = { approval: Approval, authorization: Authorization, unknown_outcome: Outcome };
