// @ts-check
/** Replays of several executions, which is loaded when they are asked for. */
import { post } from "./api.js";

/** Replay executions, two at a time. @param {string[]} ids @param {(change: any) => void} set */
export async function replayAll(ids, set) {
  const waiting = [...ids];
  const note = (/** @type {string} */ id, /** @type {string} */ text) =>
    set((/** @type {any} */ old) => ({ ...old, [id]: text }));
  waiting.forEach((id) => note(id, "waits"));
  const worker = async () => {
    for (let id = waiting.shift(); id; id = waiting.shift()) {
      note(id, "replays");
      note(
        id,
        await post(`executions/${encodeURIComponent(id)}/replay`).then(
          (found) =>
            found.identical
              ? "identical"
              : `differs at ${found.step}${found.field ? `, ${found.field}` : ""}`,
          (error) => error.code || "failed",
        ),
      );
    }
  };
  await Promise.all([worker(), worker()]);
}
