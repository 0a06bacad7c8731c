// @ts-check
/** A modal dialog, which is loaded when it is opened first. */
import { html, useEffect, useRef } from "../vendor/preact.js";
import { Icon } from "./icons.js";

/**
 * Escape closes it if `close` is given.
 * @param {{title: string, close?: () => void, children: any, kind?: string}} props
 */
export function Dialog({ title, close, children, kind = "" }) {
  const ref = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    ref.current.showModal();
    return () => before?.focus?.();
  }, []);
  const cancel = (/** @type {Event} */ event) => {
    event.preventDefault();
    close?.();
  };
  return html`
    <dialog ref=${ref} class=${kind} onCancel=${cancel} aria-labelledby="dialog-title">
      <header>
        <h2 id="dialog-title">${title}</h2>
        ${close && html`
          <button class="button quiet" aria-label="Close" onClick=${close}>
            <${Icon} name="close" />
          </button>
        `}
      </header>
      ${children}
    </dialog>
  `;
}
