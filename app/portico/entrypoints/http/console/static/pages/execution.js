// @ts-check
/** One execution: a timeline that grows while it runs, and all that is known about each step. */
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { Actions } from "../parts/actions.js";
import { frames, json, once, send } from "../parts/api.js";
import { Details } from "../parts/details.js";
import { newFold, push } from "../parts/fold.js";
import { Facts } from "../parts/frame.js";
import { follow } from "../parts/live.js";
import { Machine } from "../parts/machine.js";
import { say } from "../parts/person.js";
import { link, refine, STATES_ENDED } from "../parts/route.js";
import { quoteOf } from "../parts/started.js";
import { TABS, tabsOf } from "../parts/tabs.js";
import { fullTime, money, number, span, visible } from "../parts/text.js";
import { Timeline } from "../parts/timeline.js";
import { Heading, Loaded, Loading, useLoaded, useNow } from "../parts/ui.js";
import { EventLine } from "../parts/events.js";

/**
 * Follow the events of an execution from the last that is known, and fold them.
 * @param {string} id @param {import("../parts/fold.js").Fold | null} fold
 */
export function useEvents(id, fold) {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    if (!fold) return undefined;
    let due = 0;
    const changed = () => {
      if (due) return;
      due = window.setTimeout(
        () => {
          due = 0;
          setVersion((n) => n + 1);
        },
        fold.events.length > 2000 ? 250 : 60,
      );
    };
    const stop = follow(async (signal, live) => {
      if (fold.ended) return true;
      const response = await send(`executions/${encodeURIComponent(id)}/events`, {
        signal,
        headers: {
          Accept: "text/event-stream",
          ...(fold.last ? { "Last-Event-ID": String(fold.last) } : {}),
        },
      });
      if (response.status === 204) {
        fold.ended = true;
        changed();
        return true;
      }
      live();
      for await (const batch of frames(response)) {
        for (const { data } of batch) push(fold, JSON.parse(data));
        changed();
      }
      return fold.ended;
    });
    return () => {
      stop();
      clearTimeout(due);
    };
  }, [fold]);
  return version;
}

/**
 * Return the keys of tool calls by their rows: the calls of the record, in the order in which they began.
 * @param {import("../parts/fold.js").Fold} fold
 * @param {any[]} steps
 */
function callKeys(fold, steps) {
  const calls = steps.filter((step) => step.kind === "tool_call");
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const row of fold.rows) {
    if (row.kind !== "call") continue;
    const at = calls.findIndex((step) => step.started_at === row.started?.timestamp);
    if (at >= 0) found.set(row.id, calls.splice(at, 1)[0].key);
  }
  return found;
}

/** Scroll the bar of the tabs so that this one is seen. @param {HTMLElement | null} tab */
const show = (tab) => {
  const bar = tab?.parentElement;
  if (!tab || !bar) return;
  const [own, whole] = [tab.getBoundingClientRect(), bar.getBoundingClientRect()];
  if (own.right > whole.right) bar.scrollLeft += own.left - whole.left - 16;
};

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Execution({ place }) {
  const id = place.args[0];
  const path = `executions/${encodeURIComponent(id)}`;
  const view = useLoaded((signal) => json(path, { signal }), [id]);
  const mode = view.value?.mode;
  const fold = useMemo(() => (mode ? newFold(mode) : null), [id, mode]);
  const version = useEvents(id, fold);
  const state = fold?.events.length ? fold.state : view.value?.state;
  const calls = fold?.rows.filter((row) => row.kind === "call" && row.end !== null).length ?? 0;
  const steps = useLoaded(
    (signal) =>
      mode ? json(`${path}/steps?view=summary`, { signal }) : Promise.resolve({ data: [] }),
    [mode, calls, STATES_ENDED.has(state)],
  );
  const was = useRef(state);
  useEffect(() => {
    if (was.current && was.current !== state) {
      view.again();
      if (STATES_ENDED.has(state)) say(`The execution has ended: ${state}`);
    }
    was.current = state;
  }, [state]);
  useEffect(() => {
    if (fold?.approvals) view.again();
  }, [fold?.approvals]);
  return html`
    <${Loaded} alone of=${{ ...view, error: view.value ? null : view.error }}>
      ${(/** @type {any} */ value) =>
        fold && html`
          <${Shown}
            place=${place}
            view=${value}
            fold=${fold}
            version=${version}
            state=${state}
            steps=${steps.value?.data ?? []}
            reload=${view.again}
          />
        `
      }
    <//>
  `;
}

/** @param {any} props */
function Shown({ place, view, fold, version, state, steps, reload }) {
  const runs = !STATES_ENDED.has(state);
  const now = useNow(runs ? 250 : 60000, runs);
  const [machines, setMachines] = useState(/** @type {any[]} */ ([]));
  const [equal, setEqual] = useState(false);
  const [difference, setDifference] = useState("");
  useEffect(
    () =>
      void once("machines").then(
        (all) => setMachines(all.data),
        () => {},
      ),
    [],
  );
  const tab = TABS[place.args[1]] ? place.args[1] : "timeline";
  const keys = useMemo(() => callKeys(fold, steps), [steps, version]);
  const keyOf = (/** @type {any} */ row) => keys.get(row.id) ?? row.step ?? row.id;
  const step = place.query.get("step") ?? "";
  const rows = fold.rows.filter((/** @type {any} */ row) => row.kind !== "group");
  const row =
    rows.find((/** @type {any} */ each) => keyOf(each) === step || each.id === step) ?? null;
  const choose = (/** @type {any} */ chosen) =>
    refine(place, { step: chosen ? keyOf(chosen) : "" });
  useEffect(() => {
    const move = (/** @type {any} */ event) => {
      const at = rows.indexOf(row);
      const next = rows[at < 0 ? 0 : Math.min(Math.max(at + event.detail, 0), rows.length - 1)];
      if (next) choose(next);
    };
    addEventListener("neighbour", move);
    return () => removeEventListener("neighbour", move);
  }, [version, step]);
  const machine = machines.find((each) => each.name === `lifecycle.${view.mode}`);
  const Tab = TABS[tab].view;
  return html`
    <div class="execution">
      <header>
        <p class="crumbs">
          <a href="#/executions">Executions</a>
          <span>/</span>
          <code>${view.request_id}</code>
          ${view.session_id && html`
            <span>
              · session <a href=${link(["sessions", view.session_id])}>${visible(view.session_id)}</a>
            </span>
          `}
          ${view.origin && html`
            <span>
              · fork of${" "}
              <a href=${link(["executions", view.origin.request_id])}>${view.origin.request_id}</a>${" "}
              from ${view.origin.from_step === "end" ? "its end" : `step ${view.origin.from_step}`}
            </span>
          `}
        </p>
        <div class="top">
          <${Heading}>${visible(view.title || view.request_id)}<//>
          <span class=${`pill state ${state}`}>
            <i class="shape" aria-hidden="true"></i>
            ${state}
          </span>
          <span class="grow"></span>
          <${Actions} view=${view} state=${state} place=${place} mark=${setDifference} reload=${reload} />
        </div>
        <${Figures} view=${view} fold=${fold} now=${now} state=${state} />
        ${difference && html`
          <p role="status" class=${difference === "identical" ? "good" : "bad"}>
            ${difference === "identical" ? (
              "Replayed: identical"
            ) : html`
                Replayed: the first difference is at step${" "}
                <a
                  data-first-difference
                  href=${link(["executions", view.request_id], { step: difference })}>
                  ${difference}
                </a>
            `}
          </p>
        `}
      </header>
      <div class="overview">
        ${machine ? html`
          <${Machine} machine=${machine} now=${state} taken=${fold.taken} title="The lifecycle" />
        ` : html`
          <div class="machine"></div>
        `}
        <${Bound} view=${view} fold=${fold} />
      </div>
      <div class=${`split${row ? " chosen" : ""}`}>
        <div class="left">
          <nav class="tabs" aria-label="Parts of the execution">
            ${tabsOf(fold, view).map(([name, count]) => html`
              <a
                key=${name}
                href=${link(
                  ["executions", view.request_id, ...(name === "timeline" ? [] : [name])],
                  { step },
                )}
                ref=${name === tab ? show : undefined}
                aria-current=${name === tab ? "page" : undefined}>
                ${TABS[name].title}
                ${count > 0 && html`${" "}<small>${count}</small>`}
              </a>
            `)}
            ${tab === "timeline" && html`
              <span class="segmented" role="group" aria-label="Widths">
                ${[
                  ["Time", false],
                  ["Steps", true],
                ].map(([title, value]) => html`
                  <button
                    key=${title}
                    aria-pressed=${equal === value}
                    onClick=${() => setEqual(Boolean(value))}>
                    ${title}
                  </button>
                `)}
              </span>
            `}
          </nav>
          ${tab === "timeline" && !fold.start ? html`
            <${Loading} />
          ` : tab === "timeline" ? html`
              <${Timeline}
                fold=${fold}
                now=${now}
                equal=${equal}
                chosen=${step}
                choose=${choose}
                keyOf=${keyOf}
                version=${version}
              />
              <section class="latest">
                <h2 class="sub">Latest events</h2>
                ${fold.events
                  .slice(-4)
                  .reverse()
                  .map((/** @type {any} */ event) => html`
                    <${EventLine} key=${event.sequence_number} event=${event} now=${now} />
                  `)}
              </section>
          ` : html`
            <div class="panel">
              <${Tab}
                view=${view}
                fold=${fold}
                place=${place}
                version=${version}
                machines=${machines}
                steps=${steps}
                now=${now}
              />
            </div>
          `}
        </div>
        <aside class="details" aria-label="Details">
          <div class="inner">
            <${Details}
              row=${row}
              view=${view}
              fold=${fold}
              state=${state}
              steps=${steps}
              stepKey=${row ? keyOf(row) : ""}
              close=${() => choose(null)}
              version=${version}
              now=${now}
            />
          </div>
        </aside>
      </div>
    </div>
  `;
}

/** Tokens and cost of what this execution itself ran. @param {any} fold @param {any} view */
export function used(fold, view) {
  const from = view.origin && typeof view.origin.from_step === "number" ? view.origin.from_step : 0;
  const ends = fold.events.filter(
    (/** @type {any} */ event) =>
      event.type === "inference.end" && !(Number(event.segment.split("/")[0]) < from),
  );
  return {
    tokens: ends.reduce(
      (/** @type {number} */ sum, /** @type {any} */ event) =>
        sum + event.tokens_in + event.tokens_out,
      0,
    ),
    cost: ends.reduce(
      (/** @type {number} */ sum, /** @type {any} */ event) => sum + (event.cost ?? 0),
      0,
    ),
    priced: ends.some(
      (/** @type {any} */ event) => event.cost !== null && event.cost !== undefined,
    ),
  };
}

/** @param {any} props */
function Figures({ view, fold, now, state }) {
  const { tokens, cost, priced } = used(fold, { origin: null });
  const waited = fold.rows
    .filter((/** @type {any} */ row) => row.kind === "suspension")
    .reduce(
      (/** @type {number} */ sum, /** @type {any} */ row) => sum + (row.end ?? now) - row.start,
      0,
    );
  const whole = fold.start ? (STATES_ENDED.has(state) ? fold.latest : now) - fold.start : null;
  const worked =
    whole === null ? (
      "—"
    ) : html`
        ${span(Math.max(whole - waited, 0))}
        ${waited > 1 ? html`<small>, waited ${span(waited)}</small>` : ""}
    `;
  const started = view.started_at ?? view.created_at;
  return html`
    <${Facts}
      pairs=${[
        ["Mode", view.mode],
        ["Agent", view.agent && visible(view.agent)],
        ["User", view.user && visible(view.user)],
        ["Started", html`<time datetime=${started}>${fullTime(started)}</time>`],
        ["Worked", worked],
        ["Tokens", number(tokens)],
        [
          "Cost",
          priced ? money({ amount: cost, currency: view.response?.cost?.currency ?? "USD" }) : null,
        ],
        ["Events", number(fold.last || view.events)],
        ["Kept", view.response?.metadata?.durability],
      ]}
    />
  `;
}

/** The quote of what this tab started, against what was used. @param {any} props */
function Bound({ view, fold }) {
  const quote = quoteOf(view.request_id);
  if (!quote) return null;
  const { tokens, cost } = used(fold, view);
  const meter = (/** @type {number} */ share) => html`
    <div class="meter">
      <i style=${{ width: `${Math.min(share * 100, 100)}%` }}></i>
    </div>
  `;
  return html`
    <div class="bound">
      <div>
        Used ${number(tokens)} of at most <b>${number(quote.tokens)}</b> tokens
        ${meter(tokens / Math.max(quote.tokens, 1))}
      </div>
      ${quote.cost && html`
        <div>
          Used ${money({ ...quote.cost, amount: cost })} of at most <b>${money(quote.cost)}</b>
          ${meter(cost / Math.max(quote.cost.amount, 1e-9))}
        </div>
      `}
    </div>
  `;
}
