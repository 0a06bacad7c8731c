// @ts-check
/** Documents of the memory, with its search. */
import { html, useState } from "../vendor/preact.js";
import { json, post } from "../parts/api.js";
import { usePages } from "../parts/pages.js";
import { go, link } from "../parts/route.js";
import { asText, bytes, number, visible } from "../parts/text.js";
import {
  Age,
  Button,
  Dialog,
  Empty,
  Facts,
  Failure,
  Heading,
  Loaded,
  More,
  Text,
  useLoaded,
  useNow,
  example,
} from "../parts/ui.js";

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Memory({ place }) {
  return place.args[0] ? html`<${Document} id=${place.args[0]} />` : html`<${List} />`;
}

function List() {
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
    <div class="page">
      <header class="top">
        <${Heading}>Memory<//>
      </header>
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
              <table class="list">
                <thead>
                  <tr>
                    <th>Document</th>
                    <th>User</th>
                    <th class="n">Size</th>
                    <th class="n">Parts</th>
                    <th>Shared</th>
                    <th>Changed</th>
                  </tr>
                </thead>
                <tbody>
                  ${found.rows.map((row) => html`
                    <tr key=${`${row.user} ${row.document_id}`}>
                      <td class="request">
                        <a data-row href=${link(["memory", row.document_id])}>
                          ${visible(row.document_id)}
                        </a>
                      </td>
                      <td data-name="User">${visible(row.user)}</td>
                      <td class="n" data-name="Size">
                        ${bytes(row.bytes)}
                      </td>
                      <td class="n" data-name="Parts">
                        ${number(row.chunks)}
                      </td>
                      <td data-name="Shared">${row.shared ? "with the tenant" : "no"}</td>
                      <td>
                        <${Age} time=${row.updated_at} now=${now} />
                      </td>
                    </tr>
                  `)}
                </tbody>
              </table>
              <${More} more=${found.more} />
          `
        }
      <//>
    </div>
  `;
}

/** @param {{id: string}} props */
function Document({ id }) {
  const path = `memory/${encodeURIComponent(id)}`;
  const found = useLoaded((signal) => json(path, { signal }), [id]);
  const [asks, setAsks] = useState(false);
  const [error, setError] = useState("");
  const erase = () =>
    json(path, { method: "DELETE" }).then(
      () => go("#/memory"),
      (failure) => setError(failure.message),
    );
  return html`
    <div class="page">
      <p class="crumbs">
        <a href="#/memory">Memory</a>
      </p>
      <${Loaded} alone of=${found}>
        ${(/** @type {any} */ value) => html`
            <header class="top">
              <${Heading}>${visible(id)}<//>
              <span class="grow"></span>
              <${Button} kind="quiet danger" icon="trash" onClick=${() => setAsks(true)}>
                Delete
              <//>
            </header>
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
            ${asks && html`
              <${Dialog} title="Delete this document?" close=${() => setAsks(false)}>
                <p>It is gone for good.</p>
                ${error && html`
                  <p class="bad" role="alert">
                    ${visible(error)}
                  </p>
                `}
                <div class="actions">
                  <${Button} kind="danger" onClick=${erase}>
                    Delete
                  <//>
                  <${Button} kind="quiet" onClick=${() => setAsks(false)}>
                    Keep it
                  <//>
                </div>
              <//>
            `}
        `}
      <//>
    </div>
  `;
}
