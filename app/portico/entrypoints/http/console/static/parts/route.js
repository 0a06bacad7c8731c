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

/** @param {string[]} parts @param {Record<string, any>} [query] Empty values are left out. */
export function link(parts, query = {}) {
  const given = Object.entries(query).filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  const tail = given.length
    ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`
    : "";
  return `#/${parts.map(encodeURIComponent).join("/")}${tail}`;
}

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
