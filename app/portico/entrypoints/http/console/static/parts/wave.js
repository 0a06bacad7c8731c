// @ts-check
/** Attempts at an engine by the minute. */
import { html } from "../vendor/preact.js";

const MINUTES = 60;

/** @param {{health: any}} props */
export function Wave({ health }) {
  const end = Math.floor(Date.now() / 60000);
  const by = new Map(
    health.buckets.map((/** @type {any} */ each) => [
      Math.floor(Date.parse(each.start) / 60000),
      each,
    ]),
  );
  const all = Array.from(
    { length: MINUTES },
    (_, at) => by.get(end - MINUTES + 1 + at) ?? { attempts: 0, failures: 0 },
  );
  const most = Math.max(1, ...all.map((each) => each.attempts));
  return html`
    <div
      class="wave"
      role="img"
      aria-label=${`${health.attempts} attempts in the last hour, ${health.failures} failed`}>
      ${all.map((each, at) => html`
        <i key=${at}>
          ${each.failures > 0 && html`
            <b class="failed" style=${{ height: `${(each.failures / most) * 100}%` }}></b>
          `}
          ${each.attempts > each.failures && html`
            <b style=${{ height: `${((each.attempts - each.failures) / most) * 100}%` }}></b>
          `}
        </i>
      `)}
    </div>
  `;
}
