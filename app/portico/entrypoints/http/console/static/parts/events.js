// @ts-check
/** Events of an execution as lines, and the tab that filters them. */
import { html, useState } from "../vendor/preact.js";
import { Rows } from "./rows.js";
import { Code } from "./ui.js";
import { age, clockSeconds, cut, fullTime, span, visible, words } from "./text.js";

/** Say an event in a few words. @param {any} event */
export function said(event) {
  switch (event.type) {
    case "lifecycle.transition":
      return event.from_state
        ? `${event.from_state} → ${event.to_state}, ${words(event.reason)}`
        : event.to_state;
    case "fallback.transition":
      return [
        `${event.from_state} → ${event.to_state}, ${words(event.reason)}`,
        ...(event.provider ? [event.provider] : []),
      ].join(" · ");
    case "stage.end":
      return `${event.stage} · ${event.outcome} · ${span(event.duration_ms)}`;
    case "inference.start":
      return `${event.provider} · ${event.model} · ${event.message_count} messages`;
    case "inference.end":
      return `${event.tokens_in} tokens in, ${event.tokens_out} out · ${words(event.finish_reason)}`;
    case "tool.start":
      return event.tool_name;
    case "tool.end":
      return [
        event.tool_name,
        span(event.duration_ms),
        event.success ? "success" : event.error_code,
      ].join(" · ");
    case "execution.suspended":
      return (event.suspensions ?? [])
        .map((/** @type {any} */ each) => `${words(each.kind)} ${each.tool_id}`)
        .join(", ");
    case "approval.given":
      return `${event.given} of ${event.needed} by ${event.user}`;
    case "execution.resumed":
      return `${words(event.kind)} by ${event.resumed_by}`;
    case "execution.failed":
      return event.response?.error?.code ?? "";
    case "step.start":
    case "step.end":
      return `${event.step_name}${event.status ? ` · ${event.status}` : ""}`;
    case "pass.end":
      return `pass ${event.pass} · ${event.converged ? "converged" : "not converged"}`;
    case "vote.cast":
      return `replica ${event.replica + 1} · ${event.status}`;
    case "flow.step":
    case "node.start":
      return `${event.node}${event.outcome ? ` · ${event.outcome}` : ""}`;
    default:
      return event.guard ?? event.segment ?? "";
  }
}

/** @param {{event: any, now: number, open?: () => void}} props */
export const EventLine = ({ event, now, open }) => html`
  <div class="event" data-seq=${event.sequence_number}>
    <span>${event.sequence_number}</span>
    <code>
      ${open ? html`
        <button class="link" onClick=${open}>
          ${event.type}
        </button>
      ` : (
        event.type
      )}
    </code>
    <span>${visible(cut(said(event), 300))}</span>
    <time title=${fullTime(event.timestamp)}>
      ${now - Date.parse(event.timestamp) < 3600000
        ? age(event.timestamp, now)
        : clockSeconds(event.timestamp)}
    </time>
  </div>
`;

/** @param {{fold: any, now: number}} props */
export function Events({ fold, now }) {
  const [type, setType] = useState("");
  const [chosen, choose] = useState(/** @type {any} */ (null));
  const types = [...new Set(fold.events.map((/** @type {any} */ event) => event.type))].sort();
  const shown = type
    ? fold.events.filter((/** @type {any} */ event) => event.type === type)
    : fold.events;
  return html`
      <section>
        <label>
          Type
          <select value=${type} onChange=${(/** @type {any} */ event) => setType(event.target.value)}>
            <option value="">All ${fold.events.length} events</option>
            ${types.map((each) => html`
              <option key=${each} value=${each}>
                ${each}
              </option>
            `)}
          </select>
        </label>
      </section>
      ${chosen && html`
        <section>
          <h2 class="sub">Event ${chosen.sequence_number}</h2>
          <${Code}
            label=${`Event ${chosen.sequence_number}`}
            text=${cut(JSON.stringify(chosen, null, 2), 65536)}
            model=${true}
          />
        </section>
      `}
      <${Rows}
        count=${shown.length}
        height=${28}
        row=${(/** @type {number} */ at) => html`
          <${EventLine}
            key=${shown[at].sequence_number}
            event=${shown[at]}
            now=${now}
            open=${() => choose(shown[at])}
          />
        `}
      />
  `;
}
