// @ts-check
/** Two executions side by side, step by step, with the first difference. */
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { json } from "../parts/api.js";
import { alignedSteps, jsonDifference, wordDifference } from "../parts/difference.js";
import { newFold } from "../parts/fold.js";
import { withoutData } from "../parts/frame.js";
import { Icon } from "../parts/icons.js";
import { link, STATES_ENDED } from "../parts/route.js";
import { asText, cut, money, number, span, visible } from "../parts/text.js";
import { Heading, Loaded, State, useLoaded } from "../parts/ui.js";
import { useEvents, used } from "./execution.js";

/** Kinds that say what was asked and answered; the others are bookkeeping of the same. */
const COMPARED = new Set([
  "inference",
  "attempt",
  "tool_call",
  "node",
  "agent",
  "answer",
  "validation",
  "retrieval",
  "plan",
  "decision",
]);
const MOST = 65536;

/** One side: its view, its events while it runs, and its steps. @param {string} id */
function useSide(id) {
  const path = `executions/${encodeURIComponent(id)}`;
  const view = useLoaded((signal) => json(path, { signal }), [id]);
  const mode = view.value?.mode;
  const fold = useMemo(() => (mode ? newFold(mode) : null), [id, mode]);
  useEvents(id, fold);
  const state = fold?.events.length ? fold.state : view.value?.state;
  const ends = fold?.rows.filter((row) => row.end !== null).length ?? 0;
  const steps = useLoaded(
    (signal) =>
      mode ? json(`${path}/steps?view=summary`, { signal }) : Promise.resolve(undefined),
    [mode, ends, state],
  );
  const was = useRef(state);
  useEffect(() => {
    if (was.current !== state && STATES_ENDED.has(state)) view.again();
    was.current = state;
  }, [state]);
  return { id, view, fold, state, steps };
}

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Comparison({ place }) {
  const [a, b] = [useSide(place.args[0] ?? ""), useSide(place.args[1] ?? "")];
  const failed = a.view.value ? b.view : a.view;
  const all = useMemo(
    () =>
      a.steps.value && b.steps.value
        ? alignedSteps(ofKind(a.steps.value.data), ofKind(b.steps.value.data))
        : null,
    [a.steps.value, b.steps.value],
  );
  const ended = STATES_ENDED.has(a.state) && STATES_ENDED.has(b.state);
  const redacted = all?.some(({ a: one }) => one && !one.fingerprint);
  const rows = useRedacted(a.id, b.id, all, redacted) ?? all ?? [];
  const growing = (/** @type {any} */ row) => !ended && (!row.a || !row.b);
  const first = rows.findIndex((/** @type {any} */ row) => !row.same && !growing(row));
  const loaded = a.view.value && b.view.value && all;
  const none = ended ? "No difference" : "No difference so far";
  return html`
    <div class="page compare">
      <p class="crumbs">
        <a href="#/executions">Executions</a>
        <span>/</span>
        <a href=${link(["executions", a.id])}>
          <code>${a.id}</code>
        </a>
        <span>/ Compare</span>
      </p>
      <header class="top">
        <${Heading}>
          ${!loaded ? "Compare" : first < 0 ? none : `First difference at step ${keyOf(rows[first])}`}
        <//>
      </header>
      ${loaded ? html`
        <${Sides} a=${a} b=${b} rows=${rows} first=${first} growing=${growing} redacted=${redacted} />
      ` : html`
        <${Loaded} of=${{ ...failed, value: undefined }}>${() => null}<//>
      `}
    </div>
  `;
}

/** @param {any[]} steps */
const ofKind = (steps) => steps.filter((step) => COMPARED.has(step.kind));

/** @param {any} props */
function Sides({ a, b, rows, first, growing, redacted }) {
  const origin = b.view.value.origin?.request_id === a.id ? b.view.value.origin.from_step : null;
  const inherited = (/** @type {any} */ row) =>
    origin === "end" || (typeof origin === "number" && Number(row.key.split("/")[0]) < origin);
  return html`
      <div class="sides">
        <${Side} name="A" side=${a} />
        <${Side}
          name="B"
          side=${b}
          other=${a}
          title=${
            origin !== null
              ? `fork of A from ${origin === "end" ? "its end" : `step ${origin}`}`
              : ""
          }
        />
      </div>
      ${redacted && html`
        <p class="muted small">
          Without the right to the full history, texts are compared as they are redacted.
        </p>
      `}
      <div class="comparison" role="table" aria-label="Steps">
        <div class="pair head" role="row">
          <span role="columnheader">A</span>
          <span role="columnheader">step</span>
          <span role="columnheader">B</span>
        </div>
        ${rows.map((/** @type {any} */ row, /** @type {number} */ at) => html`
          <${Pair}
            key=${`${(row.a ?? row.b).kind} ${row.key}`}
            row=${row}
            first=${at === first}
            inherited=${inherited(row)}
            growing=${growing(row)}
            ids=${[a.id, b.id]}
          />
        `)}
      </div>
  `;
}

/**
 * Without fingerprints the whole texts are compared.
 * @param {string} a
 * @param {string} b
 * @param {any[] | null} all
 * @param {boolean | undefined} wanted
 */
function useRedacted(a, b, all, wanted) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  useEffect(() => {
    if (!wanted) return;
    Promise.all([a, b].map((id) => json(`executions/${encodeURIComponent(id)}/steps`))).then(
      ([one, two]) => setFound(alignedSteps(ofKind(one.data), ofKind(two.data))),
      () => {},
    );
  }, [a, b, all, wanted]);
  return found;
}

/** Return the number of a step, else its key. @param {any} row */
const keyOf = (row) => (row.a ?? row.b).from_step ?? row.key;

/** @param {any} props */
function Side({ name, side, other, title = "" }) {
  const view = side.view.value;
  const [own, against] = [
    used(side.fold, { origin: null }),
    other ? used(other.fold, { origin: null }) : null,
  ];
  const worked = (/** @type {any} */ one) =>
    one.fold.rows
      .filter((/** @type {any} */ row) => ["attempt", "call", "node"].includes(row.kind))
      .reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + (row.took ?? 0), 0);
  const change = (/** @type {number} */ now, /** @type {number | null} */ before) =>
    before && now !== before ? html`
      <span class=${now < before ? "good" : "bad"}>
        ${" "}${now < before ? "−" : "+"}
        ${Math.round(Math.abs(now / before - 1) * 100)} %
      </span>
    ` : "";
  return html`
    <section class="card">
      <h2>
        <i class="avatar" aria-hidden="true">
          ${name}
        </i>${" "}
        <a href=${link(["executions", side.id])}>${title || visible(view.title || side.id)}</a>${" "}
        <${State} state=${side.state} />
      </h2>
      <dl class="facts">
        <div>
          <dd>${visible(view.model ?? "")}</dd>
        </div>
        <div>
          <dt>Tokens</dt>
          <dd>
            ${number(own.tokens)}
            ${change(own.tokens, against?.tokens ?? null)}
          </dd>
        </div>
        ${own.priced && html`
          <div>
            <dt>Cost</dt>
            <dd>
              ${money({ amount: own.cost, currency: view.response?.cost?.currency ?? "USD" })}
              ${change(own.cost, against?.cost ?? null)}
            </dd>
          </div>
        `}
        <div>
          <dt>Worked</dt>
          <dd>
            ${span(worked(side))}
            ${change(worked(side), other ? worked(other) : null)}
          </dd>
        </div>
      </dl>
    </section>
  `;
}

/** @param {any} props */
function Pair({ row, first, inherited, growing, ids }) {
  const [open, setOpen] = useState(first);
  useEffect(() => {
    if (first) setOpen(true);
  }, [first]);
  const full = useLoaded(
    async (signal) => {
      if (!open) return null;
      const load = async (/** @type {string} */ id, /** @type {any} */ step) =>
        step &&
        ((
          await json(
            `executions/${encodeURIComponent(id)}/steps?key=${encodeURIComponent(step.key)}`,
            { signal },
          )
        ).data[0] ??
          null);
      return Promise.all([load(ids[0], row.a), load(ids[1], row.b)]);
    },
    [open, row.a?.digest, row.b?.digest],
  );
  const [a, b] = full.value ?? [null, null];
  const edited = row.b?.edited || row.a?.edited;
  const word = growing
    ? "not yet"
    : edited
      ? "edited, did not run"
      : !row.same
        ? row.cause
        : inherited
          ? row.a?.kind === "tool_call"
            ? "inherited, did not run again"
            : "inherited"
          : "the same";
  return html`
    <div
      role="row"
      class=${`pair${first ? " first" : ""}${row.same ? "" : " differs"}`}
      data-step=${row.key}
      data-first-difference=${first ? "" : undefined}>
      <div role="cell">
        <${Cell} step=${row.a} full=${a} other=${b} side=${0} />
      </div>
      <div role="cell" class="middle">
        <b title=${row.key}>${keyOf(row)}</b>
        <span>${word}</span>
        <button class="link" aria-expanded=${open} onClick=${() => setOpen(!open)}>
          ${open ? "Fold" : "Show"}
          <span class="hidden"> step ${row.key}</span>
        </button>
      </div>
      <div role="cell">
        <${Cell} step=${row.b} full=${b} other=${a} side=${1} />
      </div>
    </div>
  `;
}

/** @type {Record<string, string>} */
const KINDS = { attempt: "Inference", inference: "Tools and engines", tool_call: "Call" };

/** @param {any} props */
function Cell({ step, full, other, side }) {
  if (!step) return html`<span class="muted">—</span>`;
  const name = step.tool_name ?? KINDS[step.kind] ?? step.kind;
  return html`
      <p class="name">
        <${Icon} name=${step.kind === "tool_call" ? "tools" : "inference"} />
        <b>${visible(name)}</b>${" "}
        <span class="muted">
          ${visible(full?.outcome?.model ?? step.step_name ?? step.provider ?? "")}
        </span>
      </p>
      ${full && html`
          <${Changes}
            title="Asked"
            value=${essence(full.request)}
            other=${other && essence(other.request)}
            side=${side}
          />
          <${Changes}
            title="Answered"
            value=${essence(full.outcome)}
            other=${other && essence(other.outcome)}
            side=${side}
          />
      `}
  `;
}

/** Return the text of what was asked or answered, if that is all there is. @param {any} value */
function essence(value) {
  if (
    value &&
    typeof value === "object" &&
    typeof value.content === "string" &&
    !value.error &&
    !value.tool_calls?.length
  )
    return value.content;
  return value;
}

/** @param {any} props */
function Changes({ title, value, other, side }) {
  if (value === null || value === undefined) return null;
  const [one, two] = side ? [other, value] : [value, other];
  if (typeof value === "string" && typeof other === "string") {
    const pieces = wordDifference(clean(one), clean(two))[side];
    return html`
      <div class="text" data-text>
        ${pieces.map((piece, at) =>
          piece.changed ? html`
            <mark key=${at} class=${side ? "added" : "gone"}>
              ${visible(piece.text)}
            </mark>
          ` : (
            visible(piece.text)
          ),
        )}
      </div>
    `;
  }
  const paths = other === null || other === undefined ? [] : jsonDifference(one, two);
  if (other !== null && other !== undefined && paths.length === 0)
    return html`<p class="muted small">${title}: the same</p>`;
  if (paths.length && typeof value === "object")
    return html`
      <dl class="paths">
        <dt>${title}</dt>
        ${paths.slice(0, 40).map((each) => html`
          <dd key=${each.path}>
            <code>${visible(each.path)}</code>${" "}
            <mark class=${side ? "added" : "gone"} data-text>
              ${visible(cut(asText((side ? each.b : each.a) ?? "—"), 2000))}
            </mark>
          </dd>
        `)}
      </dl>
    `;
  return html`
    <div class="text mono" data-text>
      ${visible(clean(asText(value)))}
    </div>
  `;
}

/** @param {string} text */
const clean = (text) => cut(withoutData(text), MOST);
