// @ts-check
/** Details of the chosen step, and the answer of the execution where none is chosen. */
import { ErrorCode, Facts, Text } from "./frame.js";
import { STATES_ENDED } from "./route.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { json } from "./api.js";
import { useTool } from "./approval.js";
import { Budget } from "./context.js";
import { Fork } from "./fork.js";
import { Icon } from "./icons.js";
import { Messages } from "./messages.js";
import { Question } from "./question.js";
import { asText, clockSeconds, money, number, span, visible, words } from "./text.js";
import { Button, Figure, useLoaded } from "./ui.js";

/**
 * Load one step of the record; null while it runs, or if it is not stored.
 * @param {string} id
 * @param {string} key
 * @param {boolean} ready
 */
const useStep = (id, key, ready) =>
  useLoaded(
    async (signal) => {
      if (!key || !ready) return null;
      return (
        (
          await json(`executions/${encodeURIComponent(id)}/steps?key=${encodeURIComponent(key)}`, {
            signal,
          }).catch(() => ({ data: [] }))
        ).data[0] ?? null
      );
    },
    [id, key, ready],
  ).value;

/** @param {any} props */
export function Details({ row, view, fold, state, steps, stepKey, close, now }) {
  const ended = STATES_ENDED.has(state);
  const group = row?.group ? fold.groups.get(row.group) : null;
  const waiting = fold.ended
    ? []
    : fold.rows.filter(
        (/** @type {any} */ each) => each.kind === "suspension" && each.end === null,
      );
  const from = row ? forkPoint(row, group, steps, stepKey) : "end";
  return html`
      ${row && html`
        <p class="back">
          <${Button} kind="quiet" icon="back" onClick=${close}>
            Timeline
          <//>
        </p>
      `}
      ${!row ? html`
          ${waiting.map((/** @type {any} */ each) => html`
            <${Waited} key=${each.id} row=${each} view=${view} fold=${fold} now=${now} />
          `)}
          ${waiting.length === 0 && html`<${Answer} view=${view} fold=${fold} />`}
      ` : row.kind === "attempt" ? html`
        <${Attempt} row=${row} view=${view} fold=${fold} stepKey=${stepKey} now=${now} />
      ` : row.kind === "call" ? html`
        <${Call} row=${row} view=${view} fold=${fold} stepKey=${stepKey} now=${now} />
      ` : row.kind === "suspension" ? html`
        <${Waited} row=${row} view=${view} fold=${fold} now=${now} />
      ` : html`
        <${Plain} row=${row} fold=${fold} now=${now} />
      `}
      <${Fork}
        key=${`${view.request_id} ${from}`}
        view=${view}
        from=${from}
        steps=${steps}
        ended=${ended}
        state=${state}
      />
  `;
}

/**
 * Return the `from_step` of a fork that runs the chosen step again.
 * @param {any} row
 * @param {any} group
 * @param {any[]} steps
 * @param {string} key
 */
function forkPoint(row, group, steps, key) {
  const found = steps.find((step) => step.key === key && step.from_step !== null);
  return found?.from_step ?? group?.round ?? "end";
}

/** @param {any} props */
function Answer({ view, fold }) {
  const response = fold.response ?? view.response;
  if (!response) {
    const live = [...fold.texts.entries()].at(-1)?.[1];
    return html`
      <section>
        <h2>Answer</h2>
        <p class="muted">
          ${view.state === "SUSPENDED" ? "It waits for a person." : "It is not there yet."}
        </p>
        ${live?.text && html`<${Text} text=${live.text} class=${live.retracted ? "retracted" : ""} />`}
      </section>
    `;
  }
  const error = response.error;
  return html`
    <section>
      <h2>${error ? "Failure" : "Answer"}</h2>
      ${error && html`
          <p class="bad">
            <${ErrorCode} code=${error.code} />
          </p>
          <${Text} text=${error.message} />
      `}
      ${response.structured_output !== null && response.structured_output !== undefined ? html`
        <${Text} class="mono" text=${asText(response.structured_output)} />
      ` : (
        response.content && html`<${Text} text=${response.content} />`
      )}
      ${response.final_answer?.notes && html`
        <p class="muted small">${visible(response.final_answer.notes)}</p>
      `}
      ${!error && !response.content && response.structured_output === null && html`
        <p class="muted">
          ${response.state === "SUSPENDED" ? "It waits for a person." : "There is none."}
        </p>
      `}
      ${response.confidence !== null && response.confidence !== undefined && html`
        <p class="muted">
          Confidence ${response.confidence.toFixed(2)}, by ${words(response.confidence_source ?? "")}
        </p>
      `}
    </section>
  `;
}

/** @param {any} props */
function Attempt({ row, view, fold, stepKey, now }) {
  const step = useStep(view.request_id, stepKey, row.end !== null);
  const [trace, setTrace] = useState(/** @type {any} */ (null));
  useEffect(() => {
    if (row.end !== null)
      json(`executions/${encodeURIComponent(view.request_id)}/trace`).then(setTrace, () =>
        setTrace(null),
      );
  }, [view.request_id, row.end !== null]);
  const live = fold.texts.get(row.id);
  const inference = trace?.inferences?.find(
    (/** @type {any} */ each) => each.key === row.id.split("/").slice(0, -1).join("/"),
  );
  const sum = row.ended;
  return html`
      <section>
        <h2>
          <${Icon} name="inference" />
          Inference ${row.id} <small>${visible(row.started.model)}</small>
        </h2>
        <div class="figures">
          ${row.first && html`<${Figure} value=${span(row.first - row.start)} name="first token" />`}
          <${Figure}
            value=${span(row.took ?? (row.end ?? now) - row.start)}
            name=${row.end === null ? "running" : "took"}
          />
          ${sum && html`
              <${Figure} value=${number(sum.tokens_in)} name="tokens in" />
              <${Figure} value=${number(sum.tokens_out)} name="tokens out" />
          `}
          ${sum?.cost ? html`
            <${Figure}
              value=${money({ amount: sum.cost, currency: view.response?.cost?.currency ?? "USD" })}
              name="cost"
            />
          ` : ""}
        </div>
        ${row.failure && html`<p class="bad">${visible(row.failure)}</p>`}
        ${row.retracted && html`<p class="muted">Its text was retracted.</p>`}
      </section>
      ${inference && html`
        <section>
          <${Budget} terms=${inference.terms} title="What the model saw" />
        </section>
      `}
      ${step?.request?.messages && html`
        <section>
          <h2 class="sub">Messages since the last inference</h2>
          <${Messages} messages=${step.request.messages} />
        </section>
      `}
      ${(live?.text || step?.outcome) && html`
        <section>
          <h2 class="sub">Reply</h2>
          ${step?.outcome?.error ? html`<p class="bad">${visible(step.outcome.error.message)}</p>` : ""}
          <${Messages}
            messages=${[
              {
                role: "assistant",
                content: step?.outcome?.content ?? live?.text ?? "",
                tool_calls: step?.outcome?.tool_calls,
                retracted: row.retracted,
              },
            ]}
          />
          ${(step?.outcome?.reasoning || live?.reasoning) && html`
              <h2 class="sub">Reasoning</h2>
              <${Text} class="muted" text=${step?.outcome?.reasoning || live?.reasoning} />
          `}
        </section>
      `}
  `;
}

/** @param {any} props */
function Call({ row, view, fold, stepKey, now }) {
  const step = useStep(view.request_id, stepKey, row.end !== null);
  const tool = useTool(row.name);
  const live = fold.contents.get(row.started.tool_call_id);
  const made = (fold.response ?? view.response)?.tool_calls_made?.find(
    (/** @type {any} */ each) => each.id === row.started.tool_call_id,
  );
  const given = step?.request?.arguments ?? live?.arguments ?? made?.arguments;
  const result = step?.outcome?.content ?? live?.result ?? made?.result;
  return html`
      <section>
        <h2>
          <${Icon} name="tools" />
          ${visible(row.name)} ${step?.edited && html`<small class="warn">edited, did not run</small>`}
        </h2>
        <${Facts}
          pairs=${[
            ["Took", span(row.took ?? (row.end ?? now) - row.start)],
            ["Attempts", made?.attempts],
            ["Effects", tool?.side_effects],
            ["", tool?.at_most_once ? "at most once" : null],
            ["Decided", made?.decision && decided(made.decision)],
          ]}
        />
        ${row.failure && html`<p class="bad">${visible(words(row.failure))}</p>`}
      </section>
      ${given && html`
        <section>
          <h2 class="sub">Arguments</h2>
          <${Text} class="mono" text=${asText(given)} />
        </section>
      `}
      ${made?.asked_arguments && html`
        <section>
          <h2 class="sub">Arguments of the model, which a person changed</h2>
          <${Text} class="mono" text=${asText(made.asked_arguments)} />
        </section>
      `}
      ${result !== undefined && result !== null && html`
        <section>
          <h2 class="sub">Result</h2>
          <${Text} class="mono" text=${result} />
        </section>
      `}
  `;
}

/** Say who decided about a call. @param {any} decision */
function decided({ verdict, edited, by, grant_id }) {
  const users = (by ?? []).map(
    (/** @type {any} */ each) => visible(each.user) + (each.reason ? ` (${visible(each.reason)})` : ""),
  );
  return [
    users.length ? `${verdict} by ${users.join(", ")}` : verdict,
    ...(edited ? ["with changed arguments"] : []),
    ...(grant_id ? [`grant ${grant_id}`] : []),
  ].join(", ");
}

/** @param {any} props */
function Waited({ row, view, fold, now }) {
  const open = row.end === null && !fold.ended;
  const suspension = {
    ...row.started,
    ...view.suspensions.find(
      (/** @type {any} */ each) => each.suspension_id === row.started.suspension_id,
    ),
    request_id: view.request_id,
    session_id: view.session_id,
    user: view.user,
  };
  const answered = row.note ? `, answered ${visible(row.note)}` : "";
  return html`
      <section>
        <h2>
          <${Icon} name="clock" />
          ${row.name} <small>${visible(row.detail)}</small>
        </h2>
        <p class="muted">
          ${open
            ? `waits since ${clockSeconds(row.start)}`
            : `waited ${span((row.end ?? now) - row.start)}${answered}`}
        </p>
      </section>
      <section>
        <${Question} suspension=${suspension} open=${open} now=${now} inside=${true} />
      </section>
  `;
}

/** @param {any} props */
function Plain({ row, fold, now }) {
  const stages = fold.events.filter(
    (/** @type {any} */ event) => event.type === "stage.end" && row.kind === "prepare",
  );
  return html`
    <section>
      <h2>${visible(row.name)}</h2>
      <p class="muted">
        ${visible(row.detail)} · ${span(row.took ?? (row.end ?? now) - row.start)}
      </p>
      ${stages.length > 0 && html`
        <ul class="plain">
          ${stages.map((/** @type {any} */ event) => html`
            <li key=${event.sequence_number}>
              ${event.stage}: ${event.outcome}, ${span(event.duration_ms)}
            </li>
          `)}
        </ul>
      `}
    </section>
  `;
}
