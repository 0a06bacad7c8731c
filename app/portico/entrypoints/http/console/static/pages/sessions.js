// @ts-check
/** Sessions: conversations that outlive a request. */
import { html, useState } from "../vendor/preact.js";
import { json } from "../parts/api.js";
import { Confirm, Facts, Frame, List, Name, Text, usePages } from "../parts/frame.js";
import { Messages } from "../parts/messages.js";
import { go, link } from "../parts/route.js";
import { asText, fullTime, number, visible } from "../parts/text.js";
import { Age, Button, Empty, Loaded, More } from "../parts/ui.js";
import { example, useLoaded, useNow } from "../parts/ui.js";

/** @param {{place: import("../parts/route.js").Place}} props */
export default function Sessions({ place }) {
  return place.args[0] ? html`<${Session} id=${place.args[0]} />` : html`<${All} />`;
}

function All() {
  const found = usePages("sessions", { limit: 100 });
  const now = useNow(10000);
  return html`
    <${Frame} title="Sessions">
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
              <${List}
                rows=${found.rows}
                id=${(/** @type {any} */ row) => row.session_id}
                columns=${[
                  [
                    "Session",
                    (/** @type {any} */ row) =>
                      html`<${Name} place=${["sessions", row.session_id]} text=${row.session_id} />`,
                    "request",
                  ],
                  [
                    "State",
                    (/** @type {any} */ row) =>
                      row.busy ? html`<span class="warn">busy</span>` : "free",
                  ],
                  ["Messages", (/** @type {any} */ row) => number(row.messages), "n"],
                  ["Model", (/** @type {any} */ row) => visible(row.model ?? "—")],
                  [
                    "Last turn",
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
function Session({ id }) {
  const path = `sessions/${encodeURIComponent(id)}`;
  const view = useLoaded((signal) => json(path, { signal }), [id]);
  const messages = usePages(`${path}/messages`, { limit: 200 });
  const [asks, setAsks] = useState(false);
  const actions = view.value && html`
      <a class="button" href=${link(["executions"], { session_id: id, range: "all" })}>
        Executions
      </a>
      <${Button}
        kind="quiet danger"
        icon="trash"
        off=${view.value.busy}
        reason="A turn runs or is suspended"
        onClick=${() => setAsks(true)}>
        Delete
      <//>
  `;
  return html`
    <${Frame} title=${id} up=${["sessions", "Sessions"]} actions=${actions}>
      <${Loaded} of=${view}>
        ${(/** @type {any} */ session) => html`
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
                      <${More} more=${messages.more} />
                  ` : html`
                    <p class="muted">There are no messages yet.</p>
                  `
                }
              <//>
            </section>
        `}
      <//>
      ${asks && html`
        <${Confirm}
          title="Delete this session?"
          text="Its messages and its executions are gone for good."
          act="Delete"
          run=${async () => {
            await json(path, { method: "DELETE" });
            go("#/sessions");
          }}
          close=${() => setAsks(false)}
        />
      `}
    <//>
  `;
}
