/** The client: what an application calls. */
import type { components, operations } from "./api.js";
import { ConnectionFailure, RequestFailure, TimeoutFailure, failureOf } from "./errors.js";
import {
  ExecutionStream,
  cancelled,
  executionPath,
  showExecution,
  type ExecutionEvent,
  type Source,
  type SystemResponse,
} from "./stream.js";
import { Transport, type Options, type Query, type Sent } from "./transport.js";
import { answerOf, offered, type Tool } from "./tools.js";
import { Catalogue, Memory, Sessions, Suspensions, Usage, paged } from "./groups.js";

type Schemas = components["schemas"];
export type SystemRequest = Schemas["SystemRequest"];
export type ExecutionView = Schemas["ExecutionView"];
export type Suspension = Schemas["Suspension"];
export type ListQuery = NonNullable<operations["listExecutions"]["parameters"]["query"]>;

export interface CallOptions {
  /** Aborts the call. `execute` and `stream` then cancel the execution. */
  signal?: AbortSignal;
}

export interface ExecuteOptions extends CallOptions {
  /** Return the answer to an open suspension; undefined leaves it open. */
  onSuspension?: (suspension: Suspension) => unknown;
}

/** Fields of a request besides its messages, with the tools that this program runs, and those of the service by name. */
export type RunFields = Omit<RequestFields, "tools" | "client_tools"> & { tools: readonly (Tool | string)[] };

/** Fields of a request besides its messages, and options of the call. */
export type RequestFields = Omit<SystemRequest, "messages"> & ExecuteOptions;

/** An execution in the background. */
export class BackgroundExecution {
  /** @internal */
  constructor(
    readonly client: Portico,
    readonly requestId: string,
  ) {}

  /** Wait for the end, or a suspension. Leaving cancels nothing. */
  wait(options: CallOptions = {}): Promise<SystemResponse> {
    return this.client.wait(this.requestId, options);
  }

  events(after = 0, options: CallOptions = {}): AsyncGenerator<ExecutionEvent, void, undefined> {
    return this.client.events(this.requestId, after, options);
  }

  cancel(options: CallOptions = {}): Promise<ExecutionView> {
    return this.client.cancel(this.requestId, options);
  }
}

/** A client of one service. All methods throw a `PorticoError`, or what their signal was aborted with. */
export class Portico {
  readonly sessions: Sessions;
  readonly memory: Memory;
  readonly suspensions: Suspensions;
  readonly catalogue: Catalogue;
  readonly usage: Usage;
  readonly #transport: Transport;

  constructor(options: Options = {}) {
    this.#transport = new Transport(options);
    this.sessions = new Sessions(this.#transport);
    this.memory = new Memory(this.#transport);
    this.suspensions = new Suspensions(this.#transport);
    this.catalogue = new Catalogue(this.#transport);
    this.usage = new Usage(this.#transport);
  }

  /** Run a request, and return its response or that of its suspension. A text is short for one user message. */
  execute(request: string | SystemRequest, fields: RequestFields = {}): Promise<SystemResponse> {
    return this.#run(request, fields, []);
  }

  /** Run a request whose model may call these tools, and return the last response. What a tool throws, the model reads. */
  run(messages: string | NonNullable<SystemRequest["messages"]>, fields: RunFields): Promise<SystemResponse> {
    const { tools, ...rest } = fields;
    const request = typeof messages === "string" ? messages : { messages };
    return this.#run(request, { ...rest, ...offered(tools) }, tools);
  }

  async #run(
    request: string | SystemRequest,
    fields: RequestFields,
    tools: readonly (Tool | string)[],
  ): Promise<SystemResponse> {
    const { onSuspension, signal } = fields;
    const { body, headers } = prepared(request, fields);
    try {
      const answer = await this.#transport.json("POST", "/v1/execute", { body, headers, signal });
      return await this.#answered(await this.#settled(answer, signal), tools, { onSuspension, signal });
    } catch (error) {
      const isLeft = signal?.aborted || error instanceof TimeoutFailure;
      if (isLeft && body.request_id && body.store !== false) await cancelled(this.#transport, body.request_id);
      throw error;
    }
  }

  /** Run a request, and return the stream of its events, which sends it when it is read. */
  stream(request: string | SystemRequest, fields: Omit<RequestFields, "onSuspension"> = {}): ExecutionStream {
    const { body, headers } = prepared(request, fields);
    const isStored = body.store !== false;
    if (isStored) body.on_disconnect ??= "continue";
    const open = (signal: AbortSignal): Promise<Response> =>
      this.#transport.open("POST", "/v1/execute", { body, headers, signal });
    const requestId = isStored ? (body.request_id ?? null) : null;
    return new ExecutionStream(this.#transport, { requestId, open, cancels: true, signal: fields.signal });
  }

  /** Run a request in the background, and return once it is accepted. */
  async background(request: string | SystemRequest, fields: Omit<RequestFields, "onSuspension"> = {}) {
    const { body, headers } = prepared(request, fields);
    const sent = { body: { ...body, background: true }, headers, signal: fields.signal };
    const { request_id } = await this.#transport.json<ExecutionView>("POST", "/v1/execute", sent);
    return new BackgroundExecution(this, request_id);
  }

  get(requestId: string, options: CallOptions = {}): Promise<ExecutionView> {
    return showExecution(this.#transport, requestId, options.signal);
  }

  /** Yield executions, the newest first, page by page; a page has `limit` (100). */
  list(query: ListQuery = {}, options: CallOptions = {}): AsyncGenerator<Schemas["ExecutionSummary"], void, undefined> {
    return paged(this.#transport, "/v1/executions", query as Query, options);
  }

  /** Yield the events after that number, live ones too, until the execution ends or is suspended. */
  async *events(
    requestId: string,
    after = 0,
    options: CallOptions = {},
  ): AsyncGenerator<ExecutionEvent, void, undefined> {
    const { events: newest } = await this.get(requestId, options);
    yield* this.#follow(requestId, after, newest, options);
  }

  /** Wait until an execution ends or is suspended. Leaving cancels nothing. */
  async wait(requestId: string, options: CallOptions = {}): Promise<SystemResponse> {
    const view = await this.get(requestId, options);
    if (view.response) return unlessFailed(view.response);
    return this.#follow(requestId, view.events, view.events, options).wait();
  }

  /** Send answers to suspensions, and return the next response. A lost answer is looked up before it is sent again. */
  async resume(
    requestId: string,
    answer: Schemas["ResumeRequest"],
    options: CallOptions = {},
  ): Promise<SystemResponse> {
    const path = `${executionPath(requestId)}/resume`;
    const answers: Schemas["GivenAnswer"][] = answer.answers ?? [answer as Schemas["GivenAnswer"]];
    const ids = new Set(answers.map((each) => each.suspension_id));
    for (let isSecond = false; ; isSecond = true) {
      try {
        const settled = await this.#transport.json("POST", path, { body: answer, ...options });
        return await this.#settled(settled, options.signal);
      } catch (error) {
        const isLost = error instanceof ConnectionFailure && !options.signal?.aborted;
        if (isSecond || !isLost || ids.has(undefined) || ids.has(null)) throw error;
        const { suspensions } = await this.get(requestId, options);
        if (!suspensions.some((each) => ids.has(each.suspension_id))) return this.wait(requestId, options);
      }
    }
  }

  /** Answer the open suspension of an execution; with several, `suspensionId` names one. */
  async answer(
    requestId: string,
    payload: unknown,
    options: CallOptions & { suspensionId?: string } = {},
  ): Promise<SystemResponse> {
    const { suspensionId, ...call } = options;
    const { suspensions } = await this.get(requestId, call);
    const named = suspensions.filter((each) => suspensionId === undefined || each.suspension_id === suspensionId);
    const [suspension] = named;
    if (suspension === undefined || named.length > 1) {
      const open = suspensions.map((each) => `${each.suspension_id} (${each.kind} of ${each.tool_id})`).join(", ");
      const message = `suspensionId must name one of the open suspensions: ${open || "there is none"}`;
      throw new RequestFailure({ code: "REQUEST_RESUME_MISMATCH", category: "RequestFailure", message, requestId });
    }
    const { suspension_id, tool_id } = suspension;
    return this.resume(requestId, { suspension_id, tool_id, payload }, call);
  }

  /** Let the call run that asks for it. */
  approve(requestId: string, options: CallOptions & { suspensionId?: string } = {}): Promise<SystemResponse> {
    return this.answer(requestId, { decision: "approve" }, options);
  }

  /** Refuse the call that asks; the model reads the reason. */
  deny(
    requestId: string,
    options: CallOptions & { suspensionId?: string; reason?: string } = {},
  ): Promise<SystemResponse> {
    const { reason, ...rest } = options;
    return this.answer(requestId, { decision: "deny", ...(reason === undefined ? {} : { reason }) }, rest);
  }

  cancel(requestId: string, options: CallOptions = {}): Promise<ExecutionView> {
    return this.request("POST", `${executionPath(requestId)}/cancel`, options);
  }

  /** Delete an execution; null, or its view if it was still running and is cancelled first. */
  delete(requestId: string, options: CallOptions & { forks?: "delete" } = {}): Promise<ExecutionView | null> {
    const { forks, ...call } = options;
    return this.request("DELETE", executionPath(requestId), { query: { forks }, ...call });
  }

  /** Fork an execution, and return the response of the fork. */
  async fork(
    requestId: string,
    fork: Schemas["ForkRequest"],
    options: CallOptions = {},
  ): Promise<SystemResponse> {
    const answer = await this.request("POST", `${executionPath(requestId)}/fork`, { body: fork, ...options });
    return this.#settled(answer, options.signal);
  }

  replay(requestId: string, options: CallOptions = {}): Promise<Schemas["ReplayReport"]> {
    return this.request("POST", `${executionPath(requestId)}/replay`, options);
  }

  /** Return the bounds of a request without running it. */
  quote(request: string | SystemRequest, fields: Omit<RequestFields, "onSuspension"> = {}): Promise<Schemas["Quote"]> {
    const { signal, ...rest } = fields;
    return this.request("POST", "/v1/quote", { body: { ...messagesOf(request), ...rest }, signal });
  }

  trace(requestId: string, options: CallOptions = {}): Promise<Schemas["AgentTrace"]> {
    return this.request("GET", `${executionPath(requestId)}/trace`, options);
  }

  /** Yield the recorded steps, page by page. */
  steps(
    requestId: string,
    query: NonNullable<operations["listExecutionSteps"]["parameters"]["query"]> = {},
    options: CallOptions = {},
  ): AsyncGenerator<Schemas["StepPage"]["data"][number], void, undefined> {
    return paged(this.#transport, `${executionPath(requestId)}/steps`, query as Query, options);
  }

  /** Return the request of an execution as it was admitted. */
  input(requestId: string, options: CallOptions = {}): Promise<SystemRequest> {
    return this.request("GET", `${executionPath(requestId)}/input`, options);
  }

  /** Send any request, and return its JSON, null if there is none. */
  request<T = unknown>(method: string, path: string, sent: Sent = {}): Promise<T> {
    return this.#transport.json<T>(method, path, sent);
  }

  #follow(requestId: string, after: number, newest: number, options: CallOptions): ExecutionStream {
    const source: Source = { requestId, after, newest, cancels: false, signal: options.signal };
    return new ExecutionStream(this.#transport, source);
  }

  /** Return the response of an answer; an execution that goes on elsewhere is waited for. */
  async #settled(answer: unknown, signal?: AbortSignal): Promise<SystemResponse> {
    if (typeof answer !== "object" || answer === null || !("request_id" in answer)) {
      throw new ConnectionFailure({ message: "The answer is no response of Portico." });
    }
    if ("token_usage" in answer) return unlessFailed(answer as SystemResponse);
    return this.wait((answer as ExecutionView).request_id, signal ? { signal } : {});
  }

  /** Answer each suspension once, as long as there are answers; tools run at the same time. */
  async #answered(
    first: SystemResponse,
    tools: readonly (Tool | string)[],
    { onSuspension, signal }: { onSuspension: ExecuteOptions["onSuspension"]; signal: AbortSignal | undefined },
  ): Promise<SystemResponse> {
    const seen = new Set<string>();
    for (let response = first; ; ) {
      const asked = response.suspensions.filter((each) => !seen.has(each.suspension_id)).slice(0, 32);
      const running = asked.map((each) => answerOf(tools, each));
      const answers: Schemas["GivenAnswer"][] = [];
      for (const [index, suspension] of asked.entries()) {
        seen.add(suspension.suspension_id);
        const payload = await (running[index] ?? onSuspension?.(suspension));
        if (payload !== undefined) answers.push({ suspension_id: suspension.suspension_id, payload });
      }
      if (answers.length === 0) return response;
      response = await this.resume(response.request_id, { answers }, signal ? { signal } : {});
    }
  }
}

function unlessFailed(response: SystemResponse): SystemResponse {
  const error = failureOf(response);
  if (error) throw error;
  return response;
}

function messagesOf(request: string | SystemRequest): SystemRequest {
  return typeof request === "string" ? { messages: [{ role: "user", content: request }] } : request;
}

/** Return body and headers of a call, with the id and the key that make it safe to repeat. */
function prepared(request: string | SystemRequest, fields: RequestFields) {
  const { signal, onSuspension, ...rest } = fields;
  const body: SystemRequest = { ...messagesOf(request), ...rest };
  const headers: Record<string, string> = {};
  if (body.store !== false) {
    body.request_id ??= crypto.randomUUID();
    headers["Idempotency-Key"] = crypto.randomUUID();
  }
  return { body, headers };
}

