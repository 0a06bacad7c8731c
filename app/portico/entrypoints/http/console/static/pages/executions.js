// @ts-check
/** The list of executions: live, filtered, with a histogram of its time range. */
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { json } from "../parts/api.js";
import { Table } from "../parts/execution_rows.js";
import { Filters } from "../parts/filters.js";
import { RANGES, Histogram } from "../parts/histogram.js";
import { Icon } from "../parts/icons.js";
import { executions, keep, removed, status } from "../parts/live.js";
import { go, link, query, STATES_ENDED } from "../parts/route.js";
import {
  Button,
  Empty,
  Heading,
  Loaded,
  More,
  example,
  useLoaded,
  useNow,
  useObserved,
} from "../parts/ui.js";

const PAGE = 100;
const MOST = 1000;
const MOST_SELECTED = 100;
/** Least height of a row in pixels. Rows far below the window are not drawn. */
const ROW = 46;
const EXAMPLE = example("POST", "execute", { messages: [{ role: "user", content: "Roll two dice" }] });

/**
 * Return the query of the API for the filters of a place.
 * @param {URLSearchParams} given
 * @param {string | null} since
 */
function apiQuery(given, since) {
  const found = given.get("q") ?? "";
  const metadata = found.match(/^(metadata\.[^=\s]+)=(.*)$/);
  const names = ["state", "mode", "agent", "model", "code", "session_id", "origin"];
  return {
    ...Object.fromEntries(names.map((name) => [name, given.get(name)])),
    ...(metadata ? { [metadata[1]]: metadata[2] } : { q: found }),
    since,
    view: "summary",
    limit: PAGE,
  };
}

/** @typedef {import("../parts/api.js").Schemas["ExecutionSummary"]} Row */

/**
 * Return whether a row of the live list passes the filters.
 * @param {Row} row
 * @param {ReturnType<typeof apiQuery>} filter
 */
function passes(row, filter) {
  const values = /** @type {Record<string, any>} */ (filter);
  if (Object.keys(values).some((name) => name.startsWith("metadata."))) return false;
  if (values.state && !values.state.split(",").includes(row.state)) return false;
  if (values.model && row.model !== values.model && row.provider !== values.model) return false;
  if (values.code && row.last_error?.code !== values.code) return false;
  if (values.origin && row.origin?.request_id !== values.origin) return false;
  if (
    values.q &&
    !row.request_id.startsWith(values.q) &&
    !(row.session_id ?? "").startsWith(values.q)
  )
    return false;
  if (values.since && row.created_at < values.since) return false;
  const { mode, agent, session_id } = row;
  return Object.entries({ mode, agent, session_id }).every(
    ([name, value]) => !values[name] || value === values[name],
  );
}

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Executions({ place }) {
  const range = RANGES.find(({ name }) => name === place.query.get("range")) ?? RANGES[1];
  const filterText = place.query.toString();
  const since = useMemo(
    () => (range.ms ? new Date(Date.now() - range.ms).toISOString() : null),
    [range.name, filterText],
  );
  const filter = useMemo(() => apiQuery(place.query, since), [filterText, since]);
  const [pages, setPages] = useState({
    rows: /** @type {any[]} */ ([]),
    next: /** @type {string | null} */ (null),
  });
  const [seen, setSeen] = useState(/** @type {Set<string>} */ (new Set()));
  const [selected, select] = useState(/** @type {Set<string>} */ (new Set()));
  const [replays, setReplays] = useState(/** @type {Record<string, string>} */ ({}));
  const live = useObserved(executions);
  const gone = useObserved(removed);
  const now = useNow(1000);
  const connection = useObserved(status).name;
  const first = useLoaded(
    (signal) => json(`executions${query(filter)}`, { signal }),
    [filterText, connection === "live"],
  );
  const byMetadata = Object.keys(filter).some((name) => name.startsWith("metadata."));
  const scrolled = useScrolled();

  useEffect(() => {
    if (!byMetadata) return undefined;
    const timer = setInterval(() => !document.hidden && first.again(), 5000);
    return () => clearInterval(timer);
  }, [byMetadata]);
  useEffect(() => setPages({ rows: [], next: first.value?.next ?? null }), [first.value]);

  const rows = useMemo(() => {
    const merged = new Map();
    for (const row of [...(first.value?.data ?? []), ...pages.rows]) keep(merged, row);
    for (const row of live.values())
      if (merged.has(row.request_id) || passes(row, filter)) keep(merged, row);
    const found = [...merged.values()].filter(
      (row) => !gone.has(row.request_id) && (byMetadata || passes(row, filter)),
    );
    return found.sort((a, b) => (a.created_at < b.created_at ? 1 : -1)).slice(0, MOST);
  }, [first.value, pages, live, gone, filter]);
  const fresh = scrolled ? rows.filter((row) => !seen.has(row.request_id)) : [];
  useEffect(() => {
    if (!scrolled) setSeen(new Set(rows.map((row) => row.request_id)));
  }, [scrolled, rows]);
  const shown = fresh.length ? rows.filter((row) => seen.has(row.request_id)) : rows;

  const more = async () => {
    const page = await json(`executions${query({ ...filter, after: pages.next })}`);
    setSeen(
      (old) => new Set([...old, ...page.data.map((/** @type {any} */ row) => row.request_id)]),
    );
    setPages({ rows: [...pages.rows, ...page.data], next: page.next });
  };
  const toggle = (/** @type {string} */ id) => {
    select((old) => {
      const next = new Set(old);
      if (!next.delete(id) && next.size < MOST_SELECTED) next.add(id);
      return next;
    });
  };
  const marked = [...selected];
  return html`
    <div class="page">
      <header class="top">
        <${Heading}>Executions<//>
        <span class="live-label">
          ${connection === "live" && html`<i class="dot" aria-hidden="true"></i>live`}
        </span>
        <span class="grow"></span>
        ${selected.size > 0 && html`
          <${Button}
            icon="replay"
            hotkey="R"
            data-hotkey="r"
            onClick=${async () => {
              const { replayAll } = await import("../parts/replays.js");
              await replayAll(marked.filter((id) => ended(rows, id)), setReplays);
            }}
            off=${!marked.some((id) => ended(rows, id))}
            reason="None of them has ended">
            Replay ${selected.size}
          <//>
        `}
        <${Button}
          icon="compare"
          hotkey="C"
          data-hotkey="c"
          off=${selected.size !== 2}
          reason="Select two executions"
          onClick=${() => go(link(["compare", ...marked.reverse()]))}>
          Compare
        <//>
        <a class="button primary" href="#/try">
          <${Icon} name="try" />
          <span>Try</span>
        </a>
      </header>
      <${Histogram} range=${range} filter=${filter} connection=${connection} />
      <${Filters} place=${place} range=${range} />
      <${Loaded} of=${first}>
        ${() =>
          rows.length === 0 ? (
            place.query.size ? html`
              <${Empty} title="Nothing passes these filters">
                <a href="#/executions">Show the last 24 hours</a> or${" "}
                <a href="#/executions?range=all">all</a>
              <//>
            ` : html`
              <${Empty} title="No execution yet" command=${EXAMPLE}>
                Make one:
              <//>
            `
          ) : html`
              ${fresh.length > 0 && html`
                <button class="button primary fresh" onClick=${() => scrollTo(0, 0)}>
                  ${fresh.length} new
                </button>
              `}
              <${Table}
                rows=${shown.slice(0, PAGE + scrolled)}
                now=${now}
                selected=${selected}
                toggle=${toggle}
                replays=${replays}
              />
              <${More} more=${pages.next && rows.length < MOST ? more : undefined} />
          `
        }
      <//>
    </div>
  `;
}

/** @param {any[]} rows @param {string} id */
const ended = (rows, id) => STATES_ENDED.has(rows.find((row) => row.request_id === id)?.state);

/** Return how far the page is scrolled down, in steps of ten rows. */
function useScrolled() {
  const [top, set] = useState(0);
  useEffect(() => {
    const look = () => set(Math.ceil((scrollY - 240) / ROW / 10) * 10);
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  return Math.max(top, 0);
}
