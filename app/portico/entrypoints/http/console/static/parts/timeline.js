// @ts-check
/** The timeline of an execution: one row for each thing that took time, on an axis that compresses waits. */
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { timeAxis, waits } from "./axis.js";
import { intervals } from "./fold.js";
import { Icon } from "./icons.js";
import { span, visible } from "./text.js";
import { Rows } from "./rows.js";

/** @type {Record<string, string>} */
const ICONS = {
  prepare: "prepare",
  attempt: "inference",
  call: "tools",
  wait: "clock",
  suspension: "clock",
  retrieval: "search",
};

/** Return the width of an element, and its changes. */
function useWidth() {
  const ref = useRef(/** @type {any} */ (null));
  const [width, set] = useState(400);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => set(entry.contentRect.width));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return { ref, width };
}

/**
 * @param {{fold: import("./fold.js").Fold, now: number, equal: boolean, chosen: string, choose: (row:
 * import("./fold.js").Row) => void, keyOf: (row: import("./fold.js").Row) => string, version: number}} props
 */
export function Timeline({ fold, now, equal, chosen, choose, keyOf }) {
  const { ref, width } = useWidth();
  const narrow = matchMedia("(width < 720px)").matches;
  const bars = Math.max(width - 2, 60);
  const { whole, busy, open } = intervals(fold, now);
  const axis = timeAxis(whole, waits(whole, busy, open), bars);
  const rows = fold.rows;
  const steps = rows.filter((row) => row.kind !== "group");
  const order = new Map(steps.map((row, at) => [row.id, at]));
  const place = (/** @type {import("./fold.js").Row} */ row) => {
    if (equal) {
      const all =
        row.kind === "group"
          ? steps.filter((each) => each.group === row.id).map((each) => order.get(each.id) ?? 0)
          : [order.get(row.id) ?? 0];
      const [first, last] = [Math.min(...all, steps.length), Math.max(...all, 0)];
      return { left: (first / steps.length) * bars, right: ((last + 1) / steps.length) * bars - 2 };
    }
    return { left: axis.place(row.start), right: axis.place(Math.max(row.end ?? now, row.start)) };
  };
  const wait = axis.stretches.filter((each) => each.wait);
  return html`
    <div class="timeline" role="table" aria-label="Timeline" aria-rowcount=${rows.length + 1}>
      <div class="axis" role="row">
        <span role="columnheader">Step</span>
        <span role="columnheader" class="lane" ref=${ref}>
          <span class="hidden">Time</span>
          ${!equal && html`
              ${axis.ticks.map((tick) => html`
                <i key=${tick.ms} style=${{ left: `${tick.x}px` }}>
                  ${tick.ms === 0 ? "0" : short(tick.ms)}
                </i>
              `)}
              ${wait.map((each) => html`
                <b key=${each.start} style=${{ left: `${each.x}px`, width: `${each.width}px` }}>
                  ${span(each.end - each.start)}
                </b>
              `)}
          `}
        </span>
        <span role="columnheader" class="took">
          Took
        </span>
      </div>
      <div class="lanes">
        <div class="stripes" aria-hidden="true">
          <div class="lane">
            ${!equal &&
              wait.map((each) => html`
                <i key=${each.start} style=${{ left: `${each.x}px`, width: `${each.width}px` }}></i>
              `)}
            ${!equal && !fold.ended && html`<u style=${{ left: `${bars}px` }}></u>`}
          </div>
        </div>
        <${Rows}
          count=${rows.length}
          height=${narrow ? 52 : 32}
          row=${(/** @type {number} */ at) => {
            const row = rows[at];
            return html`
              <${Line}
                key=${row.id}
                row=${row}
                step=${keyOf(row)}
                place=${place(row)}
                bars=${bars}
                now=${now}
                chosen=${chosen === keyOf(row) || chosen === row.id}
                choose=${choose}
                at=${at}
                equal=${equal}
                fold=${fold}
              />
            `;
          }}
        />
      </div>
    </div>
  `;
}

/** @param {number} ms */
const short = (ms) =>
  ms < 1000
    ? `${Number(ms.toPrecision(3))} ms`
    : ms < 60000
      ? `${Number((ms / 1000).toPrecision(3))} s`
      : `${Number((ms / 60000).toPrecision(3))} min`;

/** @param {any} props */
function Line({ row, step, place, bars, now, chosen, choose, at, fold }) {
  const group = row.kind === "group";
  const width = Math.max(place.right - place.left, group ? 2 : 4);
  const left = Math.min(place.left, bars - width);
  const took = row.took ?? (row.end ?? now) - row.start;
  const runs = row.end === null && !fold.ended;
  const label = row.failure ?? row.note ?? "";
  const behind = left + width + 8 < bars - 60 || left < 60;
  const first =
    row.first && width > 8
      ? Math.min(
          Math.max(((row.first - row.start) / Math.max((row.end ?? now) - row.start, 1)) * 100, 4),
          96,
        )
      : 0;
  const select = () => !group && choose(row);
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    select();
  };
  return html`
    <div
      role="row"
      aria-rowindex=${at + 2}
      class=${[`line ${row.kind}`, row.failure && "failed", chosen && "chosen", runs && "runs"]
        .filter(Boolean)
        .join(" ")}
      data-step=${group ? undefined : step}
      data-row=${group ? undefined : ""}
      tabindex=${group ? undefined : 0}
      aria-selected=${group ? undefined : chosen}
      onClick=${select}
      onKeyDown=${press}>
      <span role="rowheader" class="label">
        ${!group && html`<${Icon} name=${ICONS[row.kind]} />`}
        <b class=${row.retracted ? "retracted" : ""}>${visible(row.name)}</b>
        <span>${visible(row.detail)}</span>
        ${row.round !== null && row.round !== undefined && html`<em>step ${row.round}</em>`}
      </span>
      <span role="cell" class="lane">
        <i class="piece" style=${{ left: `${left}px`, width: `${width}px` }}>
          ${first > 0 && html`<u style=${{ width: `${first}%` }}></u>`}
        </i>
        ${label && row.kind !== "prepare" && html`
          <span
            class="note"
            style=${behind ? { left: `${left + width + 6}px` } : { right: `${bars - left + 6}px` }}>
            ${visible(label)}
          </span>
        `}
      </span>
      <span role="cell" class="took">
        ${span(took)}
      </span>
    </div>
  `;
}
