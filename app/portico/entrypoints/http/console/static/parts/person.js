// @ts-check
/** Who uses the console, what they may do, and what is said to those who listen. */
import { observed } from "./live.js";
import { useObserved } from "./ui.js";

/** The answer of `GET /v1/me`, null before. */
export const me = observed(/** @type {any} */ (null));
export const useMe = () => useObserved(me);

/**
 * Return the name of the missing permission, undefined if the person has it. Without an answer of `/v1/me`
 * nothing is off:
 * the service decides anyway.
 * @param {any} person @param {string} right Name in `can`.
 */
export const missing = (person, right) =>
  person && person.can && person.can[right] === false ? `can_${right}` : undefined;

/**
 * Return why this person may not change an execution: it is another user's.
 * @param {any} person
 * @param {any} execution
 */
export const foreign = (person, execution) =>
  person && execution?.user && person.user !== execution.user ? `of ${execution.user}` : undefined;

const PAUSE = 5000;
export const said = observed("");
let last = 0;
/** @type {any} */
let waiting = null;

/** Say something to a screen reader, at most once in 5 s; the latest wins. @param {string} text */
export function say(text) {
  clearTimeout(waiting);
  waiting = setTimeout(
    () => {
      last = Date.now();
      said.set(text);
    },
    Math.max(0, last + PAUSE - Date.now()),
  );
}

const OFF = "portico.keys";
/** Whether the keys of the console are on. */
export const shortcutsOn = () => sessionStorage.getItem(OFF) !== "off";

/** Turn the keys on or off. @returns {boolean} True if they are on now. */
export function switchShortcuts() {
  sessionStorage.setItem(OFF, shortcutsOn() ? "off" : "on");
  return shortcutsOn();
}
