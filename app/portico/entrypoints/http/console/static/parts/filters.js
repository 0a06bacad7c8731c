// @ts-check
/** Search and filters of the list of executions. They stand in the link of the page. */
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { once } from "./api.js";
import { RANGES } from "./histogram.js";
import { Icon } from "./icons.js";
import { refine } from "./route.js";
import { visible, words } from "./text.js";

const UNFINISHED = "INIT,PLAN,PREPARE,EXECUTE,VALIDATE,SUSPENDED";
const STATES = [
  ["", "State"],
  [UNFINISHED, "Unfinished"],
  ["SUSPENDED"],
  ["COMPLETE"],
  ["ERROR"],
  ["CANCELLED"],
  [`${UNFINISHED},COMPLETE,ERROR`, "Not cancelled"],
];
const MODES = ["chat", "structured", "plan", "redundant", "flow"];

/** @param {{place: import("./route.js").Place, range: any}} props */
export function Filters({ place, range }) {
  const [names, setNames] = useState(/** @type {Record<string, string[]>} */ ({}));
  const search = useRef(/** @type {any} */ (null));
  useEffect(() => {
    for (const list of ["agents", "engines"])
      once(list).then(
        ({ data }) =>
          setNames((old) => ({ ...old, [list]: data.map((/** @type {any} */ each) => each.name) })),
        () => {},
      );
  }, []);
  const value = (/** @type {string} */ name) => place.query.get(name) ?? "";
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) =>
    refine(place, { [name]: event.target.value.trim() });
  const choice = (
    /** @type {string} */ name,
    /** @type {string} */ label,
    /** @type {string[][]} */ options,
    chosen = value(name),
  ) => html`
    <select
      class=${chosen ? "chip on" : "chip"}
      aria-label=${label}
      value=${chosen}
      onChange=${change(name)}>
      ${options.map(([each, title]) => html`
        <option key=${each} value=${each}>
          ${title ?? each}
        </option>
      `)}
    </select>
  `;
  const among = (
    /** @type {string} */ name,
    /** @type {string} */ label,
    /** @type {string[]} */ options = [],
  ) => {
    const all = [...new Set([...options, value(name)])].filter(Boolean);
    return all.length > 0 && choice(name, label, [["", label], ...all.map((each) => [each])]);
  };
  const rest = ["session_id", "code", "origin"].filter((name) => value(name));
  return html`
    <form
      class="filters"
      role="search"
      onSubmit=${(/** @type {Event} */ event) => {
        event.preventDefault();
        refine(place, { q: search.current.value.trim() });
      }}>
      <label class="search">
        <${Icon} name="search" />
        <span class="hidden">Search</span>
        <input
          ref=${search}
          data-hotkey="/"
          type="search"
          maxlength="300"
          placeholder="Id, session or metadata.key=value"
          value=${value("q")}
          onChange=${change("q")}
        />
        <kbd aria-hidden="true">/</kbd>
      </label>
      ${choice("range", "Time range", RANGES.map(({ name, title }) => [name, title]), range.name)}
      ${choice("state", "State", STATES)}
      ${among("mode", "Mode", MODES)}
      ${among("agent", "Agent", names.agents)}
      ${among("model", "Engine", names.engines)}
      ${rest.map((name) => html`
        <button
          key=${name}
          type="button"
          class="chip on"
          onClick=${() => refine(place, { [name]: "" })}>
          ${words(name).replace(" id", "")} ${visible(value(name))} <span aria-hidden="true">×</span>
          <span class="hidden">, remove</span>
        </button>
      `)}
    </form>
  `;
}
