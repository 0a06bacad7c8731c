// @ts-check
/** The form for a request, and the request that it says. */
import { html } from "../vendor/preact.js";
import { visible } from "./text.js";

const MODES = ["chat", "structured", "plan", "redundant", "flow"];
const SCHEMA =
  '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}';
export const START = {
  mode: "chat",
  agent: "",
  model: "",
  system: "",
  message: "Roll two dice",
  tools: null,
  schema: "",
  flow: "",
  input: "{}",
  session: "",
  n: "3",
  passes: "",
  tokens: "",
  cost: "",
  stream: true,
};

/** @param {string} text @param {unknown} otherwise */
export function parsed(text, otherwise) {
  try {
    return JSON.parse(text);
  } catch {
    return otherwise;
  }
}

/** Return the request that the form says. @param {any} form @returns {Record<string, any>} */
export function requestOf(form) {
  const schema = parsed(form.schema, null);
  const limits = {
    ...(Number(form.tokens) ? { tokens: Number(form.tokens) } : {}),
    ...(Number(form.cost) ? { cost: Number(form.cost) } : {}),
  };
  const messages = [
    ...(form.system.trim() ? [{ role: "system", content: form.system }] : []),
    { role: "user", content: form.message },
  ];
  return {
    ...(form.mode !== "chat" && !form.agent ? { mode: form.mode } : {}),
    ...(form.agent ? { agent: form.agent } : {}),
    ...(form.model ? { model: form.model } : {}),
    ...(form.session.trim() ? { session_id: form.session.trim() } : {}),
    ...(form.mode === "flow" && !form.agent
      ? { flow: { name: form.flow, input: parsed(form.input, {}) } }
      : { messages }),
    ...(form.tools !== null ? { tools: form.tools } : {}),
    ...(schema
      ? { output: { schema } }
      : form.mode === "structured" && !form.agent
        ? { output: { schema: JSON.parse(SCHEMA) } }
        : {}),
    ...(form.mode === "redundant" && !form.agent ? { redundancy: { n: Number(form.n) || 3 } } : {}),
    ...(form.mode === "plan" && Number(form.passes)
      ? { plan: { passes: Number(form.passes) } }
      : {}),
    ...(Object.keys(limits).length ? { limits } : {}),
  };
}

/** @param {any} props */
export function Form({ form, set, lists }) {
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) =>
    set({ ...form, [name]: event.target.value });
  const choose = (
    /** @type {string} */ name,
    /** @type {string} */ title,
    /** @type {string[]} */ options,
    none = "",
  ) => html`
    <label>
      ${title}
      <select value=${form[name]} onChange=${change(name)}>
        ${none && html`<option value="">${none}</option>`}
        ${options.map((each) => html`
          <option key=${each} value=${each}>
            ${visible(each)}
          </option>
        `)}
      </select>
    </label>
  `;
  const names = (/** @type {string} */ name) =>
    (lists[name] ?? []).map((/** @type {any} */ each) => each.name);
  const models = [
    ...new Set(
      (lists.engines ?? []).flatMap((/** @type {any} */ each) => [...each.routes, each.name]),
    ),
  ];
  const mode = form.agent ? "" : form.mode;
  return html`
    <div class="form">
      <div class="pairs">
        ${choose("mode", "Mode", MODES)}
        ${choose("agent", "Agent", names("agents"), "none")}
      </div>
      ${mode === "flow" ? html`
          ${choose("flow", "Flow", names("flows"), "choose")}
          <label>
            Input as JSON<textarea value=${form.input} onInput=${change("input")}></textarea>
          </label>
      ` : html`
        <label>
          Message<textarea value=${form.message} onInput=${change("message")}></textarea>
        </label>
      `}
      <div class="pairs">
        ${choose("model", "Model", models, "the default")}
        <label>
          Session
          <input
            value=${form.session}
            maxlength="128"
            onInput=${change("session")}
            placeholder="none"
          />
        </label>
      </div>
      ${mode === "structured" && html`
        <label>
          Output schema
          <textarea value=${form.schema} placeholder=${SCHEMA} onInput=${change("schema")}></textarea>
        </label>
      `}
      ${mode === "redundant" && html`
        <label>
          Replicas
          <input inputmode="numeric" value=${form.n} onInput=${change("n")} />
        </label>
      `}
      ${mode === "plan" && html`
        <label>
          Passes
          <input
            inputmode="numeric"
            value=${form.passes}
            placeholder="1"
            onInput=${change("passes")}
          />
        </label>
      `}
      <details>
        <summary>System message, tools, limits</summary>
        <div class="form">
          <label>
            System message<textarea value=${form.system} onInput=${change("system")}></textarea>
          </label>
          <fieldset>
            <legend>Tools</legend>
            <label class="check">
              <input
                type="checkbox"
                checked=${form.tools !== null}
                onChange=${(/** @type {any} */ event) =>
                  set({ ...form, tools: event.target.checked ? [] : null })
                }
              />
              Choose them
            </label>
            ${form.tools !== null && html`
              <div class="options">
                ${names("tools").map((/** @type {string} */ name) => html`
                  <label key=${name} class="check">
                    <input
                      type="checkbox"
                      checked=${form.tools.includes(name)}
                      onChange=${(/** @type {any} */ event) =>
                        set({
                          ...form,
                          tools: event.target.checked
                            ? [...form.tools, name]
                            : form.tools.filter((/** @type {string} */ each) => each !== name),
                        })
                      }
                    />
                    ${visible(name)}
                  </label>
                `)}
              </div>
            `}
          </fieldset>
          <div class="pairs">
            <label>
              Limit of tokens
              <input inputmode="numeric" value=${form.tokens} onInput=${change("tokens")} />
            </label>
            <label>
              Limit of cost
              <input inputmode="decimal" value=${form.cost} onInput=${change("cost")} />
            </label>
          </div>
        </div>
      </details>
    </div>
  `;
}
