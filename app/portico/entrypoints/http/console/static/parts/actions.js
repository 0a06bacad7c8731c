// @ts-check
/** What can be done with an execution: cancel, replay, compare, delete. */
import { html, useState } from "../vendor/preact.js";
import { json, post } from "./api.js";
import { foreign, useMe } from "./person.js";
import { go, link, STATES_ENDED } from "./route.js";
import { visible } from "./text.js";
import { Button, Dialog } from "./ui.js";

/** @param {{view: any, state: string, place: any, mark: (step: string) => void, reload: () => void}} props */
export function Actions({ view, state, mark, reload }) {
  const person = useMe();
  const [dialog, setDialog] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const ended = STATES_ENDED.has(state);
  const other = foreign(person, view);
  const path = `executions/${encodeURIComponent(view.request_id)}`;
  const run = async (/** @type {() => Promise<any>} */ act) => {
    setBusy(true);
    setError("");
    await act().catch((failure) =>
      setError(failure.code ? `${failure.code}: ${failure.message}` : failure.message),
    );
    setBusy(false);
  };
  const replay = () =>
    run(async () => {
      const found = await post(`${path}/replay`);
      mark(found.identical ? "identical" : (found.step ?? "its end"));
    });
  const cancel = () =>
    run(async () => {
      await post(`${path}/cancel`);
      setDialog("");
      reload();
    });
  const erase = () =>
    run(async () => {
      await json(path, { method: "DELETE" });
      go("#/executions");
    });
  const stored = view.response?.metadata?.durability !== undefined || !ended;
  return html`
      <${Button}
        icon="replay"
        hotkey="R"
        data-hotkey="r"
        off=${!ended || busy || !stored}
        reason=${ended ? "It replays" : "It runs"}
        onClick=${replay}>
        Replay
      <//>
      <${Button}
        icon="compare"
        hotkey="C"
        data-hotkey="c"
        onClick=${() =>
          view.origin
            ? go(link(["compare", view.origin.request_id, view.request_id]))
            : setDialog("compare")
        }>
        Compare
      <//>
      ${ended ? html`
        <${Button}
          icon="trash"
          kind="quiet danger"
          off=${Boolean(other)}
          reason=${other}
          onClick=${() => setDialog("delete")}>
          Delete
        <//>
      ` : html`
        <${Button}
          icon="close"
          off=${Boolean(other)}
          reason=${other}
          onClick=${() => setDialog("cancel")}>
          Cancel
        <//>
      `}
      ${error && !dialog && html`
        <p class="bad" role="alert">
          ${visible(error)}
        </p>
      `}
      ${dialog === "cancel" && html`
        <${Ask}
          title="Cancel this execution?"
          text="What has run stays recorded. Nothing runs after that."
          act="Cancel execution"
          busy=${busy}
          error=${error}
          yes=${cancel}
          no=${() => setDialog("")}
        />
      `}
      ${dialog === "delete" && html`
        <${Ask}
          title="Delete this execution?"
          text="Its record, its events and its answer are gone for good."
          act="Delete"
          busy=${busy}
          error=${error}
          yes=${erase}
          no=${() => setDialog("")}
        />
      `}
      ${dialog === "compare" && html`<${Other} id=${view.request_id} close=${() => setDialog("")} />`}
  `;
}

/** @param {any} props */
const Ask = ({ title, text, act, busy, error, yes, no }) => html`
  <${Dialog} title=${title} close=${no}>
    <p>${text}</p>
    ${error && html`
      <p class="bad" role="alert">
        ${visible(error)}
      </p>
    `}
    <div class="actions">
      <${Button} kind="danger" off=${busy} onClick=${yes}>
        ${act}
      <//>
      <${Button} kind="quiet" onClick=${no}>
        Keep it
      <//>
    </div>
  <//>
`;

/** Ask for the execution to compare with. @param {{id: string, close: () => void}} props */
function Other({ id, close }) {
  const [other, setOther] = useState("");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (other.trim()) go(link(["compare", id, other.trim()]));
  };
  return html`
    <${Dialog} title="Compare with" close=${close}>
      <form class="form" onSubmit=${submit}>
        <label>
          Id of the other execution
          <input
            value=${other}
            onInput=${(/** @type {any} */ event) => setOther(event.target.value)}
            required
            maxlength="128"
            autofocus
          />
        </label>
        <button class="button primary" type="submit">
          Compare
        </button>
      </form>
    <//>
  `;
}
