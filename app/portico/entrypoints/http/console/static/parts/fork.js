// @ts-check
/** Fork: run on from a step with changes, after a quote, and compare with the original. */
import { html, useEffect, useState } from "../vendor/preact.js";
import { json, post } from "./api.js";
import { Alert, Area, Check, Choice, Line, Names } from "./fields.js";
import { useModels, useRows } from "./frame.js";
import { foreign, useMe } from "./person.js";
import { go, link } from "./route.js";
import { quoteText, remember } from "./started.js";
import { asText, money, visible } from "./text.js";
import { Button } from "./ui.js";

const PAUSE = 500;
const MOST_EDITS = 16;

/** @param {{view: any, from: number | "end", steps: any[], ended: boolean, state: string}} props */
export function Fork({ view, from, steps, ended, state }) {
  const person = useMe();
  const models = useModels();
  const tools = useRows("tools").map((each) => each.name);
  const [results, setResults] = useState(/** @type {any[]} */ ([]));
  const [given, setGiven] = useState(
    /** @type {any} */ ({ model: "", message: "", tools: null, temperature: "", edits: {} }),
  );
  const [quote, setQuote] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const path = `executions/${encodeURIComponent(view.request_id)}`;
  const other = foreign(person, view);
  const flow = view.mode === "flow";
  const possible =
    from === "end"
      ? ended && !flow
      : (ended || state === "SUSPENDED") && from <= view.fork_points;

  const wanted = typeof from === "number" && !flow ? lastAttempts(steps, from - 1).join() : "";
  useEffect(() => {
    setResults([]);
    if (!possible || !wanted) return;
    Promise.all(
      wanted
        .split(",")
        .map(async (key) => (await json(`${path}/steps?key=${encodeURIComponent(key)}`)).data[0]),
    ).then(
      (all) => setResults(all.filter((step) => resultOf(step) !== null)),
      () => {},
    );
  }, [possible, wanted]);
  const wanting = from === "end" && !given.message.trim() ? "Write a message first" : "";
  const body = forkBody(given, from, results);
  const text = JSON.stringify(body);
  useEffect(() => {
    setQuote(null);
    setError("");
    if (!possible || other || wanting) return undefined;
    const timer = setTimeout(
      () => post(`${path}/fork/quote`, body).then(setQuote, ({ message }) => setError(message)),
      PAUSE,
    );
    return () => clearTimeout(timer);
  }, [possible, text, other]);
  if (!possible) return null;
  const start = async () => {
    setBusy(true);
    setError("");
    try {
      const begun = await post(`${path}/fork`, body, { headers: { Prefer: "respond-async" } });
      remember(begun.request_id, quote);
      go(link(["compare", view.request_id, begun.request_id]));
    } catch (failure) {
      setError(/** @type {any} */ (failure).message);
      setBusy(false);
    }
  };
  const set = (/** @type {string} */ name) => (/** @type {any} */ value) =>
    setGiven({ ...given, [name]: value });
  const edit = (/** @type {string} */ key, /** @type {any} */ change) =>
    setGiven({ ...given, edits: { ...given.edits, [key]: { ...given.edits[key], ...change } } });
  return html`
    <section class="fork">
      <h2 class="sub">
        ${from === "end" ? "Continue in a fork" : `Fork from step ${from}`}
        <span class="right">
          ${typeof from === "number"
            ? `${from} ${from === 1 ? "step is" : "steps are"} inherited, not run again`
            : "all messages are inherited"}
        </span>
      </h2>
      <div class="form">
        <${Choice}
          label="Model"
          value=${given.model}
          none="as it was"
          options=${models}
          set=${set("model")}
        />
        ${results.map((step) => html`
          <div key=${step.key}>
            <${Area}
              label=${`Result of ${visible(step.request?.name ?? step.key)}`}
              value=${given.edits[step.key]?.content ?? resultOf(step)?.content}
              set=${(/** @type {string} */ content) => edit(step.key, { content })}
            />
            <${Check}
              label="as an error"
              checked=${given.edits[step.key]?.is_error ?? resultOf(step)?.is_error}
              set=${(/** @type {boolean} */ is_error) => edit(step.key, { is_error })}
            />
          </div>
        `)}
        ${!flow && html`
          <${Area}
            label="Message"
            value=${given.message}
            set=${set("message")}
            placeholder=${from === "end" ? "What to ask next" : "A user message to add, if any"}
          />
        `}
        <details>
          <summary>More</summary>
          <div class="form">
            <${Line}
              label="Temperature"
              inputmode="decimal"
              value=${given.temperature}
              set=${set("temperature")}
              placeholder="as it was"
            />
            <${Names}
              label="Choose the tools"
              names=${tools}
              chosen=${given.tools}
              start=${tools}
              set=${set("tools")}
            />
          </div>
        </details>
      </div>
      <${Alert} text=${error} />
      <div class="actions">
        <${Button}
          kind="primary"
          icon="fork"
          hotkey="F"
          data-hotkey="f"
          off=${busy || Boolean(other || wanting)}
          reason=${other || wanting}
          onClick=${start}>
          Fork and compare
        <//>
        <span class="muted small">${quote ? quoteText(quote, money) : ""}</span>
      </div>
    </section>
  `;
}

/**
 * Return the keys of the last attempts at the first 16 tool calls of a top-level step.
 * @param {any[]} steps @param {number} number
 */
function lastAttempts(steps, number) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const { key, kind } of steps)
    if (kind === "tool_call" && Number(key.split("/")[0]) === number)
      found.set(key.slice(0, key.lastIndexOf("/")), key);
  return [...found.values()].slice(0, MOST_EDITS);
}

/**
 * Return the result of a tool call; null for one that ran an agent, whose result is not edited.
 * @param {any} step
 * @returns {{content: string, is_error: boolean} | null}
 */
function resultOf(step) {
  const { content, is_error, payload, question } = step?.outcome ?? {};
  if (typeof content === "string") return { content, is_error };
  if (payload) return { content: asText(payload.result), is_error: payload.is_error ?? false };
  return question === undefined ? null : { content: "", is_error: false };
}

/**
 * Return the body of the fork; only what was changed is in it.
 * @param {any} given
 * @param {number | "end"} from
 * @param {any[]} results
 */
function forkBody(given, from, results) {
  /** @type {Record<string, any>} */
  const overrides = {};
  if (given.model) overrides.model = given.model;
  if (given.message.trim()) overrides.messages = [{ role: "user", content: given.message }];
  if (given.tools !== null) overrides.tools = given.tools;
  if (given.temperature.trim() && Number.isFinite(Number(given.temperature)))
    overrides.hints = { temperature: Number(given.temperature) };
  const edits = results.flatMap((step) => {
    const recorded = resultOf(step);
    const changed = { ...recorded, ...given.edits[step.key] };
    const same =
      changed.content === recorded?.content && changed.is_error === recorded?.is_error;
    return same ? [] : [{ key: step.key, ...changed }];
  });
  return {
    from_step: from,
    ...(Object.keys(overrides).length ? { overrides } : {}),
    ...(edits.length ? { edits } : {}),
  };
}
