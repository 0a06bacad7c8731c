// @ts-check
/** Keys of the console. They are off in fields, and as a whole by a switch. */
import { html } from "../vendor/preact.js";
import { Dialog } from "./dialog.js";
import { shortcutsOn } from "./person.js";

/** @type {Record<string, string>} */
const PLACES = { n: "now", e: "executions", q: "questions", s: "sessions", t: "try", u: "usage" };

/** @type {[string, string][]} */
const SHORTCUTS = [
  ["g n e q s t u", "go to Now, Executions, Questions, Sessions, Try, Usage"],
  ["/", "search"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["[ ]", "previous and next step"],
  ["r f c", "replay, fork, compare"],
  ["a d", "focus on Approve, Deny"],
  ["?", "this list"],
  ["Esc", "close"],
];

/** @param {{close: () => void}} props */
export const Shortcuts = ({ close }) => html`
  <${Dialog} title="Keys" close=${close}>
    <dl class="keys">
      ${SHORTCUTS.map(([key, what]) => html`
        <div key=${key}>
          <dt>
            <kbd>${key}</kbd>
          </dt>
          <dd>${what}</dd>
        </div>
      `)}
    </dl>
  <//>
`;

/** @param {() => void} help */
export function listen(help) {
  let prefix = 0;
  const press = (/** @type {KeyboardEvent} */ event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (!shortcutsOn() || event.ctrlKey || event.metaKey || event.altKey) return;
    if (
      target.closest("input, textarea, select, [contenteditable]") ||
      document.querySelector("dialog[open]")
    )
      return;
    const { key } = event;
    const after = Date.now() - prefix < 1500;
    prefix = key === "g" ? Date.now() : 0;
    if (after && PLACES[key]) location.hash = `#/${PLACES[key]}`;
    else if (key === "?") help();
    else if (key === "j" || key === "k") moveRow(key === "j" ? 1 : -1);
    else if (key === "[" || key === "]")
      dispatchEvent(new CustomEvent("neighbour", { detail: key === "]" ? 1 : -1 }));
    else if ("ad".includes(key)) find(key)?.focus();
    else if (key === "/") find(key)?.focus();
    else if ("rfc".includes(key)) find(key)?.click();
    else return;
    event.preventDefault();
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}

/** @param {string} key */
const find = (key) =>
  /** @type {HTMLElement | null} */ (
    document.querySelector(`[data-hotkey="${key}"]:not(:disabled)`)
  );

/** @param {number} by */
function moveRow(by) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-row]")]);
  const at = rows.findIndex(
    (row) => row === document.activeElement || row.contains(document.activeElement),
  );
  const next =
    rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
