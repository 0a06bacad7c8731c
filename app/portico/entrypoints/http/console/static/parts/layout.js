// @ts-check
/** Places of state machines and of graphs. Pure functions. */

/** @typedef {{name: string, x: number, y: number, width: number}} Node */
/** @typedef {{from: string, to: string, path: string, labelX: number, labelY: number}} Edge */

/**
 * Column and row of every state; a state that is not here is put into a last column, and a test fails.
 * @type {Record<string, [number, number]>}
 */
export const PLACES = {
  INIT: [0, 0],
  PLAN: [1, 0],
  PREPARE: [2, 0],
  EXECUTE: [3, 0],
  SUSPENDED: [3, 1],
  VALIDATE: [4, 0],
  COMPLETE: [5, 0],
  ERROR: [5, 1],
  CANCELLED: [6, 1],
  IDLE: [0, 0],
  SELECTING: [1, 0],
  ATTEMPTING: [2, 0],
  RETRYING: [2, 1],
  SUCCEEDED: [3, 0],
  EXHAUSTED: [3, 1],
  ABORTED: [4, 1],
};

/**
 * Return the successors of every state, whether the machine has events or not.
 * @param {Record<string, any>} table
 */
export function successors(table) {
  /** @type {Record<string, string[]>} */
  const found = {};
  for (const [from, row] of Object.entries(table)) {
    const targets = Array.isArray(row)
      ? row
      : Object.values(row).flatMap((each) => (typeof each === "string" ? [each] : each.targets));
    found[from] = [...new Set(targets)].filter((to) => to !== from);
  }
  return found;
}

const HEIGHT = 26;
const ROW = 56;

/**
 * Place a machine. Columns that it does not use are closed up.
 * @param {string[]} states @returns {{nodes: Record<string, Node>, width: number, height: number}}
 */
export function machineLayout(states) {
  const unknown = 1 + Math.max(...Object.values(PLACES).map(([column]) => column));
  const placed = states.map((name) => ({ name, place: PLACES[name] ?? [unknown, 0] }));
  const columns = [...new Set(placed.map(({ place }) => place[0]))].sort((a, b) => a - b);
  const widths = columns.map((column) =>
    Math.max(
      ...placed.filter(({ place }) => place[0] === column).map(({ name }) => nodeWidth(name)),
    ),
  );
  /** @type {Record<string, Node>} */
  const nodes = {};
  for (const { name, place } of placed) {
    const column = columns.indexOf(place[0]);
    const left = widths.slice(0, column).reduce((sum, each) => sum + each + 52, 4);
    nodes[name] = {
      name,
      x: left + widths[column] / 2,
      y: 36 + place[1] * ROW,
      width: nodeWidth(name),
    };
  }
  const width = widths.reduce((sum, each) => sum + each + 52, -44);
  return { nodes, width, height: 36 + ROW + HEIGHT };
}

/** @param {string} name */
const nodeWidth = (name) => 28 + name.length * 7.4;

/**
 * Return the line from one state to another.
 * @param {Node} from
 * @param {Node} to
 * @param {Node[]} [all]
 * @returns {Edge}
 */
export function machineEdge(from, to, all = []) {
  const half = HEIGHT / 2;
  const edge = (
    /** @type {string} */ path,
    /** @type {number} */ labelX,
    /** @type {number} */ labelY,
  ) => ({ from: from.name, to: to.name, path, labelX, labelY });
  if (from.y === to.y) {
    const forward = to.x > from.x;
    const gap = Math.abs(to.x - from.x) - (from.width + to.width) / 2;
    const blocked = all.some(
      (node) =>
        node.y === from.y && node.x > Math.min(from.x, to.x) && node.x < Math.max(from.x, to.x),
    );
    if (forward && !blocked) {
      return edge(
        `M${from.x + from.width / 2},${from.y} H${to.x - to.width / 2 - 2}`,
        (from.x + from.width / 2 + to.x - to.width / 2) / 2,
        from.y - 5,
      );
    }
    const side = forward ? -1 : 1;
    const bend = from.y + side * (half + Math.min(24, 10 + gap / 12));
    const [start, end] = [from.x + (forward ? 14 : -14), to.x + (forward ? -14 : 22)];
    const reach = forward ? 20 : -20;
    const curve = `C${start + reach},${bend} ${end - reach},${bend}`;
    const path = `M${start},${from.y + side * half} ${curve} ${end},${to.y + side * (half + 2)}`;
    return edge(path, (start + end) / 2, bend - 3);
  }
  const down = to.y > from.y;
  if (Math.abs(to.x - from.x) < 20) {
    const x = from.x + (down ? -12 : 12);
    return edge(
      `M${x},${from.y + (down ? half : -half)} V${to.y + (down ? -half - 2 : half + 2)}`,
      x + (down ? -10 : 10),
      (from.y + to.y) / 2 + 4,
    );
  }
  const [start, end] = [
    from.x + (to.x > from.x ? 1 : -1) * (from.width / 2 - 8),
    to.x - (to.x > from.x ? 1 : -1) * (to.width / 2 - 8),
  ];
  return edge(
    `M${start},${from.y + (down ? half : -half)} L${end},${to.y + (down ? -half - 2 : half + 2)}`,
    (start + end) / 2 + 8,
    (from.y + to.y) / 2,
  );
}

/**
 * Layer a directed graph by the longest path to each node; edges back are ignored for the layers.
 * @param {string[]} names
 * @param {[string, string][]} edges
 * @returns {Record<string, {layer: number, row: number}>}
 */
export function layered(names, edges) {
  const after = new Map(
    names.map((name) => [
      name,
      edges.filter(([from, to]) => from === name && to !== name).map(([, to]) => to),
    ]),
  );
  /** @type {Map<string, number>} */
  const layers = new Map(names.map((name) => [name, 0]));
  /** @type {string[]} */
  const done = [];
  const open = new Set();
  /** @type {Set<string>} */
  const back = new Set();
  const visit = (/** @type {string} */ name) => {
    if (open.has(name)) return;
    open.add(name);
    for (const to of after.get(name) ?? []) {
      if (open.has(to) && !done.includes(to)) back.add(`${name}>${to}`);
      else visit(to);
    }
    done.push(name);
  };
  names.forEach(visit);
  for (const name of done.reverse())
    for (const to of after.get(name) ?? [])
      if (!back.has(`${name}>${to}`))
        layers.set(to, Math.max(layers.get(to) ?? 0, (layers.get(name) ?? 0) + 1));
  /** @type {Record<string, {layer: number, row: number}>} */
  const found = {};
  /** @type {number[]} */
  const rows = [];
  for (const name of names) {
    const layer = layers.get(name) ?? 0;
    found[name] = { layer, row: (rows[layer] ??= 0) };
    rows[layer]++;
  }
  return found;
}
