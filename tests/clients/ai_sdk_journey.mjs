// What an application's server does for `useChat`, against the service at argv[2]; the AI SDK checks every chunk.
import assert from "node:assert/strict";
import { Portico } from "@portico/client";
import { toUIMessageStreamResponse } from "@portico/client/ai-sdk";
import { parseJsonEventStream, readUIMessageStream, uiMessageChunkSchema } from "ai";

const client = new Portico({ baseUrl: process.argv[2] });

async function played(stream) {
  const response = toUIMessageStreamResponse(stream);
  assert.equal(response.headers.get("x-vercel-ai-ui-message-stream"), "v1");
  const chunks = [];
  const schema = uiMessageChunkSchema;
  for await (const parsed of parseJsonEventStream({ stream: response.body, schema })) {
    assert.ok(parsed.success, String(parsed.error));
    chunks.push(parsed.value);
  }
  return chunks;
}

async function message(chunks) {
  let last;
  const stream = new ReadableStream({
    start(controller) {
      for (const each of chunks) controller.enqueue(each);
      controller.close();
    },
  });
  for await (const each of readUIMessageStream({ stream, onError: () => undefined })) last = each;
  return last;
}

const shown = (found) => found.parts.filter((each) => each.type === "text").map((each) => each.text);

const called = await played(client.stream("Calculate", { tools: ["calculate"] }));
assert.deepEqual(shown(await message(called)).join(""), "It is 51.");
const [call] = (await message(called)).parts.filter((each) => each.type === "dynamic-tool");
assert.deepEqual([call.toolName, call.state, call.input], ["calculate", "output-available", { expression: "17*3" }]);

const waiting = await message(await played(client.stream("Ask", { tools: ["roll_dice"] })));
const [asked] = waiting.parts.filter((each) => each.type === "dynamic-tool");
assert.equal(asked.state, "approval-requested");
const state = waiting.parts.filter((each) => each.type === "data-portico").at(-1).data;
assert.deepEqual([state.state, state.suspensions[0].suspension_id], ["SUSPENDED", asked.approval.id]);

const mended = await played(client.stream("Count"));
const retracted = mended.find((each) => each.type === "data-portico").data.retracted;
const ids = mended.filter((each) => each.type === "text-start").map((each) => each.id);
assert.deepEqual(ids.filter((each) => !retracted.includes(each)).length, 1);
assert.equal(shown(await message(mended)).at(-1), "Right.");

const failed = await played(client.stream("Fail"));
assert.ok(failed.some((each) => each.type === "error"));
assert.equal(failed.at(-1).type, "finish");
console.log("whole");
