// @ts-check
/** Try: a request as a form and as JSON, its quote, its run, and the same as curl, Python and TypeScript. */
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { frames, once, post, send } from "../parts/api.js";
import { newFold, push } from "../parts/fold.js";
import { missing, useMe } from "../parts/person.js";
import { link } from "../parts/route.js";
import { curlSnippet, pythonSnippet, typescriptSnippet } from "../parts/snippets.js";
import { quoteText, remember } from "../parts/started.js";
import { asText, money, number, span, visible } from "../parts/text.js";
import { Button, Code, ErrorCode, Figure, Heading, State, Text } from "../parts/ui.js";

const PAUSE = 500;
const MODES = ["chat", "structured", "plan", "redundant", "flow"];
const SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}';
const START = { mode: "chat", agent: "", model: "", system: "", message: "Roll two dice", tools: null, schema: "", flow: "", input: "{}", session: "", n: "3", passes: "", tokens: "", cost: "", stream: true };

/** @param {string} text @param {unknown} otherwise */
function parsed(text, otherwise) {
  try {
    return JSON.parse(text);
  } catch {
    return otherwise;
  }
}

/** Return the request that the form says. @param {any} form @returns {Record<string, any>} */
function requestOf(form) {
  const schema = parsed(form.schema, null);
  const limits = { ...(Number(form.tokens) ? { tokens: Number(form.tokens) } : {}), ...(Number(form.cost) ? { cost: Number(form.cost) } : {}) };
  const messages = [...(form.system.trim() ? [{ role: "system", content: form.system }] : []), { role: "user", content: form.message }];
  return {
    ...(form.mode !== "chat" && !form.agent ? { mode: form.mode } : {}),
    ...(form.agent ? { agent: form.agent } : {}), ...(form.model ? { model: form.model } : {}), ...(form.session.trim() ? { session_id: form.session.trim() } : {}),
    ...(form.mode === "flow" && !form.agent ? { flow: { name: form.flow, input: parsed(form.input, {}) } } : { messages }),
    ...(form.tools !== null ? { tools: form.tools } : {}),
    ...(schema ? { output: { schema } } : form.mode === "structured" && !form.agent ? { output: { schema: JSON.parse(SCHEMA) } } : {}),
    ...(form.mode === "redundant" && !form.agent ? { redundancy: { n: Number(form.n) || 3 } } : {}),
    ...(form.mode === "plan" && Number(form.passes) ? { plan: { passes: Number(form.passes) } } : {}),
    ...(Object.keys(limits).length ? { limits } : {}),
  };
}

/** What was written stays while the tab is open, and nowhere else. */
let kept = { form: START, json: "", own: false };

export default function Try() {
  const person = useMe();
  const [form, setForm] = useState(kept.form);
  const [text, setText] = useState(kept.json);
  const [own, setOwn] = useState(kept.own);
  const [lists, setLists] = useState(/** @type {Record<string, any[]>} */ ({}));
  const [quote, setQuote] = useState(/** @type {any} */ (null));
  const [refusal, setRefusal] = useState(/** @type {any} */ (null));
  const [run, setRun] = useState(/** @type {any} */ (null));
  const controller = useRef(/** @type {AbortController | null} */ (null));
  kept = { form, json: text, own };
  useEffect(() => {
    for (const name of ["agents", "engines", "tools", "flows"]) once(name).then((all) => setLists((old) => ({ ...old, [name]: all.data })), () => {});
    return () => controller.current?.abort();
  }, []);
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
    const show = (/** @type {any} */ more) => setRun({ fold, id: fold.events[0]?.request_id ?? more.id, version: fold.events.length + Math.random(), ...more });
    show({ busy: true });
    try {
      const response = await send("execute", { method: "POST", body, signal: controller.current.signal, headers: { Accept: form.stream ? "text/event-stream" : "application/json" } });
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
  return html`<div class="page"><header class="top"><${Heading}>Try<//><span class="grow"></span><span class="muted small" role="status">${quote ? quoteText(quote, money) : ""}</span>
      <${Button} kind="primary" icon="try" needs=${needs} off=${!body || run?.busy} reason=${body ? "It runs" : "This is no JSON"} onClick=${start}>Run<//></header>
    <div class="try"><section class="card"><div class="tabs" role="group" aria-label="Write the request as"><span class="segmented"><button aria-pressed=${!own} onClick=${() => setOwn(false)}>Form</button><button aria-pressed=${own} onClick=${() => { if (!own) setText(JSON.stringify(requestOf(form), null, 2)); setOwn(true); }}>JSON</button></span></div>
        ${own ? html`<label>Request as JSON<textarea class="tall" spellcheck=${false} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea></label>${!body && html`<p class="bad">This is no JSON.</p>`}` : html`<${Form} form=${form} set=${setForm} lists=${lists} />`}
        ${refusal && html`<div class="bad" role="status"><p>${refusal.code && html`<${ErrorCode} code=${refusal.code} /> `}${visible(refusal.message)}</p>${refusal.details?.fields && html`<ul class="plain">${Object.entries(refusal.details.fields).map(([name, each]) => html`<li key=${name}><code>${visible(name)}</code> ${visible(asText(each))}</li>`)}</ul>`}</div>`}
        ${quote && html`<div class="figures"><${Figure} value=${number(quote.inferences)} name="inferences at most" /><${Figure} value=${number(quote.tool_calls)} name="calls at most" /><${Figure} value=${number(quote.tokens)} name="tokens at most" />${quote.cost && html`<${Figure} value=${money(quote.cost)} name="at most" />`}</div>`}
      </section><div>${run && html`<${Result} run=${run} />`}<${Snippets} body=${body ?? {}} auth=${(person?.auth ?? "none") !== "none"} stream=${form.stream} setStream=${(/** @type {boolean} */ stream) => setForm({ ...form, stream })} /></div></div></div>`;
}

/** @param {any} props */
function Form({ form, set, lists }) {
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => set({ ...form, [name]: event.target.value });
  const choose = (/** @type {string} */ name, /** @type {string} */ title, /** @type {string[]} */ options, none = "") => html`<label>${title}<select value=${form[name]} onChange=${change(name)}>${none && html`<option value="">${none}</option>`}${options.map((each) => html`<option key=${each} value=${each}>${visible(each)}</option>`)}</select></label>`;
  const names = (/** @type {string} */ name) => (lists[name] ?? []).map((/** @type {any} */ each) => each.name);
  const models = [...new Set((lists.engines ?? []).flatMap((/** @type {any} */ each) => [...each.routes, each.name]))];
  const mode = form.agent ? "" : form.mode;
  return html`<div class="form"><div class="pairs">${choose("mode", "Mode", MODES)}${choose("agent", "Agent", names("agents"), "none")}</div>
    ${mode === "flow" ? html`${choose("flow", "Flow", names("flows"), "choose")}<label>Input as JSON<textarea value=${form.input} onInput=${change("input")}></textarea></label>`
      : html`<label>Message<textarea value=${form.message} onInput=${change("message")}></textarea></label>`}
    <div class="pairs">${choose("model", "Model", models, "the default")}<label>Session<input value=${form.session} maxlength="128" onInput=${change("session")} placeholder="none" /></label></div>
    ${mode === "structured" && html`<label>Output schema<textarea value=${form.schema} placeholder=${SCHEMA} onInput=${change("schema")}></textarea></label>`}
    ${mode === "redundant" && html`<label>Replicas<input inputmode="numeric" value=${form.n} onInput=${change("n")} /></label>`}${mode === "plan" && html`<label>Passes<input inputmode="numeric" value=${form.passes} placeholder="1" onInput=${change("passes")} /></label>`}
    <details><summary>System message, tools, limits</summary><div class="form"><label>System message<textarea value=${form.system} onInput=${change("system")}></textarea></label>
      <fieldset><legend>Tools</legend><label class="check"><input type="checkbox" checked=${form.tools !== null} onChange=${(/** @type {any} */ event) => set({ ...form, tools: event.target.checked ? [] : null })} />Choose them</label>
        ${form.tools !== null && html`<div class="options">${names("tools").map((/** @type {string} */ name) => html`<label key=${name} class="check"><input type="checkbox" checked=${form.tools.includes(name)} onChange=${(/** @type {any} */ event) => set({ ...form, tools: event.target.checked ? [...form.tools, name] : form.tools.filter((/** @type {string} */ each) => each !== name) })} />${visible(name)}</label>`)}</div>`}</fieldset>
      <div class="pairs"><label>Limit of tokens<input inputmode="numeric" value=${form.tokens} onInput=${change("tokens")} /></label><label>Limit of cost<input inputmode="decimal" value=${form.cost} onInput=${change("cost")} /></label></div></div></details></div>`;
}

/** @param {any} props */
function Result({ run }) {
  const { fold, id, busy, error } = run;
  const live = [...fold.texts.values()].at(-1);
  const response = fold.response;
  const state = response?.state ?? fold.state;
  if (error) return html`<section class="card" role="alert"><h2>Refused</h2><p class="bad">${error.code && html`<${ErrorCode} code=${error.code} /> `}${visible(error.message)}</p></section>`;
  return html`<section class="card" aria-live="polite" aria-busy=${busy}><h2><${State} state=${state} /> ${id && html`<a href=${link(["executions", id])}><code>${id}</code></a>`}</h2>
    ${response?.error ? html`<p class="bad"><${ErrorCode} code=${response.error.code} /> ${visible(response.error.message)}</p>` : response?.structured_output !== null && response?.structured_output !== undefined ? html`<${Text} class="mono" text=${asText(response.structured_output)} />` : html`<${Text} text=${response?.content ?? live?.text ?? ""} />`}
    ${fold.state === "SUSPENDED" && !response?.content && html`<p class="warn">It waits for a person: <a href=${link(["executions", id])}>open it</a>.</p>`}
    ${response?.token_usage && html`<p class="muted small">${number(response.token_usage.total_tokens)} tokens${response.cost ? `, ${money(response.cost)}` : ""}${fold.start ? `, ${span(fold.latest - fold.start)}` : ""}</p>`}</section>`;
}

/** @type {[string, (call: import("../parts/snippets.js").Call) => string][]} */
const LANGUAGES = [["curl", curlSnippet], ["Python", pythonSnippet], ["TypeScript", typescriptSnippet]];

/** @param {any} props */
function Snippets({ body, auth, stream, setStream }) {
  const [language, setLanguage] = useState("curl");
  const base = location.href.split("#")[0].replace(/\/console\/.*$/, "");
  const [, write] = LANGUAGES.find(([name]) => name === language) ?? LANGUAGES[0];
  return html`<section class="card"><div class="tabs"><span class="segmented" role="group" aria-label="Language">${LANGUAGES.map(([name]) => html`<button key=${name} aria-pressed=${name === language} onClick=${() => setLanguage(name)}>${name}</button>`)}</span></div>
    <${Code} label=${`The request in ${language}`} text=${write({ base, body, auth, stream })} /><label class="check"><input type="checkbox" checked=${stream} onChange=${(/** @type {any} */ event) => setStream(event.target.checked)} />as a stream of events</label></section>`;
}
