// @ts-check
/** What the service has: agents, tools, errors and machines, each as a list with one page for each item. */
import { html } from "../vendor/preact.js";
import { once } from "../parts/api.js";
import { Facts, List, Name, Text } from "../parts/frame.js";
import { Machine } from "../parts/machine.js";
import { link } from "../parts/route.js";
import { number, visible, words } from "../parts/text.js";
import { Code, Empty, Heading, Loaded, useLoaded } from "../parts/ui.js";

/** @param {unknown} value */
const shown = (value) => JSON.stringify(value, null, 2);

/**
 * @typedef {import("../parts/frame.js").Column} Column
 * @type {Record<string, {title: string, none: string, key: string, columns: Column[],
 * item: (each: any) => any}>}
 */
const KINDS = {
  agents: {
    title: "Agents",
    key: "name",
    none: "No agent is configured. Agents are tables [agents.NAME] of the configuration.",
    columns: [
      ["Mode", (each) => each.mode],
      ["Model", (each) => visible(each.model ?? "the request's")],
      ["Tools", (each) => visible(each.tools.join(", ") || "none")],
    ],
    item: (each) => html`
        <${Facts}
          pairs=${[
            ["Mode", each.mode],
            ["Model", each.model && visible(each.model)],
            ["Effects", each.side_effects],
            ["Skills", visible(each.skills.join(", "))],
          ]}
        />
        <h2 class="sub">Tools</h2>
        <p>
          ${each.tools.length
            ? each.tools.map((/** @type {string} */ name) => html`
                <a key=${name} href=${link(["tools", name])}>${visible(name)}</a>${" "}
              `)
            : "none"}
        </p>
        ${Object.keys(each.limits).length > 0 && html`
            <h2 class="sub">Limits</h2>
            <${Facts}
              pairs=${Object.entries(each.limits).map(([name, value]) => [
                words(name),
                number(value),
              ])}
            />
        `}
        ${each.output_schema && html`
            <h2 class="sub">Output</h2>
            <${Code} label="Output schema" text=${shown(each.output_schema)} />
        `}
        <p>
          <a href=${link(["executions"], { agent: each.name })}>Executions of this agent</a>
        </p>
    `,
  },
  tools: {
    title: "Tools",
    key: "name",
    none: "No tool is configured.",
    columns: [
      ["Source", (each) => each.source],
      ["Effects", (each) => `${each.side_effects}${each.at_most_once ? ", at most once" : ""}`],
      ["Approval", (each) => (each.approval ? "may be asked" : "")],
      [
        "Available",
        (each) => (each.available ? "yes" : html`<span class="bad">${visible(each.reason)}</span>`),
      ],
    ],
    item: (each) => html`
        <${Facts}
          pairs=${[
            ["Source", each.source],
            ["Type", each.type],
            ["Effects", each.side_effects],
            ["Idempotent", each.idempotent ? "yes" : "no"],
            ["Approval", each.approval ? "may be asked" : "no"],
            ["Retried", each.retried ? "once" : "no"],
            ["Contained", each.containment],
            ["Available", each.available ? "yes" : visible(each.reason)],
          ]}
        />
        <h2 class="sub">Parameters</h2>
        <${Code} label="Parameters" text=${shown(each.parameters)} />
    `,
  },
  errors: {
    title: "Errors",
    key: "code",
    none: "There are none.",
    columns: [
      ["Meaning", (each) => each.meaning],
      [
        "Status",
        (each) =>
          [...new Set(each.variants.map((/** @type {any} */ one) => one.status))].join(", "),
      ],
      ["Category", (each) => each.category],
    ],
    item: (each) => html`
        <${Facts} pairs=${[["Category", each.category]]} />
        <p>${each.meaning}.</p>
        <h2 class="sub">Recovery</h2>
        <p>${each.recovery}</p>
        <h2 class="sub">Variants</h2>
        <table class="list">
          <thead>
            <tr>
              <th>Condition</th>
              <th>Status</th>
              <th>Again</th>
            </tr>
          </thead>
          <tbody>
            ${each.variants.map((/** @type {any} */ one) => html`
              <tr key=${one.condition}>
                <td>${one.condition}</td>
                <td>${one.status}</td>
                <td>${one.retryable ? "may help" : "does not help"}</td>
              </tr>
            `)}
          </tbody>
        </table>
        <p>
          <a href=${link(["executions"], { code: each.code })}>Executions with this error</a>
        </p>
    `,
  },
  machines: {
    title: "Machines",
    key: "name",
    none: "There are none.",
    columns: [
      ["States", (each) => each.states.length],
      ["Begins", (each) => each.initial],
      ["Ends", (each) => each.terminal.join(", ")],
    ],
    item: (each) => html`
        <${Machine} machine=${each} now=${each.initial} taken=${{}} title=${each.name} />
        <h2 class="sub">Mermaid</h2>
        <${Code} label="Mermaid" text=${each.mermaid} />
    `,
  },
};

/** @param {string} page @param {string} key @returns {Column} */
const nameColumn = (page, key) => [
  "Name",
  (each) => html`
    <${Name} place=${[page, each[key]]} text=${each[key]}>${each.description && visible(each.description)}<//>
  `,
  "request",
];

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Catalogue({ place }) {
  const kind = KINDS[place.page];
  const found = useLoaded(() => once(place.page), [place.page]);
  const name = place.args[0];
  return html`
    <div class="page">
      <${Loaded} alone of=${found}>
        ${(/** @type {any} */ all) => {
          const item = name && all.data.find((/** @type {any} */ each) => each[kind.key] === name);
          if (name)
            return item ? html`
                <p class="crumbs">
                  <a href=${`#/${place.page}`}>${kind.title}</a>
                </p>
                <header class="top">
                  <${Heading}>${visible(name)}<//>
                </header>
                ${item.description && html`<${Text} text=${item.description} class="lead" model=${false} />`}
                <div class="card">${kind.item(item)}</div>
            ` : html`
                <h1 tabindex="-1">${kind.title}</h1>
                <${Empty} title="There is none of this name">
                  <a href=${`#/${place.page}`}>All</a>
                <//>
            `;
          return html`
              <header class="top">
                <${Heading}>${kind.title}<//>
                <span class="live-label">${all.data.length}</span>
              </header>
              ${all.data.length === 0 ? html`
                <${Empty} title="Nothing here">${kind.none}<//>
              ` : html`
                <${List}
                  rows=${all.data}
                  columns=${[nameColumn(place.page, kind.key), ...kind.columns]}
                  id=${(/** @type {any} */ each) => each[kind.key]}
                />
              `}
          `;
        }}
      <//>
    </div>
  `;
}
