// @ts-check
/** What runs now: figures, running executions, engines, open questions and the last errors. */
import { html, useEffect } from "../vendor/preact.js";
import { json, once } from "../parts/api.js";
import { ErrorCode } from "../parts/frame.js";
import { Bars, bars } from "../parts/histogram.js";
import { executions, status, suspensions } from "../parts/live.js";
import { missing, useMe } from "../parts/person.js";
import { link, query, STATES_ENDED } from "../parts/route.js";
import { number, span, visible, words } from "../parts/text.js";
import { Wave } from "../parts/wave.js";
import {
  Age,
  Figure,
  Heading,
  Loaded,
  State,
  useLoaded,
  useNow,
  useObserved,
} from "../parts/ui.js";
import { asked } from "../parts/execution_rows.js";

const HOUR = 3600000;
const MOST = 12;

export default function Now() {
  const rows = useObserved(executions);
  const open = useObserved(suspensions);
  const connection = useObserved(status).name;
  const now = useNow(1000);
  const person = useMe();
  const since = new Date(Date.now() - HOUR).toISOString();
  const stats = useLoaded((signal) => json("stats", { signal }), [connection === "live"]);
  const errors = useLoaded(
    (signal) =>
      json(`executions${query({ state: "ERROR", view: "summary", limit: 100, since })}`, {
        signal,
      }),
    [connection === "live"],
  );
  const engines = useLoaded(
    (signal) =>
      json(`engines${missing(person, "read_metrics") || !person ? "" : "?view=health"}`, {
        signal,
      }),
    [person],
  );
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) for (const each of [stats, errors, engines]) each.again();
    }, 10000);
    return () => clearInterval(timer);
  }, []);
  const all = [...rows.values()];
  const count = (/** @type {(row: any) => boolean} */ test) => all.filter(test).length;
  const running = all
    .filter((row) => !STATES_ENDED.has(row.state) && row.state !== "SUSPENDED")
    .sort((a, b) => (a.created_at < b.created_at ? -1 : 1));
  const hour = stats.value ? bars(stats.value.buckets, Date.now() - HOUR, Date.now(), 60000) : [];
  const lastMinute = hour.at(-2)?.total ?? 0;
  return html`
    <div class="page">
      <header class="top">
        <${Heading}>Now<//>
        <span class="live-label">
          ${connection === "live" && html`
              <i class="dot" aria-hidden="true"></i>live
          `}
        </span>
      </header>
      <section class="card histogram" aria-label="The last hour">
        ${stats.value
          ? html`<${Bars} all=${hour} range=${{ bar: 60000 }} />`
          : html`<div class="bars"></div>`}
        <div class="figures">
          <${Figure}
            value=${number(
              count(
                (row) =>
                  row.state !== "INIT" && !STATES_ENDED.has(row.state) && row.state !== "SUSPENDED",
              ),
            )}
            name="running"
          />
          <${Figure} value=${number(count((row) => row.state === "INIT"))} name="waiting" />
          <${Figure}
            value=${number(count((row) => row.state === "SUSPENDED"))}
            name="suspended"
            tone=${open.size ? "warn" : ""}
          />
          <${Figure} value=${number(lastMinute)} name="in the last minute" />
        </div>
      </section>
      <div class="grid">
        <section class="card">
          <h2>Running</h2>
          ${running.length === 0 ? html`
            <p class="muted">Nothing runs.</p>
          ` : html`
            <table class="list">
              <tbody>
                ${running.slice(0, MOST).map((row) => html`
                  <tr key=${row.request_id} data-request-id=${row.request_id} data-state=${row.state}>
                    <td>
                      <${State} state=${row.state} />
                    </td>
                    <td class="request">
                      <a data-row href=${link(["executions", row.request_id])}>
                        ${visible(row.title || row.request_id)}
                      </a>
                    </td>
                    <td class="n">${span(now - Date.parse(row.started_at ?? row.created_at))}</td>
                  </tr>
                `)}
              </tbody>
            </table>
          `}
          ${running.length > MOST && html`
            <p>
              <a href="#/executions?state=INIT,PLAN,PREPARE,EXECUTE,VALIDATE">
                ${running.length - MOST} more
              </a>
            </p>
          `}
        </section>
        <section class="card">
          <h2>Open questions</h2>
          ${open.size === 0 ? html`
            <p class="muted">None.</p>
          ` : html`
            <table class="list">
              <tbody>
                ${[...open.values()].slice(0, MOST).map((each) => html`
                  <tr key=${`${each.request_id} ${each.suspension_id}`}>
                    <td class="request">
                      <a data-row href="#/questions">
                        ${visible(asked(each))}
                      </a>
                    </td>
                    <td class="n">${each.asked_at && html`<${Age} time=${each.asked_at} now=${now} />`}</td>
                  </tr>
                `)}
              </tbody>
            </table>
          `}
        </section>
        <section class="card">
          <h2>Engines</h2>
          <${Loaded} of=${engines}>
            ${(/** @type {any} */ found) => html`
              <table class="list">
                <tbody>
                  ${found.data.map((/** @type {any} */ each) => html`
                    <tr key=${each.name}>
                      <td>
                        <a href=${link(["engines", each.name])}>${visible(each.name)}</a>
                      </td>
                      <td class=${each.breaker === "closed" ? "good" : "bad"}>
                        ${words(each.breaker)}
                      </td>
                      <td>${each.health && html`<${Wave} health=${each.health} />`}</td>
                      <td class="n">
                        ${each.health &&
                          `${number(each.health.attempts)} attempts, ${number(each.health.failures)} failed`}
                      </td>
                    </tr>
                  `)}
                </tbody>
              </table>
            `}
          <//>
        </section>
        <section class="card">
          <h2>Last errors</h2>
          <${Loaded} of=${errors}>${(/** @type {any} */ page) => html`<${Errors} rows=${page.data} />`}<//>
        </section>
      </div>
    </div>
  `;
}

/** Errors by code, with what to do. @param {{rows: any[]}} props */
function Errors({ rows }) {
  const known = useLoaded(() => once("errors"), []);
  /** @type {Record<string, number>} */
  const counts = {};
  for (const row of rows)
    if (row.last_error) counts[row.last_error.code] = (counts[row.last_error.code] ?? 0) + 1;
  const found = Object.entries(counts).sort((a, b) => b[1] - a[1]);
  if (!found.length) return html`<p class="muted">None in the last hour.</p>`;
  return html`
    <table class="list">
      <tbody>
        ${found.map(([code, count]) => html`
          <tr key=${code}>
            <td>
              <${ErrorCode} code=${code} />
              <br />
              <small>
                ${known.value?.data.find((/** @type {any} */ each) => each.code === code)?.recovery}
              </small>
            </td>
            <td class="n">
              <a href=${link(["executions"], { state: "ERROR", code })}>${number(count)}</a>
            </td>
          </tr>
        `)}
      </tbody>
    </table>
  `;
}
