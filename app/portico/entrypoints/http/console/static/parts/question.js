// @ts-check
/** One open suspension, with what settles it: Approve and Deny, an answer, or one of three outcomes. */
import { html, useEffect, useState } from "../vendor/preact.js";
import { post } from "./api.js";
import { Approval, Deny } from "./approval.js";
import { Alert, Area, Check, failureText, parsed } from "./fields.js";
import { SUSPENSIONS } from "./fold.js";
import { Text } from "./frame.js";
import { foreign, missing, useMe } from "./person.js";
import { link } from "./route.js";
import { age, asText, contentText, fullTime, visible } from "./text.js";
import { Button } from "./ui.js";

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
      setError(failureText(failure));
    }
    setBusy(false);
  };
  const answers = JSON.stringify(suspension.approvals?.given ?? null);
  useEffect(() => setDone(""), [answers]);
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
        now=${now}
      />
      <${Alert} text=${error} />
      <p class="outcome" role="status">
        ${done || (expired ? "It has expired." : !open ? "It was settled." : "")}
      </p>
    </article>
  `;
}

/**
 * A person denies here. Once the credential is set, the call goes on by itself.
 * @param {any} props
 */
function Authorization({ suspension, send, off, needs, other }) {
  const [reason, setReason] = useState("");
  const { credential, description } = suspension.value ?? {};
  return html`
      <p>
        The call needs the credential <code>${visible(credential)}</code>. It goes on as soon as its
        owner has set it: <code>portico credentials set ${visible(credential)}</code>
      </p>
      ${description && html`<${Text} class="muted" text=${description} />`}
      <div class="actions">
        <${Deny}
          send=${send}
          off=${off || Boolean(other)}
          needs=${needs}
          reason=${reason}
          set=${setReason}
          because=${other || undefined}
        />
      </div>
  `;
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
  const payload = asJson ? parsed(text || "null", undefined) : text;
  const wrong = payload === undefined ? "This is no JSON" : "";
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
        <${Area}
          label=${client ? "Its result" : "Your answer"}
          value=${text}
          set=${setText}
          disabled=${off || Boolean(needs || other)}
          placeholder=${asJson ? '{"by": "ada"}' : ""}
        />
        ${client && html`<${Check} label="as an error" checked=${failed} set=${setFailed} />`}
        <${Check} label="as JSON" checked=${asJson} set=${setJson} />
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
        <${Area} label="Its result" value=${result} set=${setResult} disabled=${off} />
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
