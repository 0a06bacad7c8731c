// @ts-check
/**
 * What is live in this tab: one event stream at most, since a browser has six connections to an origin.
 *
 * A page of one execution follows that one; other pages follow the list of executions and suspensions. A
 * hidden tab has none.
 */
import { ApiError, frames, json, send } from "./api.js";

const MOST_ROWS = 1000;
const MOST_WAIT = 30;
/** Streams that all tabs of a browser keep open; another one reads for a moment when it is its turn. */
const STREAMS = 4;
const MOMENT = 1000;

/** A value that is observed. @template T @param {T} initial */
export function observed(initial) {
  let value = initial;
  /** @type {Set<(value: T) => void>} */
  const readers = new Set();
  return {
    get: () => value,
    set: (/** @type {T} */ next) => {
      value = next;
      for (const reader of [...readers]) reader(next);
    },
    subscribe: (/** @type {(value: T) => void} */ reader) => {
      readers.add(reader);
      return () => void readers.delete(reader);
    },
  };
}

/** `live`, `connecting`, `offline` or `off`. */
export const status = observed(
  /** @type {{name: string, retry: number}} */ ({ name: "off", retry: 0 }),
);
/** Rows of executions by id, of this connection. */
export const executions = observed(/** @type {Map<string, any>} */ (new Map()));
/** Open suspensions by `REQUEST_ID SUSPENSION_ID`. */
export const suspensions = observed(/** @type {Map<string, any>} */ (new Map()));
/** Number of open questions, from whichever source. */
export const questions = observed(0);
/** Ids of executions that were deleted while this page was open. */
export const removed = observed(/** @type {Set<string>} */ (new Set()));

/**
 * Read a stream until it is stopped: again after a cut, with a growing wait, and not while the tab is hidden.
 * `read` reads one connection to its end and returns true if nothing more will come.
 * @param {(signal: AbortSignal, live: () => void) => Promise<boolean>} read
 */
export function follow(read) {
  let stopped = false;
  let tries = 0;
  let connection = new AbortController();
  /** @type {(() => void) | null} */
  let wake = null;
  const hide = () => {
    if (document.hidden) setTimeout(() => document.hidden && connection.abort(), 1000);
    else wake?.();
  };
  const pause = (/** @type {number} */ ms) =>
    new Promise((resolve) => {
      wake = () => resolve(undefined);
      if (ms < Infinity) setTimeout(resolve, ms);
    });
  const live = () => {
    tries = 0;
    status.set({ name: "live", retry: 0 });
  };
  const connect = async (brief = false) => {
    const timer = brief && setTimeout(() => connection.abort(), MOMENT);
    try {
      return (await read(connection.signal, live)) ? ENDED : CUT;
    } catch (error) {
      if (brief && status.get().name === "live") return LATER;
      return error instanceof ApiError && [403, 404].includes(error.status) ? ENDED : CUT;
    } finally {
      if (timer) clearTimeout(timer);
    }
  };
  const run = async () => {
    while (!stopped) {
      if (document.hidden) {
        status.set({ name: "off", retry: 0 });
        await pause(Infinity);
        continue;
      }
      connection = new AbortController();
      if (status.get().name === "off") status.set({ name: "connecting", retry: 0 });
      const found = await inTurn(connect, connection.signal);
      if (stopped) return;
      if (found === ENDED) return status.set({ name: "off", retry: 0 });
      if (document.hidden) continue;
      const seconds =
        found === LATER ? 0.5 : Math.min(2 ** tries++, MOST_WAIT) * (0.75 + Math.random() / 2);
      if (found === CUT) status.set({ name: "offline", retry: Date.now() + seconds * 1000 });
      await pause(seconds * 1000);
    }
  };
  document.addEventListener("visibilitychange", hide);
  run();
  return () => {
    stopped = true;
    document.removeEventListener("visibilitychange", hide);
    connection.abort();
    wake?.();
  };
}

const [ENDED, CUT, LATER] = ["ended", "cut", "later"];

/**
 * Connect with one of the streams that all tabs share. Without a free one connect for a moment, in turn.
 * @param {(brief?: boolean) => Promise<string>} connect
 * @param {AbortSignal} signal
 */
async function inTurn(connect, signal) {
  const { locks } = navigator;
  if (!locks) return connect();
  for (let n = 0; n < STREAMS; n++) {
    const found = await locks.request(`portico.${n}`, { ifAvailable: true }, (lock) =>
      lock ? connect() : null,
    );
    if (found) return found;
  }
  return locks.request("portico", { signal }, () => connect(true)).catch(() => LATER);
}

/** Follow the list of all executions and suspensions. */
export function followList() {
  return follow(async (signal, live) => {
    const response = await send("events", { signal, headers: { Accept: "text/event-stream" } });
    const rows = new Map();
    const open = new Map();
    let ready = false;
    for await (const batch of frames(response)) {
      for (const { event, data } of batch) {
        const value = JSON.parse(data);
        if (event === "execution") keep(rows, value);
        else if (event === "suspension") {
          const id = suspensionId(value.suspension);
          if (value.open) open.set(id, value.suspension);
          else open.delete(id);
        } else if (event === "removed") {
          rows.delete(value.request_id);
          removed.set(new Set([...removed.get(), value.request_id]));
        } else if (event === "ready") {
          ready = true;
          live();
        }
      }
      if (ready) {
        executions.set(new Map(rows));
        suspensions.set(new Map(open));
        questions.set(open.size);
      }
    }
    return false;
  });
}

/** Of two rows the one with more events is newer. @param {Map<string, any>} rows @param {any} row */
export function keep(rows, row) {
  const known = rows.get(row.request_id);
  if (known && (known.events ?? 0) > (row.events ?? 0)) return;
  rows.delete(row.request_id);
  rows.set(row.request_id, row);
  if (rows.size > MOST_ROWS) rows.delete(/** @type {string} */ (rows.keys().next().value));
}

/** @param {any} suspension */
export const suspensionId = (suspension) => `${suspension.request_id} ${suspension.suspension_id}`;

/**
 * Count the open questions now and then, where the list is not followed.
 * @param {() => boolean} listIsFollowed
 */
export function countQuestions(listIsFollowed) {
  let last = 0;
  const count = async () => {
    const due = document.hidden ? 60000 : 15000;
    if ((listIsFollowed() && !document.hidden) || Date.now() - last < due) return;
    last = Date.now();
    const page = await json("suspensions?limit=1000").catch(() => null);
    if (page) questions.set(page.data.length);
  };
  const timer = setInterval(count, 3000);
  count();
  return () => clearInterval(timer);
}
