// @ts-check
/** The list of executions: live, filtered, with a histogram of its time range. */
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { json, once, post, query } from "../parts/api.js";
import { RANGES, Histogram } from "../parts/histogram.js";
import { executions, keep, removed, status } from "../parts/live.js";
import { useMe } from "../parts/person.js";
import { go, link, refine, STATES_ENDED } from "../parts/route.js";
import { contentText, cut, money, number, span, visible, words } from "../parts/text.js";
import { Age, Button, Empty, Heading, Loaded, State, useLoaded, useNow, useObserved } from "../parts/ui.js";
import { Icon } from "../parts/icons.js";

const PAGE = 100;
const MOST = 1000;
const MOST_SELECTED = 100;
const STATES = [["", "State"], ["INIT,PLAN,PREPARE,EXECUTE,VALIDATE,SUSPENDED", "Unfinished"], ["SUSPENDED", "SUSPENDED"], ["COMPLETE", "COMPLETE"], ["ERROR", "ERROR"], ["CANCELLED", "CANCELLED"], ["INIT,PLAN,PREPARE,EXECUTE,VALIDATE,SUSPENDED,COMPLETE,ERROR", "Not cancelled"]];
const MODES = ["chat", "structured", "plan", "redundant", "flow"];
const EXAMPLE = `curl -s ${location.origin}/v1/execute -H 'Content-Type: application/json' \\\n  -d '{"messages": [{"role": "user", "content": "Roll two dice"}]}'`;

/** Return the query of the API for the filters of a place. @param {URLSearchParams} given @param {string | null} since */
function apiQuery(given, since) {
  const found = given.get("q") ?? "";
  const metadata = found.match(/^(metadata\.[^=\s]+)=(.*)$/);
  const names = ["state", "mode", "agent", "model", "code", "session_id", "origin"];
  return {
    ...Object.fromEntries(names.map((name) => [name, given.get(name)])),
    ...(metadata ? { [metadata[1]]: metadata[2] } : { q: found }),
    since, view: "summary", limit: PAGE,
  };
}

/** @typedef {import("../parts/api.js").Schemas["ExecutionSummary"]} Row */

/** Return whether a row of the live list passes the filters. @param {Row} row @param {ReturnType<typeof apiQuery>} filter */
function passes(row, filter) {
  const values = /** @type {Record<string, any>} */ (filter);
  if (Object.keys(values).some((name) => name.startsWith("metadata."))) return false;
  if (values.state && !values.state.split(",").includes(row.state)) return false;
  if (values.model && row.model !== values.model && row.provider !== values.model) return false;
  if (values.code && row.last_error?.code !== values.code) return false;
  if (values.origin && row.origin?.request_id !== values.origin) return false;
  if (values.q && !row.request_id.startsWith(values.q) && !(row.session_id ?? "").startsWith(values.q)) return false;
  if (values.since && row.created_at < values.since) return false;
  const { mode, agent, session_id } = row;
  return Object.entries({ mode, agent, session_id }).every(([name, value]) => !values[name] || value === values[name]);
}

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Executions({ place }) {
  const range = RANGES.find(({ name }) => name === place.query.get("range")) ?? RANGES[1];
  const filterText = place.query.toString();
  const since = useMemo(() => (range.ms ? new Date(Date.now() - range.ms).toISOString() : null), [range.name, filterText]);
  const filter = useMemo(() => apiQuery(place.query, since), [filterText, since]);
  const [pages, setPages] = useState({ rows: /** @type {any[]} */ ([]), next: /** @type {string | null} */ (null) });
  const [seen, setSeen] = useState(/** @type {Set<string>} */ (new Set()));
  const [selected, select] = useState(/** @type {Set<string>} */ (new Set()));
  const [replays, setReplays] = useState(/** @type {Record<string, string>} */ ({}));
  const live = useObserved(executions);
  const gone = useObserved(removed);
  const now = useNow(1000);
  const connection = useObserved(status).name;
  const first = useLoaded((signal) => json(`executions${query(filter)}`, { signal }), [filterText, connection === "live"]);
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
    for (const row of live.values()) if (merged.has(row.request_id) || passes(row, filter)) keep(merged, row);
    const found = [...merged.values()].filter((row) => !gone.has(row.request_id) && (byMetadata || passes(row, filter)));
    return found.sort((a, b) => (a.created_at < b.created_at ? 1 : -1)).slice(0, MOST);
  }, [first.value, pages, live, gone, filter]);
  const fresh = scrolled ? rows.filter((row) => !seen.has(row.request_id)) : [];
  useEffect(() => {
    if (!scrolled) setSeen(new Set(rows.map((row) => row.request_id)));
  }, [scrolled, rows]);
  const shown = fresh.length ? rows.filter((row) => seen.has(row.request_id)) : rows;

  const more = async () => {
    const page = await json(`executions${query({ ...filter, after: pages.next })}`);
    setSeen((old) => new Set([...old, ...page.data.map((/** @type {any} */ row) => row.request_id)]));
    setPages({ rows: [...pages.rows, ...page.data], next: page.next });
  };
  const toggle = (/** @type {string} */ id) => {
    const next = new Set(selected);
    if (!next.delete(id) && next.size < MOST_SELECTED) next.add(id);
    select(next);
  };
  const marked = [...selected];
  return html`<div class="page">
    <header class="top"><${Heading}>Executions<//><span class="live-label">${connection === "live" ? html`<i class="dot" aria-hidden="true"></i>live` : ""}</span><span class="grow"></span>
      ${selected.size > 0 && html`<${Button} icon="replay" hotkey="R" data-hotkey="r" onClick=${() => replayAll(marked.filter((id) => ended(rows, id)), setReplays)} off=${!marked.some((id) => ended(rows, id))} reason="None of them has ended">Replay ${selected.size}<//>`}
      <${Button} icon="compare" hotkey="C" data-hotkey="c" off=${selected.size !== 2} reason="Select two executions" onClick=${() => go(link(["compare", ...marked.reverse()]))}>Compare<//>
      <a class="button primary" href="#/try"><${Icon} name="try" /><span>Try</span></a></header>
    <${Histogram} range=${range} filter=${filter} rows=${live} connection=${connection} />
    <${Filters} place=${place} range=${range} />
    <${Loaded} of=${first}>${() => rows.length === 0
      ? place.query.size ? html`<${Empty} title="Nothing passes these filters"><a href="#/executions">Show the last 24 hours</a> or <a href="#/executions?range=all">all</a><//>` : html`<${Empty} title="No execution yet" command=${EXAMPLE}>Make one:<//>`
      : html`${fresh.length > 0 && html`<button class="button primary fresh" onClick=${() => scrollTo(0, 0)}>${fresh.length} new</button>`}
        <${Table} rows=${shown} now=${now} selected=${selected} toggle=${toggle} replays=${replays} />
        ${pages.next && rows.length < MOST && html`<p class="center"><${Button} onClick=${more}>Show more<//></p>`}`}<//>
  </div>`;
}

/** @param {any[]} rows @param {string} id */
const ended = (rows, id) => STATES_ENDED.has(rows.find((row) => row.request_id === id)?.state);

/** Tell whether the page is scrolled down. */
function useScrolled() {
  const [scrolled, set] = useState(false);
  useEffect(() => {
    const look = () => set(scrollY > 240);
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  return scrolled;
}

/** Replay executions, two at a time. @param {string[]} ids @param {(change: any) => void} set */
async function replayAll(ids, set) {
  const waiting = [...ids];
  const note = (/** @type {string} */ id, /** @type {string} */ text) => set((/** @type {any} */ old) => ({ ...old, [id]: text }));
  waiting.forEach((id) => note(id, "waits"));
  const worker = async () => {
    for (let id = waiting.shift(); id; id = waiting.shift()) {
      note(id, "replays");
      note(id, await post(`executions/${encodeURIComponent(id)}/replay`).then(
        (found) => (found.identical ? "identical" : `differs at ${found.step}${found.field ? `, ${found.field}` : ""}`), (error) => error.code || "failed"));
    }
  };
  await Promise.all([worker(), worker()]);
}

/** @param {{place: import("../parts/route.js").Place, range: any}} props */
function Filters({ place, range }) {
  const [agents, setAgents] = useState([]);
  const [engines, setEngines] = useState([]);
  const search = useRef(/** @type {any} */ (null));
  useEffect(() => {
    once("agents").then((all) => setAgents(all.data.map((/** @type {any} */ each) => each.name)), () => {});
    once("engines").then((all) => setEngines(all.data.map((/** @type {any} */ each) => each.name)), () => {});
  }, []);
  const value = (/** @type {string} */ name) => place.query.get(name) ?? "";
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => refine(place, { [name]: event.target.value.trim() });
  const choice = (/** @type {string} */ name, /** @type {string} */ title, /** @type {string[]} */ options) => {
    const all = [...new Set([...options, value(name)])].filter(Boolean);
    return all.length > 0 && html`<select class=${value(name) ? "chip on" : "chip"} aria-label=${title} value=${value(name)} onChange=${change(name)}>
      <option value="">${title}</option>${all.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>`;
  };
  const rest = ["session_id", "code", "origin"].filter((name) => value(name));
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); refine(place, { q: search.current.value.trim() }); }}>
    <label class="search"><${Icon} name="search" /><span class="hidden">Search</span><input ref=${search} data-hotkey="/" type="search" maxlength="300" placeholder="Id, session or metadata.key=value" value=${value("q")} onChange=${change("q")} /><kbd aria-hidden="true">/</kbd></label>
    <select class="chip on" aria-label="Time range" value=${range.name} onChange=${change("range")}>${RANGES.map(({ name, title }) => html`<option key=${name} value=${name}>${title}</option>`)}</select>
    <select class=${value("state") ? "chip on" : "chip"} aria-label="State" value=${value("state")} onChange=${change("state")}>${STATES.map(([state, title]) => html`<option key=${state} value=${state}>${title}</option>`)}</select>
    ${choice("mode", "Mode", MODES)}${choice("agent", "Agent", agents)}${choice("model", "Engine", engines)}
    ${rest.map((name) => html`<button key=${name} type="button" class="chip on" onClick=${() => refine(place, { [name]: "" })}>${words(name).replace(" id", "")} ${visible(value(name))} <span aria-hidden="true">×</span><span class="hidden">, remove</span></button>`)}
  </form>`;
}

/** @param {{rows: Row[], now: number, selected: Set<string>, toggle: (id: string) => void, replays: Record<string, string>}} props */
function Table({ rows, now, selected, toggle, replays }) {
  const person = useMe();
  const tenant = person?.can?.view_tenant;
  const longest = Math.max(1000, ...rows.filter((row) => row.state !== "SUSPENDED").map((row) => lasted(row, now) ?? 0));
  return html`<table class="list executions"><thead><tr><th><span class="hidden">Select</span></th><th>State</th><th>Started</th>${tenant && html`<th>User</th>`}<th>Request</th><th>Mode</th><th class="rare">Agent</th><th>Model</th><th class="n rare">Steps</th><th class="n">Tokens</th><th class="n">Cost</th><th class="n wide">Duration</th></tr></thead>
    <tbody>${rows.map((row) => html`<${Line} key=${row.request_id} row=${row} now=${STATES_ENDED.has(row.state) && now - Date.parse(row.entered_at) > 90000 ? Math.floor(now / 30000) * 30000 : now} longest=${longest} tenant=${tenant} chosen=${selected.has(row.request_id)} toggle=${toggle} replay=${replays[row.request_id]} />`)}</tbody></table>`;
}

/** @param {Row} row @param {number} now */
const lasted = (row, now) => (row.duration !== null && row.duration !== undefined ? row.duration * 1000 : row.started_at ? (STATES_ENDED.has(row.state) ? Date.parse(row.entered_at) : now) - Date.parse(row.started_at) : null);

/** @param {{row: Row, now: number, longest: number, tenant: boolean, chosen: boolean, toggle: (id: string) => void, replay: string}} props */
function Line({ row, now, longest, tenant, chosen, toggle, replay }) {
  const took = lasted(row, now);
  const place = link(["executions", row.request_id]);
  const share = row.state === "SUSPENDED" ? 1 : Math.sqrt(Math.min((took ?? 0) / longest, 1));
  const open = (/** @type {any} */ event) => !event.target.closest("a, input, label") && !getSelection()?.toString() && go(place);
  return html`<tr data-request-id=${row.request_id} data-state=${row.state} class=${chosen ? "chosen" : ""} onClick=${open}>
    <td class="box"><label><input type="checkbox" checked=${chosen} onChange=${() => toggle(row.request_id)} /><span class="hidden">Select ${row.request_id}</span></label></td>
    <td><${State} state=${row.state} /></td><td class="when"><${Age} time=${row.created_at} now=${now} /></td>${tenant && html`<td data-name="User">${visible(row.user ?? "")}</td>`}
    <td class="request"><a data-row href=${place}>${visible(row.title || row.request_id)}</a><small><code>${row.request_id}</code>${second(row)}${replay && html` · <b class=${replay === "identical" ? "good" : "bad"}>${visible(replay)}</b>`}</small></td>
    <td data-name="Mode">${row.mode}</td><td class="rare" data-name="Agent">${visible(row.agent ?? "—")}</td><td data-name="Model">${visible(row.model ?? "—")}</td>
    <td class="n rare" data-name="Steps">${number(row.total_steps)}</td><td class="n" data-name="Tokens">${number(row.tokens)}</td><td class="n" data-name="Cost">${money(row.cost)}</td>
    <td class="n wide"><span class=${`bar ${row.state}`} aria-hidden="true"><i style=${{ width: `${Math.max(share * 100, 3)}%` }}></i></span>${span(took)}</td></tr>`;
}

/** Return what stands behind the id in the second line. @param {Row} row */
function second(row) {
  const open = row.suspensions?.[0];
  if (open) return html` · <span class="warn">waits for ${open.kind === "approval" ? "approval" : open.kind === "unknown_outcome" ? "a decision" : "an answer"} · ${visible(cut(asked(open), 90))}</span>`;
  if (row.last_error && row.state === "ERROR") return html` · <span class="bad">${row.last_error.code} · ${visible(cut(row.last_error.message, 90))}</span>`;
  if (row.last_error) return html` · recovered from ${words(row.last_error.code)}`;
  return row.last_step ? ` · ${visible(row.last_step)}` : "";
}

/** @param {import("../parts/api.js").Schemas["Suspension"]} suspension */
export function asked(suspension) {
  const { kind, tool_id } = suspension;
  const value = /** @type {any} */ (suspension.value);
  if (kind !== "approval") return `${tool_id}: ${contentText(value?.question ?? value)}`;
  const given = Object.entries(value?.arguments ?? {}).map(([name, each]) => `${name}: ${JSON.stringify(each)}`);
  return `${value?.tool ?? tool_id}(${given.join(", ")})`;
}
