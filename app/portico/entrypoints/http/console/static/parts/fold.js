// @ts-check
/**
 * Events of one execution, folded into what its page shows. Pure: no clock, no network, no Preact.
 *
 * Rows stand in groups: what is prepared, then each round, plan step, replica or node. The group of an event
 * is its plan
 * step or node, else its replica, else the top-level number of its attempt.
 */

import { add, groupOf } from "./groups.js";

/** @typedef {Record<string, any>} Event */
/**
 * @typedef {object} Row
 * @property {string} id
 * @property {"prepare" | "group" | "attempt" | "call" | "wait" | "suspension" | "retrieval"} kind
 * @property {string} name
 * @property {string} detail
 * @property {number} start Milliseconds.
 * @property {number | null} end
 * @property {string} [step] Key of the step.
 * @property {number | null} [took] Exact milliseconds.
 * @property {number} [first] Time of the first token.
 * @property {string} [failure]
 * @property {string} [note]
 * @property {number | null} [round] `from_step` of a fork from here.
 * @property {boolean} [retracted]
 * @property {Event} [started]
 * @property {Event} [ended]
 * @property {string} [group]
 */

const ENDS = new Set(["execution.completed", "execution.failed", "execution.cancelled"]);

/** @param {string} time */
const ms = (time) => Date.parse(time) + Number(time.slice(23, 26).match(/^\d+$/)?.[0] ?? 0) / 1000;

/** @param {string} mode */
export function newFold(mode) {
  return {
    mode,
    /** @type {Event[]} */ events: [],
    /** @type {Row[]} */ rows: [],
    /** @type {Map<string, Row>} */ groups: new Map(),
    /** @type {Map<string, Row>} */ open: new Map(),
    /** @type {Map<string, {text: string, reasoning: string, retracted: boolean}>} */ texts:
      new Map(),
    /** @type {Map<string, {arguments?: any, result?: string}>} */ contents: new Map(),
    /** @type {Record<string, number>} */ taken: {},
    /** @type {Map<string, Event[]>} */ fallbacks: new Map(),
    /** @type {Record<string, string>} */ nodes: {},
    /** @type {Event[]} */ passes: [],
    /** @type {Event[]} */ plans: [],
    /** @type {Event[]} */ votes: [],
    /** @type {Event | null} */ decided: null,
    /** @type {Record<string, Event>} */ steps: {},
    /** @type {Event[]} */ contexts: [],
    state: "INIT",
    attempt: 1,
    last: 0,
    start: 0,
    latest: 0,
    /** @type {any} */ response: null,
    ended: false,
    refines: false,
    approvals: 0,
  };
}

/** @typedef {ReturnType<typeof newFold>} Fold */

/**
 * Add one event; one that is there already is ignored.
 * @param {Fold} fold
 * @param {Event} event
 * @returns {boolean} True if it is new.
 */
export function push(fold, event) {
  const at = ms(event.timestamp);
  const number = event.sequence_number;
  if (number !== undefined) {
    if (number <= fold.last) return false;
    fold.last = number;
    fold.events.push(event);
  }
  fold.start ||= at;
  fold.latest = Math.max(fold.latest, at);
  FOLDS[event.type]?.(fold, event, at);
  if (ENDS.has(event.type)) end(fold, event, at);
  return true;
}

/** @type {Record<string, (fold: Fold, event: Event, at: number) => void>} */
const FOLDS = {
  "lifecycle.transition": (fold, event) => {
    if (event.from_state)
      fold.taken[`${event.from_state}>${event.to_state}`] =
        (fold.taken[`${event.from_state}>${event.to_state}`] ?? 0) + 1;
    fold.state = event.to_state;
    fold.attempt = event.attempt;
  },
  "stage.end": (fold, event, at) => {
    if (["Execute", "FailoverDecide"].includes(event.stage)) return;
    const row =
      fold.open.get("prepare") ??
      add(fold, {
        id: "prepare",
        step: "prepare",
        kind: "prepare",
        name: "Prepare",
        detail: "",
        start: at,
        end: at,
        took: 0,
      });
    fold.open.set("prepare", row);
    const took = (row.took ?? 0) + event.duration_ms;
    row.took = took;
    row.end = row.start + took;
    row.note = `${Number(row.note ?? 0) + 1}`;
    row.detail = row.note === "1" ? "1 stage" : `${row.note} stages`;
  },
  "context.assembled": (fold, event) => void fold.contexts.push(event),
  "fallback.transition": (fold, event, at) => {
    const machine = machineOf(event.segment) ?? pending(fold);
    const list = fold.fallbacks.get(machine) ?? [];
    list.push(event);
    fold.fallbacks.set(machine, list);
    if (event.to_state === "RETRYING")
      fold.open.set(`wait ${machine}`, {
        id: `wait ${event.segment}`,
        kind: "wait",
        name: "Wait",
        detail: "before another attempt",
        start: at,
        end: at,
        group: fold.open.get(`attempt ${event.segment}`)?.group,
      });
    const failed =
      event.from_state === "ATTEMPTING" &&
      event.to_state !== "SUCCEEDED" &&
      fold.open.get(`attempt ${event.segment}`);
    if (failed) failed.failure = event.reason.replaceAll("_", " ");
    const waiting = fold.open.get(`wait ${machine}`);
    if (event.from_state === "RETRYING" && waiting) {
      fold.open.delete(`wait ${machine}`);
      if (at - waiting.start >= 1) add(fold, { ...waiting, end: at, took: at - waiting.start });
    }
  },
  "inference.start": (fold, event, at) => {
    const group = groupOf(fold, event, event.segment, at);
    const row = add(fold, {
      id: event.segment,
      step: event.segment,
      kind: "attempt",
      name: "Inference",
      start: at,
      end: null,
      started: event,
      detail: event.provider === event.model ? event.model : `${event.provider} · ${event.model}`,
      group: group.id,
    });
    fold.open.set(`attempt ${event.segment}`, row);
    fold.open.set(`span ${event.span_id}`, row);
    fold.texts.delete(event.segment);
  },
  "inference.delta": (fold, event, at) => {
    const found = fold.texts.get(event.segment) ?? { text: "", reasoning: "", retracted: false };
    found.text =
      (event.text ? found.text + event.text : found.text) ||
      (event.value === undefined ? "" : JSON.stringify(event.value));
    found.reasoning += event.reasoning ?? "";
    fold.texts.set(event.segment, found);
    const row = fold.open.get(`attempt ${event.segment}`);
    if (row && row.first === undefined) row.first = at;
  },
  "inference.retracted": (fold, event) => {
    const [text, row] = [fold.texts.get(event.segment), fold.open.get(`attempt ${event.segment}`)];
    if (text) text.retracted = true;
    if (row) row.retracted = true;
  },
  "inference.end": (fold, event, at) => {
    const row = fold.open.get(`attempt ${event.segment}`);
    if (!row) return;
    row.ended = event;
    finish(
      fold,
      row,
      row.start + event.duration_ms > at + 1 ? at : Math.max(at, row.start),
      event.duration_ms,
    );
    if (event.finish_reason === "error") row.failure = "failed";
  },
  "tool.start": (fold, event, at) => {
    const caller = fold.open.get(`span ${event.caused_by ?? event.parent_span_id}`);
    const group = caller?.group ?? groupOf(fold, event, caller?.step ?? "", at).id;
    fold.open.set(
      `call ${event.tool_call_id}`,
      add(fold, {
        id: `${event.tool_call_id}#${event.sequence_number}`,
        kind: "call",
        name: event.tool_name,
        detail: "",
        start: at,
        end: null,
        started: event,
        group,
      }),
    );
  },
  "tool.progress": (fold, event) => {
    const row = fold.open.get(`call ${event.tool_call_id}`);
    if (row?.end === null)
      row.note = [`${Math.round(event.progress * 100)} %`, event.message].filter(Boolean).join(", ");
  },
  "tool.content": (fold, event) =>
    void fold.contents.set(event.tool_call_id, {
      ...fold.contents.get(event.tool_call_id),
      ...(event.arguments ? { arguments: event.arguments } : {}),
      ...(event.result ? { result: event.result } : {}),
    }),
  "tool.end": (fold, event, at) => {
    const row = fold.open.get(`call ${event.tool_call_id}`);
    if (!row) return;
    row.ended = event;
    row.note = undefined;
    finish(fold, row, at, event.duration_ms);
    if (!event.success) row.failure = event.error_code ?? "failed";
  },
  "retrieval.start": (fold, event, at) => {
    fold.open.set(
      `retrieval ${event.span_id}`,
      add(fold, {
        id: `retrieval ${event.span_id}`,
        kind: "retrieval",
        name: "Search the memory",
        detail: `${event.top_k} parts at most`,
        start: at,
        end: null,
        started: event,
      }),
    );
  },
  "retrieval.end": (fold, event, at) => {
    const row = fold.open.get(`retrieval ${event.span_id}`);
    if (row) finish(fold, row, at, event.duration_ms);
    if (row) row.note = `${event.found} found`;
  },
  "validation.end": (fold, event) => {
    const row = [...fold.rows]
      .reverse()
      .find(
        (each) =>
          each.kind === "attempt" &&
          (event.replica === null ||
            event.replica === undefined ||
            each.started?.replica === event.replica),
      );
    if (row && !event.valid) row.failure = "not valid";
  },
  "plan.created": (fold, event) => void fold.plans.push(event),
  "pass.end": (fold, event) => {
    fold.passes.push(event);
    fold.refines = true;
  },
  "vote.cast": (fold, event) => void fold.votes.push(event),
  "vote.decided": (fold, event) => void (fold.decided = event),
  "step.start": (fold, event, at) => {
    fold.steps[event.step_name] = event;
    fold.refines = false;
    groupOf(fold, event, "", at);
  },
  "step.end": (fold, event, at) => {
    fold.steps[event.step_name] = event;
    const row = groupOf(fold, event, "", at);
    row.end = at;
    row.took = event.duration_ms;
    if (event.status === "failed") row.failure = event.error_code ?? "failed";
  },
  "node.start": (fold, event, at) => {
    fold.nodes[event.node] = "runs";
    groupOf(fold, event, "", at).end = null;
  },
  "flow.step": (fold, event, at) => {
    fold.nodes[event.node] = event.outcome === "suspend" ? "waits" : "done";
    const row = fold.groups.get(`step ${event.node}`);
    if (row) finish(fold, row, at, null);
  },
  "execution.suspended": (fold, event, at) => {
    for (const each of event.suspensions ?? []) {
      const id = `suspension ${each.suspension_id}`;
      if (fold.open.has(id)) continue;
      const start = each.asked_at ? Math.min(ms(each.asked_at), at) : at;
      fold.open.set(
        id,
        add(fold, {
          id,
          step: each.suspension_id,
          kind: "suspension",
          name: SUSPENSIONS[each.kind] ?? each.kind,
          detail: each.tool_id,
          start,
          end: null,
          started: each,
          group: fold.rows.findLast((row) => row.kind !== "group")?.group,
        }),
      );
    }
  },
  "approval.given": (fold, event) => {
    fold.approvals += 1;
    const row = fold.open.get(`suspension ${event.suspension_id}`);
    if (row) row.note = `${event.given} of ${event.needed} approved`;
  },
  "execution.resumed": (fold, event, at) => {
    const row = fold.open.get(`suspension ${event.suspension_id}`);
    if (!row) return;
    finish(fold, row, at, at - row.start);
    row.note = `by ${event.resumed_by}`;
    for (const [node, status] of Object.entries(fold.nodes))
      if (status === "waits" && event.tool_id.startsWith(node)) fold.nodes[node] = "runs";
  },
};

/** @type {Record<string, string>} */
export const SUSPENSIONS = {
  question: "Question",
  flow: "Question",
  approval: "Approval",
  authorization: "Credential",
  unknown_outcome: "Unknown outcome",
  client_tool: "Client tool",
};

/** @param {Fold} fold @param {Event} event @param {number} at */
function end(fold, event, at) {
  fold.response = event.response;
  fold.ended = true;
  for (const row of fold.rows) if (row.end === null) row.end = at;
  for (const id of Object.keys(fold.nodes))
    if (fold.nodes[id] === "runs")
      fold.nodes[id] = event.type === "execution.completed" ? "done" : "ended";
}

/** @param {Fold} fold @param {Row} row @param {number} at @param {number | null} took */
function finish(fold, row, at, took) {
  row.end = at;
  row.took = took ?? at - row.start;
  const group = row.group ? fold.groups.get(row.group) : undefined;
  if (group) group.end = Math.max(group.end ?? at, at);
}

/** @param {string | null | undefined} segment */
const machineOf = (segment) => (segment ? segment.split("/").slice(0, -1).join("/") : null);

/**
 * The first transition of a failover machine names no attempt; it stands before those that do.
 * @param {Fold} fold
 */
function pending(fold) {
  return [...fold.fallbacks.keys()].at(-1) ?? "0";
}

/**
 * Return the busy and the open intervals of the rows, for the time axis.
 * @param {Fold} fold
 * @param {number} now
 */
export function intervals(fold, now) {
  const of = (/** @type {Row} */ row) => ({
    start: row.start,
    end: Math.max(row.end ?? now, row.start),
  });
  const busy = fold.rows.filter((row) =>
    ["attempt", "call", "retrieval", "prepare"].includes(row.kind),
  );
  const open = fold.rows.filter((row) => row.kind === "suspension");
  const running =
    !fold.ended && fold.state !== "SUSPENDED" && !busy.some((row) => row.end === null);
  return {
    whole: { start: fold.start, end: fold.ended ? fold.latest : Math.max(now, fold.latest) },
    busy: [...busy.map(of), ...(running ? [{ start: fold.latest, end: now }] : [])],
    open: open.map(of),
  };
}
