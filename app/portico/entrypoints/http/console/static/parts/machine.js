// @ts-check
/** A state machine as it stands: taken transitions dark with their count, the present state filled. */
import { html, useEffect, useRef } from "../vendor/preact.js";
import { machineEdge, machineLayout, successors } from "./layout.js";

const QUIET = new Set(["ERROR", "CANCELLED", "ABORTED", "EXHAUSTED"]);

/**
 * `taken` has the number of times of each `FROM>TO`.
 * @param {{machine: any, now: string, taken: Record<string, number>, title: string}} props
 */
export function Machine({ machine, now, taken, title }) {
  const { nodes, width, height } = machineLayout(machine.states);
  const visited = new Set([
    machine.initial,
    ...Object.keys(taken).flatMap((each) => each.split(">")),
  ]);
  const edges = Object.entries(successors(machine.table))
    .flatMap(([from, all]) => all.map((to) => ({ from, to, count: taken[`${from}>${to}`] ?? 0 })))
    .filter(
      ({ from, to, count }) =>
        count ||
        !QUIET.has(to) ||
        (from === "SUSPENDED" && to === "ERROR") ||
        (from === "SELECTING" && to === "EXHAUSTED"),
    )
    .sort((a, b) => a.count - b.count);
  const way = Object.entries(taken)
    .map(([each, count]) => `${each.replace(">", " to ")}${count > 1 ? ` ${count} times` : ""}`)
    .join(", ");
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const present = nodes[now]?.x ?? 0;
  useEffect(() => {
    const element = box.current;
    if (element) element.scrollLeft = present - element.clientWidth / 2;
  }, [present]);
  return html`
    <figure class="machine">
      <div tabindex="0" role="region" aria-label=${`${title}, drawn`} ref=${box}>
        <svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} aria-hidden="true">
          <defs>
            ${["quiet", "taken"].map((kind) => html`
              <marker
                key=${kind}
                id=${`arrow-${kind}`}
                class=${kind}
                viewBox="0 0 8 8"
                refX="7"
                refY="4"
                markerWidth="8"
                markerHeight="8"
                markerUnits="userSpaceOnUse"
                orient="auto">
                <path d="M0 0 8 4 0 8z" />
              </marker>
            `)}
          </defs>
          ${edges.map(({ from, to, count }) => {
            const edge = machineEdge(nodes[from], nodes[to], Object.values(nodes));
            return html`
              <g
                key=${`${from}>${to}`}
                class=${count ? "edge taken" : "edge"}
                data-taken=${count || undefined}>
                <path d=${edge.path} marker-end=${`url(#arrow-${count ? "taken" : "quiet"})`} />
                ${count > 0 && html`
                  <text x=${edge.labelX} y=${edge.labelY}>
                    ${count > 1 || from === "SUSPENDED" || to === "SUSPENDED" ? count : ""}
                  </text>
                `}
              </g>
            `;
          })}
          ${Object.values(nodes).map((node) => html`
            <g
              key=${node.name}
              data-machine-state=${node.name}
              data-now=${node.name === now ? "" : undefined}
              data-taken=${visited.has(node.name) ? "" : undefined}
              class=${[
                `node ${node.name}`,
                node.name === now && "now",
                visited.has(node.name) && "visited",
              ].filter(Boolean).join(" ")}>
              <rect
                x=${node.x - node.width / 2}
                y=${node.y - 13}
                width=${node.width}
                height="26"
                rx="13"
              />
              <text x=${node.x} y=${node.y + 4}>
                ${node.name}
              </text>
            </g>
          `)}
        </svg>
      </div>
      <figcaption class="hidden">
        ${title} is in state ${now}. ${way ? `It went from ${way}.` : ""}
      </figcaption>
    </figure>
  `;
}
