// @ts-check
/** What a model read: the terms of its context as one bar against the limit. */
import { html } from "../vendor/preact.js";
import { number } from "./text.js";

const TERMS = ["system", "skills", "memory", "history", "message", "tools"];

/** @param {{terms: any, title: string}} props */
export function Budget({ terms, title }) {
  const used = TERMS.reduce((sum, name) => sum + (terms[name] ?? 0), 0);
  const shown = TERMS.filter((name) => terms[name]);
  return html`
      <h2 class="sub">
        ${title}
        <span class="right">
          ${number(used)} of ${number(terms.limit)} tokens
        </span>
      </h2>
      <div class="budget" aria-hidden="true">
        ${shown.map((name) => html`
          <i key=${name} class=${`c-${name}`} style=${{ flex: terms[name] }}></i>
        `)}
      </div>
      <dl class="terms">
        ${shown.map((name) => html`
          <div key=${name}>
            <i class=${`c-${name}`} aria-hidden="true"></i>
            <dt>${name}</dt>
            <dd>${number(terms[name])}</dd>
          </div>
        `)}
      </dl>
  `;
}
