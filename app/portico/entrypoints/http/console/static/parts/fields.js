// @ts-check
/** Fields of forms. */
import { html } from "../vendor/preact.js";
import { visible } from "./text.js";

/** @param {(value: string) => void} set */
const typed = (set) => (/** @type {any} */ event) => set(event.target.value);

/** @param {{label: any, value: any, set: (value: string) => void, [name: string]: any}} props */
export const Line = ({ label, value, set, ...rest }) => html`
  <label>
    ${label}
    <input value=${value} onInput=${typed(set)} ...${rest} />
  </label>
`;

/** @param {{label: any, value: any, set: (value: string) => void, [name: string]: any}} props */
export const Area = ({ label, value, set, ...rest }) => html`
  <label>
    ${label}
    <textarea value=${value} onInput=${typed(set)} ...${rest}></textarea>
  </label>
`;

/** @param {{label: any, checked: boolean, set: (checked: boolean) => void, [name: string]: any}} props */
export const Check = ({ label, checked, set, ...rest }) => html`
  <label class="check">
    <input
      type="checkbox"
      checked=${checked}
      onChange=${(/** @type {any} */ event) => set(event.target.checked)}
      ...${rest}
    />
    ${label}
  </label>
`;

/**
 * One of several values; `none` is shown for the empty one.
 * @param {{label: any, value: string, set: (value: string) => void, options: string[], none?: string,
 * [name: string]: any}} props
 */
export const Choice = ({ label, value, set, options, none = "", ...rest }) => html`
  <label>
    ${label}
    <select value=${value} onChange=${typed(set)} ...${rest}>
      ${none && html`<option value="">${none}</option>`}
      ${options.map((each) => html`
        <option key=${each} value=${each}>
          ${visible(each)}
        </option>
      `)}
    </select>
  </label>
`;

/**
 * Some of the names; null stands for no choice, and `start` for the first one.
 * @param {{label: string, names: string[], chosen: string[] | null, start: string[],
 * set: (chosen: string[] | null) => void}} props
 */
export const Names = ({ label, names, chosen, start, set }) => html`
  <${Check}
    label=${label}
    checked=${chosen !== null}
    set=${(/** @type {boolean} */ on) => set(on ? start : null)}
  />
  ${chosen && html`
    <div class="options">
      ${names.map((name) => html`
        <${Check}
          key=${name}
          label=${visible(name)}
          checked=${chosen.includes(name)}
          set=${(/** @type {boolean} */ on) =>
            set(on ? [...chosen, name] : chosen.filter((each) => each !== name))
          }
        />
      `)}
    </div>
  `}
`;

/** What went wrong, if something did. @param {{text: string}} props */
export const Alert = ({ text }) =>
  text && html`
    <p class="bad" role="alert">
      ${visible(text)}
    </p>
  `;

/** @param {any} failure */
export const failureText = (failure) =>
  failure.code ? `${failure.code}: ${failure.message}` : failure.message;

/** @param {string} text @param {unknown} otherwise What stands for a text that is no JSON. */
export function parsed(text, otherwise) {
  try {
    return JSON.parse(text);
  } catch {
    return otherwise;
  }
}
