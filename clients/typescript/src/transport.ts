/** One request with its retries: what may be sent again, and when. */
import { ConnectionFailure, PorticoError, TimeoutFailure, refusal } from "./errors.js";

const FIRST_WAIT_S = 0.5;
const LONGEST_WAIT_S = 8;
const REPEATABLE = new Set(["GET", "PUT", "DELETE"]);
/** Errors of Node before a connection is there; a browser tells no difference. */
const NOT_CONNECTED = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

export interface Options {
  /** URL of the service. Default: `PORTICO_URL`, else http://127.0.0.1:8080; "" is the page's own origin. */
  baseUrl?: string;
  /** API key or token. Default: `PORTICO_KEY`. */
  key?: string;
  /** Seconds that a call may take with its retries, and a stream may be silent. Default: 600. */
  timeout?: number;
  /** Retries of a request. Default: 2. */
  retries?: number;
  fetch?: typeof fetch;
}

export type Query = Record<string, string | number | boolean | null | undefined | readonly string[]>;

export interface Sent {
  query?: Query;
  /** Value to send as JSON; a `Uint8Array` or a `Blob` is sent as it is. */
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

interface Environment {
  process?: { env?: Record<string, string | undefined> };
}

export class Transport {
  readonly timeoutMs: number;
  readonly #baseUrl: string;
  readonly #key: string | undefined;
  readonly #retries: number;
  readonly #fetch: typeof fetch;

  constructor(options: Options) {
    const environment = (globalThis as Environment).process?.env ?? {};
    this.#baseUrl = (options.baseUrl ?? environment["PORTICO_URL"] ?? "http://127.0.0.1:8080").replace(/\/+$/, "");
    this.#key = options.key ?? environment["PORTICO_KEY"];
    this.timeoutMs = (options.timeout ?? 600) * 1000;
    this.#retries = options.retries ?? 2;
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
    if (!(this.timeoutMs > 0)) throw new RangeError("timeout must be a number of seconds above 0");
    if (!(this.#retries >= 0)) throw new RangeError("retries must be 0 or more");
  }

  /** Send a request, and return its JSON or null. Throws: PorticoError, or what the signal was aborted with. */
  async json<T = unknown>(method: string, path: string, sent: Sent = {}): Promise<T> {
    return this.#retried(method, sent, true, async (signal) => {
      const response = await this.#ask(method, path, sent, signal);
      const text = await response.text();
      try {
        return (text === "" ? null : JSON.parse(text)) as T;
      } catch (cause) {
        const message = `status ${response.status} with a body that is not JSON, or was cut short`;
        throw new ConnectionFailure({ message, status: response.status }, { cause });
      }
    });
  }

  /** Send a request and return its bytes. */
  async bytes(method: string, path: string, sent: Sent = {}): Promise<Uint8Array> {
    return this.#retried(method, sent, true, async (signal) => {
      const response = await this.#ask(method, path, sent, signal);
      return new Uint8Array(await response.arrayBuffer());
    });
  }

  /** Send a request and return the response once it has begun; a first request in progress is left to the caller. */
  async open(method: string, path: string, sent: Sent = {}): Promise<Response> {
    const headers = { Accept: "text/event-stream, application/json;q=0.5", ...sent.headers };
    return this.#retried(method, sent, false, () => {
      return this.within(this.#ask(method, path, { ...sent, headers }, sent.signal));
    });
  }

  /** Return what the promise resolves to. Throws: ConnectionFailure after the timeout. */
  async within<T>(promise: Promise<T>): Promise<T> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const expired = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(this.#timedOut()), this.timeoutMs);
    });
    try {
      return await Promise.race([promise, expired]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #retried<T>(
    method: string,
    sent: Sent,
    waitsForFirst: boolean,
    attempt: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const expired = new AbortController();
    const timer = setTimeout(() => expired.abort(), this.timeoutMs);
    const signal = sent.signal ? AbortSignal.any([sent.signal, expired.signal]) : expired.signal;
    const isRepeatable = REPEATABLE.has(method) || sent.headers?.["Idempotency-Key"] !== undefined;
    try {
      for (let tries = 0; ; ) {
        signal.throwIfAborted();
        try {
          return await attempt(signal);
        } catch (error) {
          signal.throwIfAborted();
          const inProgress = error instanceof PorticoError && error.code === "REQUEST_IN_PROGRESS";
          if (inProgress ? !waitsForFirst : tries >= this.#retries) throw failure(error);
          if (!mayRetry(error, isRepeatable)) throw failure(error);
          await pause(retryAfter(error) ?? backoff(tries), signal);
          if (!inProgress) tries += 1;
        }
      }
    } catch (error) {
      sent.signal?.throwIfAborted();
      throw expired.signal.aborted ? this.#timedOut(error) : error;
    } finally {
      clearTimeout(timer);
    }
  }

  async #ask(method: string, path: string, sent: Sent, signal?: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = { Accept: "application/json", ...sent.headers };
    if (this.#key) headers["Authorization"] = `Bearer ${this.#key}`;
    const init: RequestInit = { method, headers, redirect: "manual", signal: signal ?? null };
    if (sent.body instanceof Uint8Array || sent.body instanceof Blob) {
      headers["Content-Type"] ??= "application/octet-stream";
      init.body = sent.body as BodyInit;
    } else if (sent.body !== undefined) {
      headers["Content-Type"] ??= "application/json";
      init.body = JSON.stringify(sent.body);
    }
    const response = await this.#fetch(this.#baseUrl + path + queryOf(sent.query), init);
    if (response.ok) return response;
    const error = refusal(response.status, await response.text(), response.headers.get("x-request-id"));
    HEADERS.set(error, response.headers);
    throw error;
  }

  #timedOut(cause?: unknown): TimeoutFailure {
    return new TimeoutFailure({ message: `Timed out after ${this.timeoutMs / 1000} seconds.` }, { cause });
  }
}

const HEADERS = new WeakMap<PorticoError, Headers>();

/** Return the error as one of the package. */
export function failure(error: unknown): PorticoError {
  if (error instanceof PorticoError) return error;
  const cause = (error as { cause?: { message?: string } } | null)?.cause;
  const reason = cause?.message || (error instanceof Error ? error.message : String(error));
  return new ConnectionFailure({ message: `The connection failed: ${reason}` }, { cause: error });
}

function mayRetry(error: unknown, isRepeatable: boolean): boolean {
  if (error instanceof PorticoError && HEADERS.has(error)) {
    return HEADERS.get(error)?.get("x-should-retry") === "true";
  }
  if (isRepeatable) return true;
  const cause = (error as { cause?: { code?: string } } | null)?.cause;
  return cause?.code !== undefined && NOT_CONNECTED.has(cause.code);
}

function retryAfter(error: unknown): number | null {
  const header = error instanceof PorticoError ? HEADERS.get(error)?.get("retry-after") : null;
  const seconds = header ? Number(header) : NaN;
  return Number.isFinite(seconds) && seconds >= 0 ? seconds : null;
}

/** Return the seconds to wait after that many tries, with jitter. */
export function backoff(tries: number): number {
  return Math.min(FIRST_WAIT_S * 2 ** tries, LONGEST_WAIT_S) * (0.75 + Math.random() / 4);
}

/** Wait that many seconds. Throws: what the signal was aborted with. */
export async function pause(seconds: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

function queryOf(query: Query | undefined): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const each of Array.isArray(value) ? (value as readonly string[]) : [value]) {
      if (each !== undefined && each !== null) pairs.append(name, String(each));
    }
  }
  return pairs.size > 0 ? `?${pairs.toString()}` : "";
}
