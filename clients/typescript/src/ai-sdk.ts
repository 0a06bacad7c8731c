/** Streams for the AI SDK's `useChat`: the events of an execution as chunks of its UI messages, without its code. */
import { failureOf } from "./errors.js";
import type { ExecutionEvent, ExecutionStream, SystemResponse } from "./stream.js";
import { TextFold, type TextPart } from "./text.js";
import { failure } from "./transport.js";

/** A chunk of the UI message stream, version 1. */
export type UIMessageChunk = { type: string } & Record<string, unknown>;

/** The parts of a message that are text, or reasoning; text that was taken back is told by `data-portico`. */
class Parts {
  readonly fold: TextFold;
  #shown: string[] = [];
  #text = "";
  #open: string | null = null;
  #count = 0;

  constructor(readonly kind: "text" | "reasoning") {
    this.fold = new TextFold(kind);
  }

  *change(part: TextPart | null): Generator<UIMessageChunk> {
    if (part === null) return;
    let { text } = part;
    if (part.replaces > 0) {
      yield* this.end();
      yield { type: "data-portico", data: { retracted: this.#shown } };
      const points = [...this.#text];
      text = points.slice(0, points.length - part.replaces).join("") + text;
      [this.#shown, this.#text] = [[], ""];
    }
    if (text === "") return;
    this.#text += text;
    if (this.#open === null) {
      this.#open = `${this.kind}-${(this.#count += 1)}`;
      this.#shown.push(this.#open);
      yield { type: `${this.kind}-start`, id: this.#open };
    }
    yield { type: `${this.kind}-delta`, id: this.#open, delta: text };
  }

  *end(): Generator<UIMessageChunk> {
    if (this.#open !== null) yield { type: `${this.kind}-end`, id: this.#open };
    this.#open = null;
  }
}

/** The calls of tools: each has its input once, and its output once. */
class Calls {
  readonly #names = new Map<string, string>();
  readonly #results = new Map<string, string>();
  readonly #begun = new Set<string>();
  readonly #ended = new Set<string>();

  *take(event: ExecutionEvent): Generator<UIMessageChunk> {
    if (event.type === "tool.start") this.#names.set(event.tool_call_id, event.tool_name);
    if (event.type === "tool.content") {
      const { tool_call_id, arguments: input, result } = event;
      if (typeof result === "string") this.#results.set(tool_call_id, result);
      else yield* this.begin(tool_call_id, this.#names.get(tool_call_id) ?? "", input);
    }
    if (event.type === "tool.end" && this.#begun.has(event.tool_call_id)) {
      const result = this.#results.get(event.tool_call_id);
      if (result !== undefined) yield* this.end(event.tool_call_id, result, !event.success);
    }
  }

  *begin(toolCallId: string, toolName: string, input: unknown): Generator<UIMessageChunk> {
    if (this.#begun.has(toolCallId)) return;
    this.#begun.add(toolCallId);
    yield { type: "tool-input-available", toolCallId, toolName, input: input ?? {}, dynamic: true };
  }

  *end(toolCallId: string, output: string, isError: boolean): Generator<UIMessageChunk> {
    if (this.#ended.has(toolCallId)) return;
    this.#ended.add(toolCallId);
    const outcome = isError ? { type: "tool-output-error", errorText: output } : { type: "tool-output-available", output };
    yield { ...outcome, toolCallId, dynamic: true };
  }

  /** Yield what no connection brought, and the calls that wait for an approval. */
  *last(response: SystemResponse): Generator<UIMessageChunk> {
    for (const made of response.tool_calls_made) {
      yield* this.begin(made.id, made.name, made.arguments);
      if (made.result !== null) yield* this.end(made.id, made.result, made.is_error);
    }
    for (const { kind, suspension_id, tool_call_id, tool_id, value } of response.suspensions) {
      if (kind !== "approval" || !tool_call_id) continue;
      yield* this.begin(tool_call_id, tool_id, (value as { arguments?: unknown } | null)?.arguments);
      yield { type: "tool-approval-request", approvalId: suspension_id, toolCallId: tool_call_id };
    }
  }
}

/** Yield the chunks of a stream. What ends it badly is an `error` chunk; `data-portico` has state and suspensions. */
export async function* toUIMessageChunks(stream: ExecutionStream): AsyncGenerator<UIMessageChunk, void, undefined> {
  const [text, reasoning, calls] = [new Parts("text"), new Parts("reasoning"), new Calls()];
  yield { type: "start" };
  try {
    for await (const event of stream) {
      yield* reasoning.change(reasoning.fold.take(event));
      yield* text.change(text.fold.take(event));
      yield* calls.take(event);
    }
    yield* text.change(text.fold.last(stream.response));
    for (const parts of [reasoning, text]) yield* parts.end();
    if (stream.response !== null) yield* calls.last(stream.response);
  } catch (error) {
    yield { type: "error", errorText: failure(error).message };
  }
  if (stream.response !== null) {
    const { request_id, state, suspensions, structured_output } = stream.response;
    yield { type: "data-portico", data: { request_id, state, suspensions, structured_output } };
    const failed = failureOf(stream.response);
    if (failed !== null) yield { type: "error", errorText: `${failed.code}: ${failed.message}` };
  }
  yield { type: "finish" };
}

/** Return the response of an application's route that `useChat` reads. A reader that leaves cancels the execution. */
export function toUIMessageStreamResponse(stream: ExecutionStream): Response {
  const chunks = toUIMessageChunks(stream);
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { value, done } = await chunks.next();
      controller.enqueue(encoder.encode(`data: ${done ? "[DONE]" : JSON.stringify(value)}\n\n`));
      if (done) controller.close();
    },
    async cancel() {
      await stream.close();
    },
  });
  const headers = { "content-type": "text/event-stream", "cache-control": "no-cache", "x-vercel-ai-ui-message-stream": "v1" };
  return new Response(body, { headers });
}
