// @ts-check
/** The plan with its passes as a tree, and the votes of replicas. */
import { html } from "../vendor/preact.js";
import { Text } from "./frame.js";
import { asText, visible, words } from "./text.js";

/** @param {any} props */
export function Plan({ view, fold }) {
  const plan = fold.plans.at(-1);
  const report = (fold.response ?? view.response)?.plan;
  if (!plan)
    return html`
      <section>
        <p class="muted">There is no plan yet.</p>
      </section>
    `;
  const statusOf = (/** @type {string} */ name) =>
    fold.steps[name]?.status ?? (fold.steps[name] ? "runs" : "pending");
  return html`
    <section>
      <ul class="tree">
        ${fold.plans.map((/** @type {any} */ each, /** @type {number} */ at) => html`
          <li key=${each.sequence_number}>
            <b>${at ? `Refined, pass ${at + 1}` : "Plan"}</b>${" "}
            <span class="muted">by ${visible(each.planner_id)}</span>
            <ul>
              ${each.steps
                .filter(
                  (/** @type {any} */ step) =>
                    at === 0 ||
                    !fold.plans[at - 1].steps.some(
                      (/** @type {any} */ before) => before.name === step.name,
                    ),
                )
                .map((/** @type {any} */ step) => html`
                  <li key=${step.name}>
                    <b>${visible(step.name)}</b>${" "}
                    <span class="muted">
                      ${visible(step.type)}
                      ${step.depends_on?.length
                        ? ` after ${visible(step.depends_on.join(", "))}`
                        : ""}${" "}
                      · ${statusOf(step.name)}
                    </span>
                    ${outputOf(report, step.name)}
                  </li>
                `)}
              ${fold.passes[at] && html`
                <li class="muted">
                  Pass ${fold.passes[at].pass}:${" "}
                  ${fold.passes[at].converged ? "converged" : "not converged"}, completeness${" "}
                  ${fold.passes[at].completeness ?? "—"}, coherence${" "}
                  ${fold.passes[at].coherence ?? "—"}
                  ${fold.passes[at].reasons.length
                    ? `, ${fold.passes[at].reasons.map(words).join(", ")}`
                    : ""}
                </li>
              `}
            </ul>
          </li>
        `)}
      </ul>
    </section>
  `;
}

/** @param {any} report @param {string} name */
function outputOf(report, name) {
  const step = report?.steps.find((/** @type {any} */ each) => each.name === name);
  if (step?.error)
    return html`
      <p class="bad">
        ${step.error.code}: ${visible(step.error.message)}
      </p>
    `;
  return step?.output === null || step?.output === undefined ? (
    ""
  ) : html`
    <${Text} text=${asText(step.output)} />
  `;
}

/** @param {any} props */
export function Votes({ view, fold }) {
  const vote = (fold.response ?? view.response)?.vote;
  const decided = fold.decided;
  if (!vote)
    return html`
      <section>
        <p>${fold.votes.length} votes so far.</p>
      </section>
    `;
  const fields = Object.entries(vote.fields ?? {});
  return html`
    <section>
      ${decided && html`
        <p>
          ${decided.votes ?? 0} of ${decided.replicas} votes for the answer, confidence${" "}
          ${decided.confidence?.toFixed(2) ?? "—"}${vote.stopped_early ? "; it stopped early" : ""}
        </p>
      `}
      ${vote.tally.map((/** @type {any} */ each, /** @type {number} */ at) => html`
        <div key=${at} class="card">
          <h2 class="sub">
            ${each.votes} ${each.votes === 1 ? "vote" : "votes"}, of replica${" "}
            ${each.replicas.map((/** @type {number} */ one) => one + 1).join(", ")}
          </h2>
          <${Text} class="mono" text=${asText(each.value)} />
        </div>
      `)}
      ${fields.length > 0 && html`
          <h2 class="sub">By field</h2>
          <ul class="plain">
            ${fields.map(([name, each]) => html`
              <li key=${name}>
                <b>${visible(name)}</b> ${visible(asText(each))}
              </li>
            `)}
          </ul>
      `}
      <h2 class="sub">Replicas</h2>
      ${vote.candidates.map((/** @type {any} */ each) => html`
        <div key=${each.replica} class="said assistant">
          <header>
            Replica ${each.replica + 1} · ${each.status}
          </header>
          ${each.value !== undefined && html`<${Text} class="mono" text=${asText(each.value)} />`}
          ${each.error ? html`<p class="bad">${visible(asText(each.error))}</p>` : ""}
        </div>
      `)}
    </section>
  `;
}
