// @ts-check
/** Places of the console: `#/NAME/ARGUMENTS?QUERY`. */

/** @typedef {{page: string, args: string[], query: URLSearchParams}} Place */

/** @param {string} hash @returns {Place} */
export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [page, ...args] = path.split("/").map(decoded);
  return {
    page: page || "executions",
    args: args.filter(Boolean),
    query: new URLSearchParams(query ?? ""),
  };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {Record<string, any>} values Empty ones are left out. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => (value ?? "") !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** @param {string[]} parts @param {Record<string, any>} [values] */
export const link = (parts, values = {}) =>
  `#/${parts.map(encodeURIComponent).join("/")}${query(values)}`;

/**
 * Change the query of the present place without a new step of the history.
 * @param {Place} place
 * @param {Record<string, any>} changes
 */
export function refine(place, changes) {
  const hash = link([place.page, ...place.args], {
    ...Object.fromEntries(place.query),
    ...changes,
  });
  history.replaceState(null, "", hash);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
/** @param {string} hash */
export const go = (hash) => void (location.hash = hash);

/** States in which an execution has ended. */
export const STATES_ENDED = new Set(["COMPLETE", "ERROR", "CANCELLED"]);
