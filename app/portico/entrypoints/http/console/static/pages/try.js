// @ts-check
/** Try: a request as a form and as JSON, its quote, its run, and the same as curl, Python and TypeScript. */
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { frames, post, send } from "../parts/api.js";
import { Area, Check, parsed } from "../parts/fields.js";
import { newFold, push } from "../parts/fold.js";
import { ErrorCode, Frame, Text } from "../parts/frame.js";
import { missing, useMe } from "../parts/person.js";
import { link } from "../parts/route.js";
import { Form, requestOf, START } from "../parts/request_form.js";
import { curlSnippet, pythonSnippet, typescriptSnippet } from "../parts/snippets.js";
import { quoteText, remember } from "../parts/started.js";
import { asText, money, number, span, visible } from "../parts/text.js";
import { Button, Code, Figure, State } from "../parts/ui.js";

const PAUSE = 500;

/** What was written stays while the tab is open, and nowhere else. */
let kept = { form: START, json: "", own: false };

export default function Try() {
  const person = useMe();
  const [form, setForm] = useState(kept.form);
  const [text, setText] = useState(kept.json);
  const [own, setOwn] = useState(kept.own);
  const [quote, setQuote] = useState(/** @type {any} */ (null));
  const [refusal, setRefusal] = useState(/** @type {any} */ (null));
  const [run, setRun] = useState(/** @type {any} */ (null));
  const controller = useRef(/** @type {AbortController | null} */ (null));
  kept = { form, json: text, own };
  useEffect(() => () => controller.current?.abort(), []);
  const body = useMemo(() => (own ? parsed(text, null) : requestOf(form)), [form, text, own]);
  const key = JSON.stringify(body);
  useEffect(() => {
    setQuote(null);
    setRefusal(null);
    if (!body) return undefined;
    const timer = setTimeout(() => post("quote", body).then(setQuote, setRefusal), PAUSE);
    return () => clearTimeout(timer);
  }, [key]);
  const start = async () => {
    controller.current?.abort();
    controller.current = new AbortController();
    const fold = newFold(body.mode ?? "chat");
    const show = (/** @type {any} */ more) =>
      setRun({
        fold,
        id: fold.events[0]?.request_id ?? more.id,
        version: fold.events.length + Math.random(),
        ...more,
      });
    show({ busy: true });
    try {
      const response = await send("execute", {
        method: "POST",
        body,
        signal: controller.current.signal,
        headers: { Accept: form.stream ? "text/event-stream" : "application/json" },
      });
      const id = response.headers.get("x-request-id") ?? "";
      remember(id, quote);
      if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
        const answer = await response.json();
        fold.response = answer;
        show({ busy: false, id: answer.request_id });
        return;
      }
      for await (const batch of frames(response)) {
        for (const { data } of batch) push(fold, JSON.parse(data));
        show({ busy: !fold.ended && fold.state !== "SUSPENDED", id });
      }
      show({ busy: false, id });
    } catch (error) {
      if (!controller.current.signal.aborted) show({ busy: false, error });
    }
  };
  const needs = missing(person, "send_messages");
  const actions = html`
      <span class="muted small" role="status">
        ${quote ? quoteText(quote, money) : ""}
      </span>
      <${Button}
        kind="primary"
        icon="try"
        needs=${needs}
        off=${!body || run?.busy}
        reason=${body ? "It runs" : "This is no JSON"}
        onClick=${start}>
        Run
      <//>
  `;
  return html`
    <${Frame} title="Try" actions=${actions}>
      <div class="try">
        <section class="card">
          <div class="tabs" role="group" aria-label="Write the request as">
            <span class="segmented">
              <button aria-pressed=${!own} onClick=${() => setOwn(false)}>
                Form
              </button>
              <button
                aria-pressed=${own}
                onClick=${() => {
                  if (!own) setText(JSON.stringify(requestOf(form), null, 2));
                  setOwn(true);
                }}>
                JSON
              </button>
            </span>
          </div>
          ${own ? html`
              <${Area}
                label="Request as JSON"
                class="tall"
                spellcheck=${false}
                value=${text}
                set=${setText}
              />
              ${!body && html`<p class="bad">This is no JSON.</p>`}
          ` : html`
            <${Form} form=${form} set=${setForm} />
          `}
          ${refusal && html`
            <div class="bad" role="status">
              <p>
                ${refusal.code && html`<${ErrorCode} code=${refusal.code} />`}${" "}
                ${visible(refusal.message)}
              </p>
              ${refusal.details?.fields && html`
                <ul class="plain">
                  ${Object.entries(refusal.details.fields).map(([name, each]) => html`
                    <li key=${name}>
                      <code>${visible(name)}</code> ${visible(asText(each))}
                    </li>
                  `)}
                </ul>
              `}
            </div>
          `}
          ${quote && html`
            <div class="figures">
              <${Figure} value=${number(quote.inferences)} name="inferences at most" />
              <${Figure} value=${number(quote.tool_calls)} name="calls at most" />
              <${Figure} value=${number(quote.tokens)} name="tokens at most" />
              ${quote.cost && html`<${Figure} value=${money(quote.cost)} name="at most" />`}
            </div>
          `}
        </section>
        <div>
          ${run && html`<${Result} run=${run} />`}
          <${Snippets}
            body=${body ?? {}}
            auth=${(person?.auth ?? "none") !== "none"}
            stream=${form.stream}
            setStream=${(/** @type {boolean} */ stream) => setForm({ ...form, stream })}
          />
        </div>
      </div>
    <//>
  `;
}

/** @param {any} props */
function Result({ run }) {
  const { fold, id, busy, error } = run;
  const live = [...fold.texts.values()].at(-1);
  const response = fold.response;
  const state = response?.state ?? fold.state;
  if (error)
    return html`
      <section class="card" role="alert">
        <h2>Refused</h2>
        <p class="bad">
          ${error.code && html`<${ErrorCode} code=${error.code} />`}${" "}
          ${visible(error.message)}
        </p>
      </section>
    `;
  return html`
    <section class="card" aria-live="polite" aria-busy=${busy}>
      <h2>
        <${State} state=${state} />${" "}
        ${id && html`
          <a href=${link(["executions", id])}>
            <code>${id}</code>
          </a>
        `}
      </h2>
      ${response?.error ? html`
        <p class="bad">
          <${ErrorCode} code=${response.error.code} /> ${visible(response.error.message)}
        </p>
      ` : response?.structured_output !== null && response?.structured_output !== undefined ? html`
        <${Text} class="mono" text=${asText(response.structured_output)} />
      ` : html`
        <${Text} text=${response?.content ?? live?.text ?? ""} />
      `}
      ${fold.state === "SUSPENDED" && !response?.content && html`
        <p class="warn">
          It waits for a person: <a href=${link(["executions", id])}>open it</a>.
        </p>
      `}
      ${response?.token_usage && html`
        <p class="muted small">
          ${number(response.token_usage.total_tokens)} tokens
          ${response.cost ? `, ${money(response.cost)}` : ""}
          ${fold.start ? `, ${span(fold.latest - fold.start)}` : ""}
        </p>
      `}
    </section>
  `;
}

/** @type {[string, (call: import("../parts/snippets.js").Call) => string][]} */
const LANGUAGES = [
  ["curl", curlSnippet],
  ["Python", pythonSnippet],
  ["TypeScript", typescriptSnippet],
];

/** @param {any} props */
function Snippets({ body, auth, stream, setStream }) {
  const [language, setLanguage] = useState("curl");
  const base = location.href.split("#")[0].replace(/\/console\/.*$/, "");
  const [, write] = LANGUAGES.find(([name]) => name === language) ?? LANGUAGES[0];
  return html`
    <section class="card">
      <div class="tabs">
        <span class="segmented" role="group" aria-label="Language">
          ${LANGUAGES.map(([name]) => html`
            <button key=${name} aria-pressed=${name === language} onClick=${() => setLanguage(name)}>
              ${name}
            </button>
          `)}
        </span>
      </div>
      <${Code} label=${`The request in ${language}`} text=${write({ base, body, auth, stream })} />
      <${Check} label="as a stream of events" checked=${stream} set=${setStream} />
    </section>
  `;
}
