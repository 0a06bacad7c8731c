// @ts-check
/** Requests to the API with the key of this tab, and event streams. */

/**
 * @typedef {import("portico-api").components["schemas"]} Schemas Types of the API, made from its
 * description.
 */

const KEPT = "portico.key";

/** The key is in this module and, if the person wants it, in the tab's session storage; nowhere else. */
let key = sessionStorage.getItem(KEPT) ?? "";
/** @type {Promise<void> | null} */
let asking = null;
/** @type {(refused: boolean) => Promise<{key: string, keep: boolean}>} */
let ask = () => Promise.reject(new Error("no dialog"));

/** Set the dialog that asks for a key. @param {typeof ask} dialog */
export const askWith = (dialog) => void (ask = dialog);
export const hasKey = () => key !== "";

/** Forget the key. */
export function signOut() {
  key = "";
  sessionStorage.removeItem(KEPT);
}

/** A refused request, or one that did not reach the service (`status` 0). */
export class ApiError extends Error {
  /** @param {number} status @param {any} problem @param {string} requestId */
  constructor(status, problem, requestId) {
    super(problem.detail ?? problem.message ?? "The service did not answer");
    this.status = status;
    this.code = problem.code ?? "";
    this.meaning = problem.title ?? "";
    this.details = problem.details ?? {};
    this.requestId = requestId;
  }
}

/**
 * @typedef {{method?: string, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}}
 * Options
 */

/**
 * Send a request; after a 401 ask for a key and send it again.
 * @param {string} path Below `/v1/`.
 * @param {Options} [options]
 * @returns {Promise<Response>}
 */
export async function send(path, { method = "GET", body, headers = {}, signal } = {}) {
  const used = key;
  const response = await fetch(`../v1/${path}`, {
    method,
    signal,
    cache: "no-store",
    headers: {
      Accept: "application/json",
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...(used ? { Authorization: `Bearer ${used}` } : {}),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  }).catch((error) => {
    if (signal?.aborted) throw error;
    throw new ApiError(0, { detail: "The service cannot be reached" }, "");
  });
  if (response.status === 401) {
    if (used === key) await newKey(used !== "");
    return send(path, { method, body, headers, signal });
  }
  if (response.ok) return response;
  throw new ApiError(
    response.status,
    await response.json().catch(() => ({})),
    response.headers.get("x-request-id") ?? "",
  );
}

/** Ask for a key, once for all requests that wait. @param {boolean} refused */
function newKey(refused) {
  asking ??= ask(refused).then((given) => {
    key = given.key;
    if (given.keep) sessionStorage.setItem(KEPT, key);
    else sessionStorage.removeItem(KEPT);
    asking = null;
  });
  return asking;
}

/**
 * Return the JSON of a request, null for an empty response.
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function json(path, options) {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}

/** @param {string} path @param {unknown} [body] @param {Options} [options] @returns {Promise<any>} */
export const post = (path, body, options) => json(path, { method: "POST", body, ...options });

/** @typedef {{id: string, event: string, data: string}} Frame */

/**
 * Read an event stream until it ends.
 * @param {Response} response
 * @returns {AsyncGenerator<Frame[]>} Frames that came together.
 */
export async function* frames(response) {
  const reader = /** @type {ReadableStream<any>} */ (response.body)
    .pipeThrough(new TextDecoderStream())
    .getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const pieces = (rest + value).split("\n\n");
      rest = pieces.pop() ?? "";
      yield pieces.map(frame).filter((each) => each.data);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {string} text @returns {Frame} */
function frame(text) {
  /** @type {Record<string, string>} */
  const found = { id: "", event: "", data: "" };
  for (const line of text.split("\n")) {
    const at = line.indexOf(":");
    if (at <= 0) continue;
    const [name, value] = [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
    found[name] = name === "data" && found.data ? `${found.data}\n${value}` : value;
  }
  return /** @type {Frame} */ (/** @type {unknown} */ (found));
}

/** @type {Map<string, Promise<any>>} */
const remembered = new Map();

/** Return the JSON of what changes only with the service, read once. @param {string} path */
export function once(path) {
  const known = remembered.get(path) ?? json(path);
  remembered.set(path, known);
  known.catch(() => remembered.delete(path));
  return known;
}
export const forget = () => remembered.clear();
