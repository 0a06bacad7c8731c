// @ts-check
/** Engines with their breaker, their price and what the last hour was like. */
import { html, useEffect } from "../vendor/preact.js";
import { json } from "../parts/api.js";
import { ErrorCode, Facts, List, Name } from "../parts/frame.js";
import { missing, useMe } from "../parts/person.js";
import { link } from "../parts/route.js";
import { fullTime, number, span, visible, words } from "../parts/text.js";
import { Wave } from "../parts/wave.js";
import { Empty, Heading, Loaded, useLoaded } from "../parts/ui.js";

/** @type {import("../parts/frame.js").Column[]} */
const COLUMNS = [
  [
    "Name",
    ({ name, model, scheme }) => html`
      <${Name} place=${["engines", name]} text=${name}>
        ${visible(model)} · ${scheme}
      <//>
    `,
    "request",
  ],
  [
    "Breaker",
    ({ breaker }) => html`
      <span class=${breaker === "closed" ? "good" : "bad"}>${words(breaker)}</span>
    `,
  ],
  ["Last hour", ({ health }) => health && html`<${Wave} health=${health} />`],
  ["Attempts", ({ health }) => number(health?.attempts), "n"],
  ["Failed", ({ health }) => number(health?.failures), "n"],
  ["Half within", ({ health }) => span(health?.p50_ms), "n"],
  ["95 % within", ({ health }) => span(health?.p95_ms), "n"],
];

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Engines({ place }) {
  const person = useMe();
  const needs = missing(person, "read_metrics");
  const found = useLoaded(
    (signal) => json(`engines${needs || !person ? "" : "?view=health"}`, { signal }),
    [person],
  );
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && found.again(), 10000);
    return () => clearInterval(timer);
  }, []);
  const name = place.args[0];
  return html`
    <div class="page">
      <${Loaded} alone of=${{ ...found, error: found.value ? null : found.error }}>
        ${(/** @type {any} */ all) => {
          const item = all.data.find((/** @type {any} */ each) => each.name === name);
          if (item)
            return html`
                <p class="crumbs">
                  <a href="#/engines">Engines</a>
                </p>
                <header class="top">
                  <${Heading}>${visible(name)}<//>
                </header>
                <${Engine} engine=${item} />
            `;
          if (name)
            return html`
                <${Heading}>Engines<//>
                <${Empty} title="There is none of this name">
                  <a href="#/engines">All</a>
                <//>
            `;
          return html`
              <header class="top">
                <${Heading}>Engines<//>
                <span class="live-label">${all.data.length}</span>
              </header>
              ${needs && html`<p class="muted small">Health needs ${needs}.</p>`}
              <${List} rows=${all.data} columns=${COLUMNS} id=${(/** @type {any} */ each) => each.name} />
          `;
        }}
      <//>
    </div>
  `;
}

/** @param {{engine: any}} props */
function Engine({ engine }) {
  const { health, price } = engine;
  return html`
      <div class="card">
        <${Facts}
          pairs=${[
            ["Model", visible(engine.model)],
            ["Scheme", engine.scheme],
            ["Breaker", words(engine.breaker)],
            ["Context", `${number(engine.context_window)} tokens`],
            ["Reserve", `${number(engine.response_reserve)} tokens`],
            ["Routes", visible(engine.routes.join(", "))],
            ["Options", engine.options.join(", ")],
          ]}
        />
        <h2 class="sub">Capabilities</h2>
        <p>
          ${Object.entries(engine.capabilities)
            .filter(([, has]) => has)
            .map(([name]) => words(name))
            .join(", ") || "none"}
        </p>
        ${price && html`
            <h2 class="sub">Price of a million tokens</h2>
            <${Facts}
              pairs=${Object.entries(price).map(([name, value]) => [words(name), number(value)])}
            />
        `}
      </div>
      ${health && html`
        <div class="card">
          <h2>Last 60 minutes, by this process</h2>
          <${Wave} health=${health} />
          <${Facts}
            pairs=${[
              ["Attempts", number(health.attempts)],
              ["Failed", number(health.failures)],
              ["Half within", span(health.p50_ms)],
              ["95 % within", span(health.p95_ms)],
              ["Breaker opened", health.breaker_since && fullTime(health.breaker_since)],
              ["Counted since", fullTime(health.since)],
              ["Replica", visible(health.replica)],
            ]}
          />
          ${Object.entries(health.codes).map(([code, count]) => html`
            <p key=${code}>
              <${ErrorCode} code=${code} /> ${number(Number(count))}
            </p>
          `)}
        </div>
      `}
      <p>
        <a href=${link(["executions"], { model: engine.name })}>Executions on this engine</a>
      </p>
  `;
}
