// @ts-check
/** What can be done with an execution: cancel, replay, compare, delete. */
import { html, useState } from "../vendor/preact.js";
import { json, post } from "./api.js";
import { Dialog } from "./dialog.js";
import { Alert, Line, failureText } from "./fields.js";
import { Confirm } from "./frame.js";
import { foreign, useMe } from "./person.js";
import { go, link, STATES_ENDED } from "./route.js";
import { Button } from "./ui.js";

/** @param {{view: any, state: string, place: any, mark: (step: string) => void, reload: () => void}} props */
export function Actions({ view, state, mark, reload }) {
  const person = useMe();
  const [dialog, setDialog] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const ended = STATES_ENDED.has(state);
  const other = foreign(person, view);
  const path = `executions/${encodeURIComponent(view.request_id)}`;
  const replay = async () => {
    setBusy(true);
    setError("");
    await post(`${path}/replay`).then(
      (found) => mark(found.identical ? "identical" : (found.step ?? "its end")),
      (failure) => setError(failureText(failure)),
    );
    setBusy(false);
  };
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
      <${Alert} text=${error} />
      ${dialog === "cancel" && html`
        <${Confirm}
          title="Cancel this execution?"
          text="What has run stays recorded. Nothing runs after that."
          act="Cancel execution"
          run=${async () => {
            await post(`${path}/cancel`);
            setDialog("");
            reload();
          }}
          close=${() => setDialog("")}
        />
      `}
      ${dialog === "delete" && html`
        <${Confirm}
          title="Delete this execution?"
          text="Its record, its events and its answer are gone for good."
          act="Delete"
          run=${async () => {
            await json(path, { method: "DELETE" });
            go("#/executions");
          }}
          close=${() => setDialog("")}
        />
      `}
      ${dialog === "compare" && html`<${Other} id=${view.request_id} close=${() => setDialog("")} />`}
  `;
}

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
        <${Line}
          label="Id of the other execution"
          value=${other}
          set=${setOther}
          required
          maxlength="128"
          autofocus
        />
        <button class="button primary" type="submit">
          Compare
        </button>
      </form>
    <//>
  `;
}
