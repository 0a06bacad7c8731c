// @ts-check
/**
 * Open questions, oldest first. One that is settled keeps its place, so that no click meets another question.
 */
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { json } from "../parts/api.js";
import { Grants } from "../parts/grants.js";
import { executions, status, suspensionId, suspensions } from "../parts/live.js";
import { Question } from "../parts/question.js";
import { Empty, Heading, Loaded, useLoaded, useNow, useObserved } from "../parts/ui.js";

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
