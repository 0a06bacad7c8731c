// @ts-check
/** A list that is read page by page. */
import { useState } from "../vendor/preact.js";
import { json } from "./api.js";
import { query } from "./route.js";
import { useLoaded } from "./ui.js";

/** @param {string} path @param {Record<string, any>} values */
export function usePages(path, values) {
  const [rest, setRest] = useState({
    of: /** @type {any} */ (null),
    rows: /** @type {any[]} */ ([]),
    next: null,
  });
  const first = useLoaded(
    (signal) => json(`${path}${query(values)}`, { signal }),
    [path, JSON.stringify(values)],
  );
  const known = rest.of === first.value;
  const next = known ? rest.next : first.value?.next;
  const more = async () => {
    const page = await json(`${path}${query({ ...values, after: next })}`);
    setRest({
      of: first.value,
      rows: [...(known ? rest.rows : []), ...page.data],
      next: page.next,
    });
  };
  return {
    ...first,
    rows: [...(first.value?.data ?? []), ...(known ? rest.rows : [])],
    more: next ? more : null,
  };
}
