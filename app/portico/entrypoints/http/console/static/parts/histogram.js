// @ts-check
/** Executions over time by state, with the figures of the range. */
import { html, useEffect } from "../vendor/preact.js";
import { json } from "./api.js";
import { query } from "./route.js";
import { clock, day, fullTime, number } from "./text.js";
import { Figure, useLoaded } from "./ui.js";

const [MINUTE, HOUR, DAY] = [60000, 3600000, 86400000];
export const RANGES = [
  { name: "hour", title: "Last hour", ms: HOUR, bucket: "minute", bar: MINUTE },
  { name: "day", title: "Last 24 hours", ms: DAY, bucket: "minute", bar: 30 * MINUTE },
  { name: "week", title: "Last 7 days", ms: 7 * DAY, bucket: "hour", bar: 3 * HOUR },
  { name: "month", title: "Last 30 days", ms: 30 * DAY, bucket: "hour", bar: 12 * HOUR },
  { name: "all", title: "All time", ms: 0, bucket: "day", bar: DAY },
];
/** Order of the states in a bar, from its foot. */
const ORDER = [
  "COMPLETE",
  "CANCELLED",
  "ERROR",
  "SUSPENDED",
  "INIT",
  "PLAN",
  "PREPARE",
  "EXECUTE",
  "VALIDATE",
];

/**
 * Add buckets up to bars.
 * @param {any[]} buckets
 * @param {number} start
 * @param {number} end
 * @param {number} width Milliseconds.
 */
export function bars(buckets, start, end, width) {
  const first = Math.floor(start / width) * width;
  const found = Array.from({ length: Math.floor((end - first) / width) + 1 }, (_, at) => ({
    start: first + at * width,
    states: /** @type {Record<string, number>} */ ({}),
    total: 0,
  }));
  for (const each of buckets) {
    const bar = found[Math.floor((Date.parse(each.start) - first) / width)];
    if (!bar) continue;
    for (const [state, count] of Object.entries(each.states)) {
      bar.states[state] = (bar.states[state] ?? 0) + count;
      bar.total += count;
    }
  }
  return found;
}

/** @param {{range: any, filter: any, connection: string}} props */
export function Histogram({ range, filter, connection }) {
  const until = Date.now();
  const ms = range.ms || 60 * DAY;
  const { mode, agent, model } = filter;
  const asked = { bucket: range.bucket, mode, agent, model };
  const found = useLoaded(
    (signal) =>
      json(`stats${query({ since: new Date(until - ms).toISOString(), ...asked })}`, { signal }),
    [range.name, mode, agent, model, connection === "live"],
  );
  useEffect(() => {
    const timer = setInterval(
      () => !document.hidden && found.again(),
      range.bar > MINUTE ? 15000 : 5000,
    );
    return () => clearInterval(timer);
  }, [range.name]);
  if (found.error || !found.value)
    return found.error ? null : html`<section class="card histogram" aria-hidden="true"></section>`;
  const all = bars(found.value.buckets, until - ms, until, range.bar);
  return html`
    <section class="card histogram" aria-label="Executions over time">
      <${Bars} all=${all} range=${range} />
      <${Summary} stats=${found.value} />
    </section>
  `;
}

/** @param {{all: ReturnType<typeof bars>, range: any}} props */
export function Bars({ all, range }) {
  const most = Math.max(1, ...all.map((bar) => bar.total));
  const label = (/** @type {number} */ time) => (range.bar >= HOUR ? day(time) : clock(time));
  const marks = [0, 0.25, 0.5, 0.75]
    .map((share) => all[Math.floor(share * all.length)])
    .filter(Boolean);
  const total = all.reduce((sum, bar) => sum + bar.total, 0);
  return html`
    <div
      class="bars"
      role="img"
      aria-label=${`${number(total)} executions, at most ${number(most)} in one bar`}>
      <div>
        ${all.map((bar) => html`
          <i
            key=${bar.start}
            title=${
              bar.total
                ? `${fullTime(bar.start)}: ${Object.entries(bar.states)
                    .map(([state, count]) => `${count} ${state}`)
                    .join(", ")}`
                : undefined
            }>
            ${ORDER.filter((state) => bar.states[state])
              .reverse()
              .map((state) => html`
                <b
                  key=${state}
                  class=${`fill ${state}`}
                  style=${{ height: `${(bar.states[state] / most) * 100}%` }}></b>
              `)}
          </i>
        `)}
      </div>
      <p aria-hidden="true">
        ${marks.map((bar) => html`
          <span key=${bar.start}>${label(bar.start)}</span>
        `)}
        <span>now</span>
      </p>
    </div>
  `;
}

const CLASSES = [
  [3, "under 1 s"],
  [5, "1 to 10 s"],
  [7, "10 to 100 s"],
  [11, "longer"],
];

/** @param {{stats: any}} props */
function Summary({ stats }) {
  /** @type {Record<string, number>} */
  const states = {};
  const durations = Array(11).fill(0);
  for (const bucket of stats.buckets) {
    for (const [state, count] of Object.entries(bucket.states))
      states[state] = (states[state] ?? 0) + /** @type {number} */ (count);
    bucket.durations.forEach(
      (/** @type {number} */ count, /** @type {number} */ at) => (durations[at] += count),
    );
  }
  const ended = (states.COMPLETE ?? 0) + (states.ERROR ?? 0);
  const running = ORDER.slice(4).reduce((sum, state) => sum + (states[state] ?? 0), 0);
  const all = durations.reduce((sum, count) => sum + count, 0);
  let from = 0;
  const classes = CLASSES.map(([until, name]) => {
    const count = durations.slice(from, Number(until)).reduce((sum, each) => sum + each, 0);
    from = Number(until);
    return { name: String(name), count };
  });
  return html`
    <div class="figures">
      <${Figure} value=${number(running)} name="running" />
      <${Figure}
        value=${number(states.SUSPENDED ?? 0)}
        name="suspended"
        tone=${states.SUSPENDED ? "warn" : ""}
      />
      <${Figure}
        value=${
          ended ? `${(((states.COMPLETE ?? 0) / ended) * 100).toFixed(ended > 99 ? 1 : 0)} %` : "—"
        }
        name="completed"
      />
      ${all > 0 && html`
        <table class="classes">
          <caption class="hidden">How long they took</caption>
          <tbody>
            ${classes.map(({ name, count }) => html`
              <tr key=${name}>
                <th>${name}</th>
                <td>
                  <i style=${{ width: `${(count / all) * 100}%` }}></i>
                </td>
                <td>${number(count)}</td>
              </tr>
            `)}
          </tbody>
        </table>
      `}
    </div>
  `;
}
