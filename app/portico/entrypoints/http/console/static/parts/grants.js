// @ts-check
/** Grants: leave that persons gave for later calls of a tool. */
import { html } from "../vendor/preact.js";
import { json } from "./api.js";
import { List, useEvery } from "./frame.js";
import { missing, useMe } from "./person.js";
import { link } from "./route.js";
import { number, visible } from "./text.js";
import { Age, Button, Failure, useLoaded } from "./ui.js";

/**
 * Grants that cover calls yet; `open` is the number of open questions, whose answers give some.
 * @param {any} props
 */
export function Grants({ open, now }) {
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
