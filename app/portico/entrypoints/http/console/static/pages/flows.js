// @ts-check
/** Flows with their graphs. */
import { html } from "../vendor/preact.js";
import { once } from "../parts/api.js";
import { Facts, List, Name } from "../parts/frame.js";
import { Graph } from "../parts/graph.js";
import { visible } from "../parts/text.js";
import { Code, Empty, Heading, Loaded, useLoaded } from "../parts/ui.js";

/** @type {import("../parts/frame.js").Column[]} */
const COLUMNS = [
  ["Name", ({ name }) => html`<${Name} place=${["flows", name]} text=${name} />`, "request"],
  ["Nodes", ({ graph }) => graph.nodes.length],
  ["From", ({ graph }) => visible(graph.entry)],
  ["To", ({ graph }) => visible(graph.output)],
];

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Flows({ place }) {
  const name = place.args[0];
  const found = useLoaded(() => once(name ? `flows/${encodeURIComponent(name)}` : "flows"), [name]);
  return html`
    <div class="page">
      <${Loaded} alone of=${found}>
        ${(/** @type {any} */ value) => {
          if (name)
            return (
              value.graph && html`
                  <p class="crumbs">
                    <a href="#/flows">Flows</a>
                  </p>
                  <header class="top">
                    <${Heading}>${visible(name)}<//>
                  </header>
                  <div class="card">
                    <${Graph} flow=${value} nodes=${{}} />
                    <${Facts} pairs=${[["Fingerprint", html`<code>${value.fingerprint}</code>`]]} />
                  </div>
                  <div class="grid">
                    <section class="card">
                      <h2>Input</h2>
                      <${Code}
                        label="Input schema"
                        text=${JSON.stringify(value.input_schema, null, 2)}
                      />
                    </section>
                    <section class="card">
                      <h2>Output</h2>
                      <${Code}
                        label="Output schema"
                        text=${JSON.stringify(value.output_schema, null, 2)}
                      />
                    </section>
                  </div>
              `
            );
          return html`
              <header class="top">
                <${Heading}>Flows<//>
              </header>
              ${!value.data ? null : value.data.length === 0 ? html`
                <${Empty} title="No flow is configured">
                  Flows are functions of the modules in [flows].
                <//>
              ` : html`
                <${List} rows=${value.data} columns=${COLUMNS} id=${(/** @type {any} */ each) => each.name} />
              `}
          `;
        }}
      <//>
    </div>
  `;
}
