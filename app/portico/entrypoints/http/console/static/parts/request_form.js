// @ts-check
/** The form for a request, and the request that it says. */
import { html } from "../vendor/preact.js";
import { Area, Choice, Line, Names, parsed } from "./fields.js";
import { useModels, useRows } from "./frame.js";

const MODES = ["chat", "structured", "plan", "redundant", "flow"];
const SCHEMA =
  '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}';
const NUMERIC = { inputmode: "numeric" };
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
export function Form({ form, set }) {
  const agents = namesOf(useRows("agents"));
  const [flows, tools] = [namesOf(useRows("flows")), namesOf(useRows("tools"))];
  const models = useModels();
  const of = (/** @type {string} */ name, /** @type {string} */ label, rest = {}) => ({
    label,
    value: form[name],
    set: (/** @type {any} */ value) => set({ ...form, [name]: value }),
    ...rest,
  });
  const mode = form.agent ? "" : form.mode;
  return html`
    <div class="form">
      <div class="pairs">
        <${Choice} ...${of("mode", "Mode", { options: MODES })} />
        <${Choice} ...${of("agent", "Agent", { options: agents, none: "none" })} />
      </div>
      ${mode === "flow" ? html`
          <${Choice} ...${of("flow", "Flow", { options: flows, none: "choose" })} />
          <${Area} ...${of("input", "Input as JSON")} />
      ` : html`
        <${Area} ...${of("message", "Message")} />
      `}
      <div class="pairs">
        <${Choice} ...${of("model", "Model", { options: models, none: "the default" })} />
        <${Line} ...${of("session", "Session", { maxlength: 128, placeholder: "none" })} />
      </div>
      ${mode === "structured" && html`
        <${Area} ...${of("schema", "Output schema", { placeholder: SCHEMA })} />
      `}
      ${mode === "redundant" && html`<${Line} ...${of("n", "Replicas", NUMERIC)} />`}
      ${mode === "plan" && html`
        <${Line} ...${of("passes", "Passes", { ...NUMERIC, placeholder: "1" })} />
      `}
      <details>
        <summary>System message, tools, limits</summary>
        <div class="form">
          <${Area} ...${of("system", "System message")} />
          <fieldset>
            <legend>Tools</legend>
            <${Names}
              label="Choose them"
              names=${tools}
              chosen=${form.tools}
              start=${[]}
              set=${of("tools", "").set}
            />
          </fieldset>
          <div class="pairs">
            <${Line} ...${of("tokens", "Limit of tokens", NUMERIC)} />
            <${Line} ...${of("cost", "Limit of cost", { inputmode: "decimal" })} />
          </div>
        </div>
      </details>
    </div>
  `;
}

/** @param {any[]} rows */
const namesOf = (rows) => rows.map((each) => each.name);
