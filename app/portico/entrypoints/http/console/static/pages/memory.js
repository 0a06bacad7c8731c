// @ts-check
/** Documents of the memory, with its search. */
import { html, useState } from "../vendor/preact.js";
import { json, post } from "../parts/api.js";
import { Confirm, Facts, Frame, List, Name, Text, usePages } from "../parts/frame.js";
import { go, link } from "../parts/route.js";
import { asText, bytes, number, visible } from "../parts/text.js";
import { Age, Button, Empty, Failure, Loaded, More } from "../parts/ui.js";
import { example, useLoaded, useNow } from "../parts/ui.js";

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Memory({ place }) {
  return place.args[0] ? html`<${Document} id=${place.args[0]} />` : html`<${Documents} />`;
}

function Documents() {
  const found = usePages("memory", { limit: 100 });
  const now = useNow(30000);
  const [text, setText] = useState("");
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const search = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (text.trim())
      post("memory/search", { query: text, max_chunks: 10 }).then(
        (value) => setAnswer({ value }),
        (error) => setAnswer({ error }),
      );
  };
  return html`
    <${Frame} title="Memory">
      <form class="filters" role="search" onSubmit=${search}>
        <label class="search">
          <span class="hidden">Search</span>
          <input
            type="search"
            data-hotkey="/"
            placeholder="What a model would ask"
            value=${text}
            onInput=${(/** @type {any} */ event) => {
              setText(event.target.value);
              if (!event.target.value) setAnswer(null);
            }}
          />
        </label>
        <button class="button" type="submit">
          Search
        </button>
      </form>
      ${answer?.error && html`<${Failure} error=${answer.error} />`}
      ${answer?.value && html`
        <section class="card">
          <h2>${number(answer.value.data.length)} parts</h2>
          <p class="muted small">
            Words: ${answer.value.lexical}. Meaning: ${answer.value.vector}.
          </p>
          ${answer.value.data.map((/** @type {any} */ each, /** @type {number} */ at) => html`
            <article key=${at} class="said">
              <header>
                <a href=${link(["memory", each.document_id])}>${visible(each.document_id)}</a> · score${" "}
                ${each.score.toFixed(3)}
              </header>
              <${Text} text=${each.text} />
            </article>
          `)}
        </section>
      `}
      <${Loaded} of=${found}>
        ${() =>
          found.rows.length === 0 ? html`
            <${Empty}
              title="No document yet"
              command=${example("PUT", "memory/ulm", { text: "The minster of Ulm is 161 metres tall." })}>
              Store one:
            <//>
          ` : html`
              <${List}
                rows=${found.rows}
                id=${(/** @type {any} */ row) => `${row.user} ${row.document_id}`}
                columns=${[
                  [
                    "Document",
                    (/** @type {any} */ row) =>
                      html`<${Name} place=${["memory", row.document_id]} text=${row.document_id} />`,
                    "request",
                  ],
                  ["User", (/** @type {any} */ row) => visible(row.user)],
                  ["Size", (/** @type {any} */ row) => bytes(row.bytes), "n"],
                  ["Parts", (/** @type {any} */ row) => number(row.chunks), "n"],
                  ["Shared", (/** @type {any} */ row) => (row.shared ? "with the tenant" : "no")],
                  [
                    "Changed",
                    (/** @type {any} */ row) => html`<${Age} time=${row.updated_at} now=${now} />`,
                  ],
                ]}
              />
              <${More} more=${found.more} />
          `
        }
      <//>
    <//>
  `;
}

/** @param {{id: string}} props */
function Document({ id }) {
  const path = `memory/${encodeURIComponent(id)}`;
  const found = useLoaded((signal) => json(path, { signal }), [id]);
  const [asks, setAsks] = useState(false);
  const erase = found.value && html`
    <${Button} kind="quiet danger" icon="trash" onClick=${() => setAsks(true)}>
      Delete
    <//>
  `;
  return html`
    <${Frame} title=${id} up=${["memory", "Memory"]} actions=${erase}>
      <${Loaded} of=${found}>
        ${(/** @type {any} */ value) => html`
            <${Facts}
              pairs=${[
                ["User", visible(value.user)],
                ["Size", bytes(value.bytes)],
                ["Parts", number(value.chunks)],
                ["Shared", value.shared ? "with the tenant" : "no"],
                ["Embedded", value.embedded ? "yes" : "not yet"],
                ...Object.entries(value.metadata).map(([name, each]) => [
                  visible(name),
                  visible(asText(each)),
                ]),
              ]}
            />
            <section class="card spaced">
              <${Text} text=${value.text} />
            </section>
        `}
      <//>
      ${asks && html`
        <${Confirm}
          title="Delete this document?"
          text="It is gone for good."
          act="Delete"
          run=${async () => {
            await json(path, { method: "DELETE" });
            go("#/memory");
          }}
          close=${() => setAsks(false)}
        />
      `}
    <//>
  `;
}
