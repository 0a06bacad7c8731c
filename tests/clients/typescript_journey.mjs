// What an application does with the package, against the service at argv[2] and a proxy at argv[3] that cuts streams.
import assert from "node:assert/strict";
import { ConnectionFailure, InferenceFailure, Portico, PorticoError, RequestFailure } from "@portico/client";
import { TextFold } from "./node_modules/@portico/client/dist/text.js";

const [, , url, cutting] = process.argv;
const client = new Portico({ baseUrl: url });
const applied = (shown, { text, replaces }) => [...shown].slice(0, [...shown].length - replaces).join("") + text;

const journeys = {
  async execute() {
    assert.equal((await client.execute("Hello")).content, "Hello there.");
  },

  async stream() {
    const stream = new Portico({ baseUrl: cutting }).stream("Count");
    let shown = "";
    for await (const part of stream.text()) shown = applied(shown, part);
    assert.equal(shown, "One 😀 two three");
    assert.equal(stream.response.content, shown);
    const numbers = [];
    for await (const event of new Portico({ baseUrl: cutting }).events(stream.requestId)) numbers.push(event.sequence_number);
    const { events } = await client.get(stream.requestId);
    assert.deepEqual(numbers, Array.from({ length: events }, (_, index) => index + 1));
  },

  async answers() {
    const asked = [];
    const onSuspension = ({ tool_id }) => asked.push(tool_id) && "yes";
    assert.equal((await client.execute("May you?", { onSuspension })).content, "You said yes.");
    assert.deepEqual(asked, ["ask_person"]);
    const waiting = await client.execute("Calculate");
    assert.equal(waiting.state, "SUSPENDED");
    await assert.rejects(client.approve(waiting.request_id, { suspensionId: "other" }), RequestFailure);
    assert.equal((await client.approve(waiting.request_id)).content, "It is 51.");
    await assert.rejects(client.approve(waiting.request_id), { code: "REQUEST_RESUME_MISMATCH" });
  },

  async background() {
    const running = await client.background("Later");
    const response = await running.wait();
    assert.equal(response.content, "Done later.");
    assert.equal((await client.replay(running.requestId)).identical, true);
    const listed = [];
    for await (const each of client.list({ limit: 2 })) listed.push(each.request_id);
    assert.equal(new Set(listed).size, 5);
    const steps = [];
    for await (const each of client.steps(running.requestId)) steps.push(each.key);
    assert.ok(steps.length > 0);
    assert.equal((await client.trace(running.requestId)).request_id, running.requestId);
    assert.equal(await client.delete(running.requestId), null);
  },

  async errors() {
    await assert.rejects(client.execute({ messages: [] }), (error) => {
      assert.ok(error instanceof RequestFailure && error instanceof PorticoError);
      assert.deepEqual([error.code, error.status, error.name], ["REQUEST_INVALID", 422, "RequestFailure"]);
      return error.details.errors[0].field === "messages";
    });
    await assert.rejects(client.wait("no-such"), { code: "REQUEST_NOT_FOUND", status: 404 });
    await assert.rejects(client.execute("Fail"), (error) => {
      return error instanceof InferenceFailure && error.response.state === "ERROR";
    });
    await assert.rejects(client.stream("Fail").text().next(), InferenceFailure);
  },

  async leaving() {
    const calls = [];
    const left = new Portico({ baseUrl: url, fetch: (to, init) => (calls.push(`${init.method} ${to}`), fetch(to, init)) });
    const stream = left.stream("Leave");
    for await (const _ of stream) break;
    assert.ok(calls.at(-1).endsWith(`/v1/executions/${stream.requestId}/cancel`), calls);
  },

  async retries() {
    const json = (status, body, headers = {}) => new Response(JSON.stringify(body), { status, headers });
    const problem = (code, retry) =>
      json(503, { code, category: "RequestFailure", message: "no", retryable: true }, { "x-should-retry": retry, "retry-after": "0" });
    const done = { request_id: "r", state: "COMPLETE", token_usage: {}, suspensions: [], error: null };
    const sent = [];
    const played = (...answers) => {
      sent.length = 0;
      const play = async (to, init) => {
        sent.push(init);
        const next = answers.shift();
        if (next instanceof Error) throw next;
        return next;
      };
      return new Portico({ baseUrl: "http://portico", key: "k", fetch: play });
    };
    const broken = new TypeError("fetch failed", { cause: { code: "ECONNRESET" } });
    const refused = new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } });

    await played(broken, problem("REQUEST_OVERLOADED", "true"), json(200, done)).execute("Hi");
    assert.equal(sent.length, 3);
    assert.equal(new Set(sent.map((each) => each.headers["Idempotency-Key"] + each.body)).size, 1);
    assert.ok(JSON.parse(sent[0].body).request_id);
    assert.equal(sent[0].headers.Authorization, "Bearer k");

    const busy = () => problem("REQUEST_IN_PROGRESS", "true");
    await played(busy(), busy(), busy(), busy(), json(200, done)).execute("Hi");
    assert.equal(sent.length, 5);
    await assert.rejects(played(problem("REQUEST_OVERLOADED", "false")).execute("Hi"), { code: "REQUEST_OVERLOADED" });
    await assert.rejects(played(broken).execute("Hi", { store: false }), ConnectionFailure);
    assert.equal(sent[0].headers["Idempotency-Key"], undefined);
    assert.equal(sent.length, 1);
    await assert.rejects(played(broken).fork("r", { from_step: 0 }), ConnectionFailure);
    await played(refused, json(200, done)).fork("r", { from_step: 0 });
    const html = () => new Response("<html>", { status: 502 });
    await assert.rejects(played(html()).execute("Hi"), (error) => error instanceof ConnectionFailure && error.status === 502);
    await played(new Response('{"request_id": "r", "st'), json(200, done)).execute("Hi");
    const moved = new Response(null, { status: 307, headers: { location: "http://elsewhere" } });
    await assert.rejects(played(moved).execute("Hi"), { status: 307 });
    assert.equal(sent[0].redirect, "manual");

    const answer = { answers: [{ suspension_id: "s", payload: 1 }] };
    const open = { request_id: "r", events: 3, response: null, suspensions: [{ suspension_id: "s" }] };
    await played(broken, json(200, open), json(200, done)).resume("r", answer);
    assert.deepEqual(sent.map((each) => each.method), ["POST", "GET", "POST"]);
    const gone = json(200, { ...open, suspensions: [] });
    await played(broken, gone, json(200, { ...open, response: done })).resume("r", answer);
    assert.deepEqual(sent.map((each) => each.method), ["POST", "GET", "GET"]);

    const never = (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    await assert.rejects(new Portico({ fetch: never, timeout: 0.01 }).get("r"), /Timed out after 0.01 seconds/);
    await assert.rejects(new Portico({ fetch: never }).get("r", { signal: AbortSignal.abort(new Error("left")) }), /left/);
  },

  async folding() {
    const fold = new TextFold("text");
    const delta = (segment, offset, text) => ({ type: "inference.delta", segment, offset, text });
    let shown = "";
    const takes = (event, expected) => {
      const part = fold.take(event);
      if (part) shown = applied(shown, part);
      assert.equal(shown, expected);
    };
    takes(delta("a", 0, "x😀"), "x😀");
    takes(delta("a", 1, "😀y"), "x😀y");
    takes(delta("a", 0, "x😀y"), "x😀y");
    takes(delta("a", 9, "gap"), "x😀y");
    takes(delta("b", 0, "B"), "x😀yB");
    takes(delta("a", 3, "z"), "x😀yzB");
    takes({ type: "inference.retracted", segment: "a" }, "B");
    takes(delta("c", 0, "😀"), "B😀");
    shown = applied(shown, fold.last({ state: "COMPLETE", content: "B😁!" }));
    assert.equal(shown, "B😁!");
    assert.equal(fold.last({ state: "ERROR", content: "other" }), null);
  },
};

for (const [name, play] of Object.entries(journeys)) {
  await play();
  console.log(name);
}
