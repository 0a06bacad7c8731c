// @ts-check
/**
 * Open questions, oldest first. One that is settled keeps its place, so that no click meets another question.
 */
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { json } from "../parts/api.js";
import { List, useEvery } from "../parts/frame.js";
import { executions, status, suspensionId, suspensions } from "../parts/live.js";
import { missing, useMe } from "../parts/person.js";
import { Question } from "../parts/question.js";
import { link } from "../parts/route.js";
import { number, visible } from "../parts/text.js";
import { Age, Button, Empty, Failure, Heading, Loaded } from "../parts/ui.js";
import { useLoaded, useNow, useObserved } from "../parts/ui.js";

/**
 * Return the questions that this page has shown so far, in their places, and those that are new behind them.
 * @param {any[]} places
 * @param {any[]} open
 */
export function settled(places, open) {
  const known = new Set(places.map(suspensionId));
  const fresh = open.filter((each) => !known.has(suspensionId(each)));
  fresh.sort((a, b) => ((a.asked_at ?? a.expires_at) < (b.asked_at ?? b.expires_at) ? -1 : 1));
  return fresh.length ? [...places, ...fresh] : places;
}

export default function Questions() {
  const live = useObserved(suspensions);
  const rows = useObserved(executions);
  const connection = useObserved(status).name;
  const now = useNow(1000);
  const first = useLoaded(
    (signal) => json("suspensions?limit=1000", { signal }),
    [connection === "live"],
  );
  const [places, setPlaces] = useState(/** @type {any[]} */ ([]));
  const open = useMemo(
    () => (connection === "live" ? [...live.values()] : (first.value?.data ?? [])),
    [live, first.value, connection],
  );
  useEffect(() => setPlaces((old) => settled(old, open)), [open]);
  const latest = new Map(open.map((/** @type {any} */ each) => [suspensionId(each), each]));
  return html`
    <div class="page">
      <header class="top">
        <${Heading}>Questions<//>
        <span class="live-label">${open.length} open</span>
      </header>
      <${Loaded} of=${{ ...first, error: first.value ? null : first.error }}>
        ${() =>
          places.length === 0 ? html`
            <${Empty} title="No question is open">
              What waits for a person stands here: approvals, questions of tools and flows, and
              calls whose outcome is not known.
            <//>
          ` : html`
            <div class="questions">
              ${places.map((each) => html`
                <${Question}
                  key=${suspensionId(each)}
                  suspension=${latest.get(suspensionId(each)) ?? each}
                  row=${rows.get(each.request_id)}
                  open=${latest.has(suspensionId(each))}
                  now=${now}
                />
              `)}
            </div>
          `
        }
      <//>
      <${Grants} open=${open.length} now=${now} />
    </div>
  `;
}

/**
 * Grants that cover calls yet; `open` is the number of open questions, whose answers give some.
 * @param {any} props
 */
function Grants({ open, now }) {
  const person = useMe();
  const found = useLoaded((signal) => json("grants", { signal }), [open]);
  useEvery(found.again, 15000);
  if (found.error) return html`<${Failure} error=${found.error} again=${found.again} />`;
  if (!found.value?.data.length) return null;
  const revoke = (/** @type {string} */ id) =>
    json(`grants/${encodeURIComponent(id)}`, { method: "DELETE" }).then(found.again, found.again);
  return html`
    <section class="card spaced">
      <h2>Grants</h2>
      <${List}
        rows=${found.value.data}
        id=${(/** @type {any} */ each) => each.grant_id}
        marks=${(/** @type {any} */ each) => ({ "data-grant-id": each.grant_id })}
        columns=${[
          [
            "Tool",
            (/** @type {any} */ each) => html`
                <b>${visible(each.tool)}</b>
                <small>
                  ${each.agent ? `agent ${visible(each.agent)} ` : ""}of ${visible(each.user)}
                </small>
            `,
            "request",
          ],
          ["Where", where],
          ["Calls", (/** @type {any} */ each) => (each.match === "tool" ? "all" : "same arguments")],
          ["Given by", (/** @type {any} */ each) => visible(each.granted_by)],
          ["Used", (/** @type {any} */ each) => `${number(each.uses)} of 20`, "n"],
          ["Ends", (/** @type {any} */ each) => html`<${Age} time=${each.expires_at} now=${now} />`],
          [
            html`<span class="hidden">Revoke</span>`,
            (/** @type {any} */ each) => html`
              <${Button}
                kind="quiet danger"
                aria-label=${`Revoke the grant for ${each.tool}`}
                needs=${each.user === person?.user ? undefined : missing(person, "approve")}
                onClick=${() => revoke(each.grant_id)}>
                Revoke
              <//>
            `,
          ],
        ]}
      />
    </section>
  `;
}

/** @param {any} grant */
const where = (grant) =>
  grant.for === "session" ? html`
      session <a href=${link(["sessions", grant.session_id])}>${visible(grant.session_id)}</a>
  ` : html`
    <a href=${link(["executions", grant.request_id])}>${grant.request_id}</a>
  `;
