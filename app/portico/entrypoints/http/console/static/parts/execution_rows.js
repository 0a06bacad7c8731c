// @ts-check
/** Rows of the list of executions; on a narrow screen they are cards. */
import { html, useRef } from "../vendor/preact.js";
import { useMe } from "./person.js";
import { go, link, STATES_ENDED } from "./route.js";
import { contentText, cut, money, number, span, visible, words } from "./text.js";
import { Age, State } from "./ui.js";

/** @typedef {import("./api.js").Schemas["ExecutionSummary"]} Row */

/**
 * @param {{rows: Row[], now: number, selected: Set<string>, toggle: (id: string) => void, replays:
 * Record<string, string>}} props
 */
export function Table({ rows, now, selected, toggle, replays }) {
  const person = useMe();
  const tenant = person?.can?.view_tenant;
  const times = rows.map((row) => (row.state === "SUSPENDED" ? 0 : (lasted(row, now) ?? 0)));
  const longest = 2 ** Math.ceil(Math.log2(Math.max(1000, ...times)));
  const drawn = useRef(/** @type {Map<string, {given: any[], line: any}>} */ (new Map()));
  const before = drawn.current;
  drawn.current = new Map();
  /** A row of which nothing has changed is the same object, so it costs nothing. @param {Row} row */
  const line = (row) => {
    const id = row.request_id;
    const calm = STATES_ENDED.has(row.state) && now - Date.parse(row.entered_at) > 90000;
    const time = calm ? Math.floor(now / 30000) * 30000 : now;
    const given = [row, time, longest, tenant, selected.has(id), replays[id]];
    const known = before.get(id);
    const same = known?.given.every((each, at) => each === given[at]);
    const made = same ? known?.line : html`
      <${Line}
        key=${id}
        row=${row}
        now=${time}
        longest=${longest}
        tenant=${tenant}
        chosen=${selected.has(id)}
        toggle=${toggle}
        replay=${replays[id]}
      />
    `;
    drawn.current.set(id, { given, line: made });
    return made;
  };
  return html`
    <table class="list executions">
      <thead>
        <tr>
          <th>
            <span class="hidden">Select</span>
          </th>
          <th>State</th>
          <th>Started</th>
          ${tenant && html`<th>User</th>`}
          <th>Request</th>
          <th>Mode</th>
          <th class="rare">Agent</th>
          <th>Model</th>
          <th class="n rare">Steps</th>
          <th class="n">Tokens</th>
          <th class="n">Cost</th>
          <th class="n wide">Duration</th>
        </tr>
      </thead>
      <tbody>
        ${rows.map(line)}
      </tbody>
    </table>
  `;
}

/** @param {Row} row @param {number} now */
const lasted = ({ duration, started_at, state, entered_at }, now) =>
  duration !== null
    ? duration * 1000
    : started_at
      ? (STATES_ENDED.has(state) ? Date.parse(entered_at) : now) - Date.parse(started_at)
      : null;

/**
 * @param {{row: Row, now: number, longest: number, tenant: boolean, chosen: boolean, toggle: (id: string) =>
 * void, replay: string}} props
 */
function Line({ row, now, longest, tenant, chosen, toggle, replay }) {
  const took = lasted(row, now);
  const place = link(["executions", row.request_id]);
  const share = row.state === "SUSPENDED" ? 1 : Math.sqrt(Math.min((took ?? 0) / longest, 1));
  const open = (/** @type {any} */ event) =>
    !event.target.closest("a, input, label") && !getSelection()?.toString() && go(place);
  return html`
    <tr
      data-request-id=${row.request_id}
      data-state=${row.state}
      class=${chosen ? "chosen" : ""}
      onClick=${open}>
      <td class="box">
        <label>
          <input type="checkbox" checked=${chosen} onChange=${() => toggle(row.request_id)} />
          <span class="hidden">Select ${row.request_id}</span>
        </label>
      </td>
      <td>
        <${State} state=${row.state} />
      </td>
      <td class="when">
        <${Age} time=${row.created_at} now=${now} />
      </td>
      ${tenant && html`<td data-name="User">${visible(row.user ?? "")}</td>`}
      <td class="request">
        <a data-row href=${place}>
          ${visible(row.title || row.request_id)}
        </a>
        <small>
          <code>${row.request_id}</code>
          ${[
            second(row),
            replay && html`<b class=${replay === "identical" ? "good" : "bad"}>${visible(replay)}</b>`,
          ].map((each) => each && html` · ${each}`)}
        </small>
      </td>
      <td data-name="Mode">${row.mode}</td>
      <td class="rare" data-name="Agent">
        ${visible(row.agent ?? "—")}
      </td>
      <td data-name="Model">${visible(row.model ?? "—")}</td>
      <td class="n rare" data-name="Steps">
        ${number(row.total_steps)}
      </td>
      <td class="n" data-name="Tokens">
        ${number(row.tokens)}
      </td>
      <td class="n" data-name="Cost">
        ${money(row.cost)}
      </td>
      <td class="n wide">
        <span class=${`bar ${row.state}`} aria-hidden="true">
          <i style=${{ width: `${Math.max(share * 100, 3)}%` }}></i>
        </span>
        ${span(took)}
      </td>
    </tr>
  `;
}

/** @type {Record<string, string>} */
const WAITS = { approval: "approval", unknown_outcome: "a decision", authorization: "a credential" };

/** Return what stands behind the id in the second line. @param {Row} row */
function second({ suspensions: [open], state, last_error: error, last_step }) {
  if (open)
    return html`
      <span class="warn">
        waits for ${WAITS[open.kind] ?? "an answer"} · ${visible(cut(asked(open), 90))}
      </span>
    `;
  if (!error) return visible(last_step ?? "");
  return state === "ERROR"
    ? html`<span class="bad">${error.code} · ${visible(cut(error.message, 90))}</span>`
    : `recovered from ${words(error.code)}`;
}

/** @param {import("./api.js").Schemas["Suspension"]} suspension */
export function asked(suspension) {
  const { kind, tool_id } = suspension;
  const value = /** @type {any} */ (suspension.value);
  if (kind !== "approval") return `${tool_id}: ${contentText(value?.question ?? value?.credential ?? value)}`;
  const given = Object.entries(value?.arguments ?? {}).map(
    ([name, each]) => `${name}: ${JSON.stringify(each)}`,
  );
  return `${value?.tool ?? tool_id}(${given.join(", ")})`;
}
