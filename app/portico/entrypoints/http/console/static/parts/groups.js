// @ts-check
/** The groups in which the rows of a timeline stand: rounds, plan steps, replicas, nodes. Pure. */

/** @typedef {import("./fold.js").Fold} Fold */
/** @typedef {import("./fold.js").Event} Event */
/** @typedef {import("./fold.js").Row} Row */

/** Put a row behind the last one of its group. @param {Fold} fold @param {Row} row */
export function add(fold, row) {
  const last = row.group
    ? fold.rows.findLastIndex((each) => each.group === row.group || each.id === row.group)
    : -1;
  if (last < 0) fold.rows.push(row);
  else fold.rows.splice(last + 1, 0, row);
  return row;
}

/**
 * Return the group of an event, which is made when it is met first.
 * @param {Fold} fold
 * @param {Event} event
 * @param {string} segment
 * @param {number} at
 */
export function groupOf(fold, event, segment, at) {
  const name = groupName(fold, event, segment);
  const known = fold.groups.get(name.id);
  if (known) return known;
  const row = add(fold, {
    id: name.id,
    kind: "group",
    name: name.name,
    detail: name.detail,
    start: at,
    end: at,
    round: name.round,
  });
  fold.groups.set(name.id, row);
  return row;
}

/** @param {Fold} fold @param {Event} event @param {string} segment */
function groupName(fold, event, segment) {
  const step = event.step_name ?? event.node;
  if (step)
    return {
      id: `step ${step}${event.pass ? ` ${event.pass}` : passOf(fold, step)}`,
      name: step,
      detail: event.pass > 1 ? `pass ${event.pass}` : (event.step_type ?? ""),
      round: null,
    };
  const parts = segment.split("/");
  if (event.replica !== null && event.replica !== undefined)
    return {
      id: `replica ${event.replica}`,
      name: `Replica ${event.replica + 1}`,
      detail: "",
      round: null,
    };
  if (fold.mode === "plan") {
    const pass = fold.passes.length + 1;
    if (fold.state === "PLAN") return { id: "planning", name: "Planning", detail: "", round: null };
    if (fold.passes.at(-1)?.converged)
      return { id: "answer", name: "Answer", detail: "", round: null };
    const kind = fold.refines ? "Refinement" : "Assessment";
    return { id: `${kind} ${pass}`, name: kind, detail: `pass ${pass}`, round: null };
  }
  const number = Number(parts[0]);
  const rounds = [...fold.groups.keys()].filter((id) => id.startsWith("round ")).length;
  return {
    id: `round ${parts[0]}`,
    name: `Round ${rounds + 1}`,
    detail: "",
    round: Number.isInteger(number) ? number : null,
  };
}

/** @param {Fold} fold @param {string} step */
const passOf = (fold, step) => (fold.steps[step]?.pass ? ` ${fold.steps[step].pass}` : "");
