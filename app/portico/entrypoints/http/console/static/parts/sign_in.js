// @ts-check
/** The dialog that asks for the API key. It is loaded when the service refuses a request. */
import { html, useEffect, useRef } from "../vendor/preact.js";
import { Dialog } from "./dialog.js";

/**
 * Ask for the API key.
 * @param {{refused: boolean, give: (given: {key: string, keep: boolean}) => void}} props
 */
export function SignIn({ refused, give }) {
  const field = useRef(/** @type {any} */ (null));
  const keep = useRef(/** @type {any} */ (null));
  useEffect(() => field.current.focus(), []);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const key = field.current.value.trim();
    if (key) give({ key, keep: keep.current.checked });
  };
  return html`
    <${Dialog} title="Sign in">
      <form onSubmit=${submit} class="form">
        ${refused && html`
          <p class="bad" role="alert">
            The key is not valid any more, or never was.
          </p>
        `}
        <label>
          API key
          <input ref=${field} type="password" autocomplete="off" spellcheck=${false} required />
        </label>
        <label class="check">
          <input ref=${keep} type="checkbox" />
          Keep for this tab
        </label>
        <button class="button primary" type="submit">
          Sign in
        </button>
      </form>
    <//>
  `;
}
