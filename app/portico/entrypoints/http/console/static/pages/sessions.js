// @ts-check
/** Sessions: conversations that outlive a request. */
import { html, useState } from "../vendor/preact.js";
import { json } from "../parts/api.js";
import { Messages } from "../parts/messages.js";
import { usePages } from "../parts/pages.js";
import { go, link } from "../parts/route.js";
import { asText, fullTime, number, visible } from "../parts/text.js";
import {
  Age,
  Button,
  Dialog,
  Empty,
  Facts,
  Heading,
  Loaded,
  More,
  Text,
  useLoaded,
  useNow,
  example,
} from "../parts/ui.js";

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Sessions({ place }) {
  return place.args[0] ? html`<${Session} id=${place.args[0]} />` : html`<${List} />`;
}

function List() {
  const found = usePages("sessions", { limit: 100 });
  const now = useNow(10000);
  return html`
    <div class="page">
      <header class="top">
        <${Heading}>Sessions<//>
      </header>
      <${Loaded} of=${found}>
        ${() =>
          found.rows.length === 0 ? html`
            <${Empty}
              title="No session yet"
              command=${example("POST", "execute", {
                session_id: "okafor",
                messages: [{ role: "user", content: "Good morning" }],
              })}>
              A request with a session_id makes one:
            <//>
          ` : html`
              <table class="list">
                <thead>
                  <tr>
                    <th>Session</th>
                    <th>State</th>
                    <th class="n">Messages</th>
                    <th>Model</th>
                    <th>Last turn</th>
                  </tr>
                </thead>
                <tbody>
                  ${found.rows.map((row) => html`
                    <tr key=${row.session_id}>
                      <td class="request">
                        <a data-row href=${link(["sessions", row.session_id])}>
                          ${visible(row.session_id)}
                        </a>
                      </td>
                      <td>${row.busy ? html`<span class="warn">busy</span>` : "free"}</td>
                      <td class="n" data-name="Messages">
                        ${number(row.messages)}
                      </td>
                      <td>${visible(row.model ?? "—")}</td>
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
function Session({ id }) {
  const path = `sessions/${encodeURIComponent(id)}`;
  const view = useLoaded((signal) => json(path, { signal }), [id]);
  const messages = usePages(`${path}/messages`, { limit: 200 });
  const [asks, setAsks] = useState(false);
  const [error, setError] = useState("");
  const erase = () =>
    json(path, { method: "DELETE" }).then(
      () => go("#/sessions"),
      (failure) => setError(failure.message),
    );
  return html`
    <div class="page">
      <p class="crumbs">
        <a href="#/sessions">Sessions</a>
      </p>
      <${Loaded} alone of=${view}>
        ${(/** @type {any} */ session) => html`
            <header class="top">
              <${Heading}>${visible(id)}<//>
              <span class="grow"></span>
              <a class="button" href=${link(["executions"], { session_id: id, range: "all" })}>
                Executions
              </a>
              <${Button}
                kind="quiet danger"
                icon="trash"
                off=${session.busy}
                reason="A turn runs or is suspended"
                onClick=${() => setAsks(true)}>
                Delete
              <//>
            </header>
            <${Facts}
              pairs=${[
                ["Messages", number(session.messages)],
                ["Model", session.model && visible(session.model)],
                ["Began", fullTime(session.created_at)],
                ["Last turn", fullTime(session.updated_at)],
                ["State", session.busy ? "busy" : "free"],
              ]}
            />
            ${session.state !== null && session.state !== undefined && html`
                <h2 class="sub">Stored state</h2>
                <${Text} class="mono" text=${asText(session.state)} />
            `}
            <section class="card spaced">
              <${Loaded} of=${messages}>
                ${() =>
                  messages.rows.length ? html`
                      <${Messages} messages=${messages.rows} />
                      ${messages.more && html`<${Button} onClick=${messages.more}>Show more<//>`}
                  ` : html`
                    <p class="muted">There are no messages yet.</p>
                  `
                }
              <//>
            </section>
            ${asks && html`
              <${Dialog} title="Delete this session?" close=${() => setAsks(false)}>
                <p>Its messages and its executions are gone for good.</p>
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
