// @ts-check
/** The graph of a flow, layered by the longest path, with the nodes that ran and the one that waits. */
import { html } from "../vendor/preact.js";
import { layered } from "./layout.js";
import { cut, visible } from "./text.js";

const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [168, 44, 56, 20];
/** @type {Record<string, string>} */
const WORDS = { runs: "runs", waits: "waits for a person", done: "done", ended: "did not end" };

/**
 * Return the edges of a flow: from each node to those that take what it gives.
 * @param {any[]} nodes
 * @returns {[string, string][]}
 */
const flowEdges = (nodes) =>
  nodes.flatMap((from) =>
    nodes
      .filter((to) => to.inputs.some((/** @type {string} */ type) => from.outputs.includes(type)))
      .map((to) => /** @type {[string, string]} */ ([from.key, to.key])),
  );

/** @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
const onwards = (x1, y1, x2, y2) =>
  `M${x1},${y1} C${x1 + 28},${y1} ${x2 - 28},${y2} ${x2},${y2}`;

/**
 * Return a line below the nodes, from the middle of one to the middle of an earlier one.
 * @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2
 */
const backwards = (x1, y1, x2, y2) => {
  const [start, end, drop] = [x1 - WIDTH / 2, x2 + WIDTH / 2, 60];
  return `M${start},${y1 + HEIGHT / 2} C${x1},${y1 + drop} ${x2},${y2 + drop} ${end},${y2 + HEIGHT / 2}`;
};

/** @param {{flow: any, nodes: Record<string, string>}} props */
export function Graph({ flow, nodes }) {
  const all = flow.graph.nodes;
  const names = all.map((/** @type {any} */ each) => each.key);
  const edges = flowEdges(all);
  const places = layered(names, edges);
  const at = (/** @type {string} */ name) => ({
    x: 8 + places[name].layer * (WIDTH + GAP_X),
    y: 8 + places[name].row * (HEIGHT + GAP_Y),
  });
  const width = 16 + Math.max(...names.map((/** @type {string} */ name) => at(name).x + WIDTH));
  const height = 16 + Math.max(...names.map((/** @type {string} */ name) => at(name).y + HEIGHT));
  const tone = (/** @type {string} */ name) =>
    ({ runs: "EXECUTE", waits: "SUSPENDED", done: "COMPLETE", ended: "CANCELLED" })[nodes[name]] ??
    "";
  const sentence = names
    .map((/** @type {string} */ name) => `${name}: ${WORDS[nodes[name]] ?? "not reached"}`)
    .join("; ");
  return html`
    <figure class="machine graph">
      <div tabindex="0" role="region" aria-label="Graph of the flow, drawn">
        <svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} aria-hidden="true">
          <defs>
            <marker
              id="arrow-flow"
              class="quiet"
              viewBox="0 0 8 8"
              refX="7"
              refY="4"
              markerWidth="8"
              markerHeight="8"
              markerUnits="userSpaceOnUse"
              orient="auto">
              <path d="M0 0 8 4 0 8z" />
            </marker>
          </defs>
          ${edges.map(([from, to]) => {
            const [a, b] = [at(from), at(to)];
            const [x1, y1, x2, y2] = [a.x + WIDTH, a.y + HEIGHT / 2, b.x - 2, b.y + HEIGHT / 2];
            return html`
              <g
                key=${`${from}>${to}`}
                class=${nodes[from] === "done" && nodes[to] ? "edge taken" : "edge"}>
                <path
                  d=${x2 > x1 ? onwards(x1, y1, x2, y2) : backwards(x1, y1, x2, y2)}
                  marker-end="url(#arrow-flow)"
                />
              </g>
            `;
          })}
          ${all.map((/** @type {any} */ node) => {
            const { x, y } = at(node.key);
            const now = nodes[node.key] === "runs" || nodes[node.key] === "waits";
            return html`
              <g
                key=${node.key}
                class=${`node ${tone(node.key)}${nodes[node.key] ? " visited" : ""}${now ? " now" : ""}`}
                data-node=${node.key}>
                <rect x=${x} y=${y} width=${WIDTH} height=${HEIGHT} rx="8" />
                <text x=${x + WIDTH / 2} y=${y + 19}>
                  ${visible(cut(node.key, 22))}
                </text>
                <text x=${x + WIDTH / 2} y=${y + 34}>
                  ${visible(node.kind)}
                </text>
              </g>
            `;
          })}
        </svg>
      </div>
      <figcaption class="muted small">${visible(sentence)}</figcaption>
    </figure>
  `;
}
