// @ts-check
/** The tabs of an execution besides its timeline, as far as its mode has them. */
import { html } from "../vendor/preact.js";
import { json, once } from "./api.js";
import { Budget } from "./context.js";
import { Events, said } from "./events.js";
import { Text } from "./frame.js";
import { Graph } from "./graph.js";
import { Machine } from "./machine.js";
import { Messages } from "./messages.js";
import { Plan, Votes } from "./plan.js";
import { link, refine } from "./route.js";
import { asText, clockSeconds, money, number, span, visible, words } from "./text.js";
import { Age, Loaded, State, useLoaded } from "./ui.js";

/** @param {any} props */
function Conversation({ view, fold }) {
  const input = useLoaded(
    (signal) => json(`executions/${encodeURIComponent(view.request_id)}/input`, { signal }),
    [view.request_id],
  );
  const response = fold.response ?? view.response;
  const live = !fold.ended ? [...fold.texts.entries()].at(-1)?.[1] : null;
  return html`
    <${Loaded} of=${input}>
      ${(/** @type {any} */ request) => html`
        <section>
          <${Messages}
            messages=${[
              ...(request.messages ?? []),
              ...(response?.messages ?? []),
              ...(live?.text
                ? [
                    {
                      role: "assistant",
                      content: live.text,
                      note: "writing",
                      retracted: live.retracted,
                    },
                  ]
                : []),
            ]}
          />
          ${request.flow && html`
              <h2 class="sub">Input of the flow</h2>
              <${Text} class="mono" text=${asText(request.flow.input)} />
          `}
          ${response?.structured_output !== null && response?.structured_output !== undefined && html`
              <h2 class="sub">Structured answer</h2>
              <${Text} class="mono" text=${asText(response.structured_output)} />
          `}
        </section>
      `}
    <//>
  `;
}

/** @param {any} props */
function Failover({ fold, place, machines }) {
  const keys = [...fold.fallbacks.keys()];
  const chosen = place.query.get("inference") ?? keys.at(-1);
  const events = fold.fallbacks.get(chosen) ?? [];
  /** @type {Record<string, number>} */
  const taken = {};
  for (const event of events)
    taken[`${event.from_state}>${event.to_state}`] =
      (taken[`${event.from_state}>${event.to_state}`] ?? 0) + 1;
  const machine = machines.find((/** @type {any} */ each) => each.name === "fallback");
  return html`
      <section>
        <label>
          Inference
          <select
            value=${chosen}
            onChange=${(/** @type {any} */ event) =>
              refine(place, { inference: event.target.value })
            }>
            ${keys.map((key) => html`
              <option key=${key} value=${key}>
                ${key},${" "}
                ${
                  fold.fallbacks
                    .get(key)
                    .filter((/** @type {any} */ each) => each.to_state === "ATTEMPTING").length
                }${" "}
                attempts
              </option>
            `)}
          </select>
        </label>
      </section>
      ${machine && html`
        <${Machine}
          machine=${machine}
          now=${events.at(-1)?.to_state ?? "IDLE"}
          taken=${taken}
          title="Failover"
        />
      `}
      <section>
        <ul class="plain">
          ${events.map((/** @type {any} */ event) => html`
            <li key=${event.sequence_number}>
              ${clockSeconds(event.timestamp)} ${visible(said(event))}
            </li>
          `)}
        </ul>
      </section>
  `;
}

/** @param {any} props */
function ContextTab({ view, fold }) {
  const trace = useLoaded(
    (signal) => json(`executions/${encodeURIComponent(view.request_id)}/trace`, { signal }),
    [view.request_id, fold.ended],
  );
  return html`
    <${Loaded} of=${trace}>
      ${(/** @type {any} */ value) => html`
          ${value.context && html`
            <section>
              <${Budget} terms=${value.context.terms} title="Prepared" />
              <${Assembled} context=${value.context} />
            </section>
          `}
          ${value.inferences.map((/** @type {any} */ each) => html`
            <section key=${each.key}>
              <${Budget}
                terms=${each.terms}
                title=${`Inference ${each.key}${each.step_name ? ` · ${each.step_name}` : ""}`}
              />
              ${each.results_cut ? html`
                <p class="muted small">${each.results_cut} results were cut.</p>
              ` : ""}
              ${each.fits ? "" : html`<p class="bad small">It did not fit.</p>`}
            </section>
          `)}
      `}
    <//>
  `;
}

/** @param {{context: any}} props */
function Assembled({ context }) {
  const { skills, excluded, chunks, cut, redacted } = context;
  const lines = [
    ...skills.map((/** @type {any} */ each) => html`
      <li>
        skill <b>${visible(each.name)}</b>, ${number(each.tokens)} tokens
      </li>
    `),
    ...excluded.map((/** @type {any} */ each) => html`
      <li class="muted">
        skill ${visible(each.name)} left out: ${words(each.reason)}
      </li>
    `),
    ...chunks.map((/** @type {any} */ each) => html`
      <li>
        part ${each.chunk} of${" "}
        <a href=${link(["memory", each.document_id])}>${visible(each.document_id)}</a>, score${" "}
        ${each.score.toFixed(3)}, ${number(each.tokens)} tokens${each.used ? "" : ", not used"}
      </li>
    `),
    ...Object.entries(redacted).map(([name, count]) => html`
      <li>
        ${number(Number(count))} redacted: ${visible(name)}
      </li>
    `),
  ];
  if (cut.messages) lines.push(html`<li>${cut.messages} messages cut</li>`);
  if (cut.summarised) lines.push(html`<li>${cut.summarised} messages summarised</li>`);
  if (cut.repaired) lines.push(html`<li>${cut.repaired} messages repaired</li>`);
  return lines.length ? html`<ul class="plain">${lines}</ul>` : null;
}

/** @param {any} props */
function FlowGraph({ view, fold }) {
  const found = useLoaded(
    async (signal) => {
      const input = await json(`executions/${encodeURIComponent(view.request_id)}/input`, {
        signal,
      });
      return once(`flows/${encodeURIComponent(input.flow.name)}`);
    },
    [view.request_id],
  );
  return html`
    <${Loaded} of=${found}>
      ${(/** @type {any} */ flow) => html`
        <section>
          <${Graph} flow=${flow} nodes=${fold.nodes} />
        </section>
      `}
    <//>
  `;
}

/** @param {any} props */
function Forks({ view, now }) {
  const found = useLoaded(
    (signal) =>
      json(`executions?view=summary&origin=${encodeURIComponent(view.request_id)}`, { signal }),
    [view.request_id],
  );
  return html`
    <${Loaded} of=${found}>
      ${(/** @type {any} */ page) =>
        page.data.length === 0 ? html`
          <section>
            <p class="muted">There are no forks. Choose a step, then "Fork and compare".</p>
          </section>
        ` : html`
          <section>
            <table class="list">
              <tbody>
                ${page.data.map((/** @type {any} */ row) => html`
                  <tr key=${row.request_id} data-request-id=${row.request_id} data-state=${row.state}>
                    <td>
                      <${State} state=${row.state} />
                    </td>
                    <td class="request">
                      <a data-row href=${link(["compare", view.request_id, row.request_id])}>
                        ${visible(row.title || row.request_id)}
                      </a>
                      <small>
                        from${" "}
                        ${row.origin?.from_step === "end"
                          ? "the end"
                          : `step ${row.origin?.from_step}`}${" "}
                        · <code>${row.request_id}</code>
                      </small>
                    </td>
                    <td>${visible(row.model ?? "—")}</td>
                    <td class="n">${number(row.tokens)}</td>
                    <td class="n">${money(row.cost)}</td>
                    <td class="n">${span(row.duration === null ? null : row.duration * 1000)}</td>
                    <td>
                      <${Age} time=${row.created_at} now=${now} />
                    </td>
                  </tr>
                `)}
              </tbody>
            </table>
          </section>
        `
      }
    <//>
  `;
}

/** @type {Record<string, {title: string, view: any}>} */
export const TABS = {
  timeline: { title: "Timeline", view: null },
  conversation: { title: "Conversation", view: Conversation },
  failover: { title: "Failover", view: Failover },
  context: { title: "Context", view: ContextTab },
  plan: { title: "Plan", view: Plan },
  votes: { title: "Votes", view: Votes },
  graph: { title: "Graph", view: FlowGraph },
  forks: { title: "Forks", view: Forks },
  events: { title: "Events", view: Events },
};

/**
 * Return the tabs that the execution has, with a count.
 * @param {any} fold
 * @param {any} view
 * @returns {[string, number][]}
 */
export function tabsOf(fold, view) {
  const failed = fold.rows.filter(
    (/** @type {any} */ row) => row.kind === "attempt" && row.failure,
  ).length;
  /** @type {[string, number, boolean][]} */
  const all = [
    ["timeline", 0, true],
    ["conversation", 0, true],
    ["failover", failed, fold.fallbacks.size > 0],
    ["context", 0, view.mode !== "flow"],
    ["plan", 0, view.mode === "plan"],
    ["votes", fold.votes.length, view.mode === "redundant"],
    ["graph", 0, view.mode === "flow"],
    ["forks", 0, true],
    ["events", fold.events.length, true],
  ];
  return all.filter(([, , has]) => has).map(([name, count]) => [name, count]);
}
