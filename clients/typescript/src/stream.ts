/** The events of one execution, read on over connections that break. */
import type { components } from "./api.js";
import { ConnectionFailure, PorticoError, failureOf } from "./errors.js";
import { TextFold, readFrames, type TextPart } from "./text.js";
import { backoff, failure, pause, type Transport } from "./transport.js";

type Schemas = components["schemas"];
export type ExecutionEvent = Schemas["ExecutionEvent"];
export type SystemResponse = Schemas["SystemResponse"];

const TRIES = 5;
const RESTING = new Set(["execution.completed", "execution.failed", "execution.cancelled", "execution.suspended"]);

/** What a stream reads. */
export interface Source {
  /** Id of the execution; null if it is not stored, and can so not be read on. */
  requestId: string | null;
  /** Open the first connection; without it the events are read from `after` on. */
  open?: (signal: AbortSignal) => Promise<Response>;
  /** Number of the last event that is known. */
  after?: number;
  /** Number of the last event by now: a suspension before it was answered. */
  newest?: number;
  /** Whether to cancel the execution when the reader leaves. */
  cancels: boolean;
  signal?: AbortSignal | undefined;
}

/**
 * The events of one execution: each number once, in order. It can be read once.
 *
 * A reader that leaves before the end (`break`, `close()`, an abort) cancels the execution, unless it was detached.
 */
export class ExecutionStream implements AsyncIterable<ExecutionEvent> {
  /** Id of the execution; null if it is not stored. */
  readonly requestId: string | null;
  readonly #transport: Transport;
  readonly #source: Source;
  readonly #controller = new AbortController();
  readonly #signal: AbortSignal;
  #cancels: boolean;
  #number: number;
  #news = 0;
  #response: SystemResponse | null = null;
  #isRead = false;

  /** @internal */
  constructor(transport: Transport, source: Source) {
    this.#transport = transport;
    this.#source = source;
    this.requestId = source.requestId;
    this.#cancels = source.cancels;
    this.#number = source.after ?? 0;
    const own = this.#controller.signal;
    this.#signal = source.signal ? AbortSignal.any([source.signal, own]) : own;
  }

  /** The response; null before the end. */
  get response(): SystemResponse | null {
    return this.#response;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ExecutionEvent, void, undefined> {
    if (this.#isRead) throw new TypeError("A stream can be read once.");
    this.#isRead = true;
    try {
      yield* this.#events();
    } catch (error) {
      if (this.#controller.signal.aborted && !this.#source.signal?.aborted) return;
      throw error;
    } finally {
      await this.close();
    }
  }

  /** Yield the changes of the text; after the last one it is the content of the response. Throws if it failed. */
  async *text(): AsyncGenerator<TextPart, void, undefined> {
    const fold = new TextFold("text");
    yield* this.#folded(fold);
    const last = fold.last(this.#response);
    if (last !== null) yield last;
    this.#raise();
  }

  /** Yield the changes of the reasoning, as far as deltas bring it. Throws if the execution failed. */
  async *reasoning(): AsyncGenerator<TextPart, void, undefined> {
    yield* this.#folded(new TextFold("reasoning"));
    this.#raise();
  }

  /** Yield the value of a structured answer as far as it is there, at last the whole one. Throws if it failed. */
  async *value(): AsyncGenerator<unknown, void, undefined> {
    for await (const event of this) {
      if (event.type === "inference.delta" && event.value !== undefined) yield event.value;
    }
    this.#raise();
    if (this.#response?.state === "COMPLETE") yield this.#response.structured_output;
  }

  /** Read to the end and return the response. Throws: PorticoError if the execution failed. */
  async wait(): Promise<SystemResponse> {
    if (!this.#isRead) for await (const _ of this);
    this.#raise();
    if (this.#response === null) throw new ConnectionFailure({ message: "The stream was left before its end." });
    return this.#response;
  }

  /** Leave. Before the end this cancels the execution, unless the stream was detached. */
  async close(): Promise<void> {
    this.#isRead = true;
    this.#controller.abort();
    if (this.#response !== null || !this.#cancels || this.requestId === null) return;
    this.#cancels = false;
    await cancelled(this.#transport, this.requestId);
  }

  /** Leave without cancelling the execution, and return its id. */
  async detach(): Promise<string | null> {
    this.#cancels = false;
    await this.close();
    return this.requestId;
  }

  async *#folded(fold: TextFold): AsyncGenerator<TextPart, void, undefined> {
    for await (const event of this) {
      const part = fold.take(event);
      if (part !== null) yield part;
    }
  }

  #raise(): void {
    const error = this.#response === null ? null : failureOf(this.#response);
    if (error !== null) throw error;
  }

  async *#events(): AsyncGenerator<ExecutionEvent, void, undefined> {
    let open = this.#source.open ?? ((): Promise<Response> => this.#continuation());
    for (let tries = 0; this.#response === null; ) {
      const before = this.#news;
      let broken: PorticoError | null = null;
      try {
        yield* this.#connection(await open(this.#signal));
      } catch (error) {
        if (this.#signal.aborted) throw this.#signal.reason;
        broken = failure(error);
        const isFirst = open === this.#source.open && broken.code !== "REQUEST_IN_PROGRESS" && broken.status !== 200;
        if (isFirst || !(broken instanceof ConnectionFailure || broken.retryable)) throw broken;
      }
      if (this.#response !== null) return;
      tries = this.#news > before ? 0 : tries + 1;
      if (this.requestId === null || tries >= TRIES) {
        throw new ConnectionFailure({ message: "The stream broke, and could not be read on." }, { cause: broken });
      }
      if (tries > 0) await pause(backoff(tries - 1), this.#signal);
      open = () => this.#continuation();
    }
  }

  #continuation(): Promise<Response> {
    const headers = { "Last-Event-ID": `${this.#number}` };
    return this.#transport.open("GET", `${executionPath(this.requestId ?? "")}/events`, { headers, signal: this.#signal });
  }

  async *#connection(response: Response): AsyncGenerator<ExecutionEvent, void, undefined> {
    if (response.status === 204 && this.requestId !== null) {
      this.#response = (await showExecution(this.#transport, this.requestId, this.#signal)).response ?? null;
      return;
    }
    if (response.body === null || !response.headers.get("content-type")?.startsWith("text/event-stream")) return;
    try {
      for await (const data of readFrames(response.body, (chunk) => this.#transport.within(chunk))) {
        const event = JSON.parse(data) as ExecutionEvent;
        if (!this.#isNew(event)) continue;
        yield event;
        if (this.#response !== null) return;
      }
    } catch (cause) {
      throw new ConnectionFailure({ message: failure(cause).message, status: response.status }, { cause });
    }
  }

  #isNew(event: ExecutionEvent): boolean {
    if ("sequence_number" in event) {
      if (event.sequence_number <= this.#number) return false;
      this.#number = event.sequence_number;
      if (RESTING.has(event.type) && "response" in event && this.#number >= (this.#source.newest ?? 0)) {
        this.#response = event.response;
      }
    }
    this.#news += 1;
    return true;
  }
}

export function executionPath(requestId: string): string {
  return `/v1/executions/${encodeURIComponent(requestId)}`;
}

export function showExecution(transport: Transport, requestId: string, signal?: AbortSignal) {
  return transport.json<Schemas["ExecutionView"]>("GET", executionPath(requestId), { signal });
}

/** Cancel an execution whose reader left; one that has ended or was never accepted stays as it is. */
export async function cancelled(transport: Transport, requestId: string): Promise<void> {
  try {
    await transport.json("POST", `${executionPath(requestId)}/cancel`);
  } catch (error) {
    if (!(error instanceof PorticoError)) throw error;
  }
}
