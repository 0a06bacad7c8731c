// @ts-check
/** Usage by day, key, user, agent or model, and what is left of the caller's limits. */
import { html } from "../vendor/preact.js";
import { json } from "../parts/api.js";
import { me, useMe } from "../parts/person.js";
import { query, refine } from "../parts/route.js";
import { money, number, span, visible } from "../parts/text.js";
import { Empty, Figure, Heading, Loaded, useLoaded } from "../parts/ui.js";

const KINDS = ["day", "key", "user", "agent", "model"];
const DAY = 86400000;

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Usage({ place }) {
  const by = KINDS.includes(place.query.get("by") ?? "") ? String(place.query.get("by")) : "day";
  const days = Number(place.query.get("days")) || 30;
  const since = `${new Date(Date.now() - (days - 1) * DAY).toISOString().slice(0, 10)}T00:00:00Z`;
  const found = useLoaded((signal) => json(`usage${query({ by, since })}`, { signal }), [by, days]);
  const limits = useLoaded(
    () =>
      json("me").then((value) => {
        me.set(value);
        return value;
      }),
    [],
  );
  const person = useMe();
  return html`
    <div class="page">
      <header class="top">
        <${Heading}>Usage<//>
        <span class="grow"></span>
        <span class="segmented" role="group" aria-label="By">
          ${KINDS.map((each) => html`
            <button
              key=${each}
              aria-pressed=${each === by}
              onClick=${() => refine(place, { by: each })}>
              ${each}
            </button>
          `)}
        </span>
        <select
          class="chip on"
          aria-label="Time range"
          value=${days}
          onChange=${(/** @type {any} */ event) => refine(place, { days: event.target.value })}>
          ${[1, 7, 30, 90].map((each) => html`
            <option key=${each} value=${each}>
              ${each === 1 ? "Today" : `Last ${each} days`}
            </option>
          `)}
        </select>
      </header>
      ${limits.value && person?.limits.length > 0 && html`
        <section class="card">
          <h2>Your limits</h2>
          ${person.limits.map((/** @type {any} */ each) => html`
            <div key=${each.policy} class="meterbar">
              <span>${visible(each.policy)}</span>
              <span class="track">
                <i
                  style=${{ width: `${(1 - each.remaining / Math.max(each.limit, 1)) * 100}%` }}></i>
              </span>
              <span>
                ${number(each.remaining)} of ${number(each.limit)} left
                ${each.reset_seconds ? `, new in ${span(each.reset_seconds * 1000)}` : ""}
              </span>
            </div>
          `)}
        </section>
      `}
      <${Loaded} of=${found}>
        ${(/** @type {any} */ all) =>
          all.data.length === 0 ? html`
            <${Empty} title="Nothing was used">In these days no execution has ended.<//>
          ` : html`
            <${Chart} rows=${all.data} by=${by} />
          `
        }
      <//>
    </div>
  `;
}

/** @param {{rows: any[], by: string}} props */
function Chart({ rows, by }) {
  const sum = (/** @type {(row: any) => number} */ value) =>
    rows.reduce((total, row) => total + value(row), 0);
  const most = Math.max(1, ...rows.map((row) => row.total_tokens));
  const sorted =
    by === "day"
      ? [...rows].sort((a, b) => (a.day < b.day ? 1 : -1))
      : [...rows].sort((a, b) => b.total_tokens - a.total_tokens);
  return html`
      <section class="card">
        <div class="figures">
          <${Figure} value=${number(sum((row) => row.executions))} name="executions" />
          <${Figure} value=${number(sum((row) => row.input_tokens))} name="tokens in" />
          <${Figure} value=${number(sum((row) => row.output_tokens))} name="tokens out" />
          <${Figure}
            value=${money({
              amount: sum((row) => row.cost.amount),
              currency: rows[0].cost.currency,
            })}
            name="cost"
          />
        </div>
      </section>
      <section class="card">
        <h2>Tokens by ${by}</h2>
        ${sorted.map((row) => html`
          <div key=${row[by]} class="meterbar">
            <span>${visible(row[by] ?? "none")}</span>
            <span class="track" aria-hidden="true">
              <i style=${{ width: `${(row.total_tokens / most) * 100}%` }}></i>
            </span>
            <span>
              ${number(row.total_tokens)} · ${number(row.executions)} executions · ${money(row.cost)}
            </span>
          </div>
        `)}
      </section>
  `;
}
