/** The failures that calls throw. */
import type { components } from "./api.js";

type Schemas = components["schemas"];

/** What is known of a failure. */
export interface Failure {
  code?: string | null;
  category?: string | null;
  message: string;
  details?: Record<string, unknown>;
  retryable?: boolean;
  status?: number | null;
  requestId?: string | null;
  response?: Schemas["SystemResponse"] | null;
}

/** A failure that the service reports. `code` is stable; `GET /v1/errors` lists all. */
export class PorticoError extends Error {
  readonly code: string | null;
  readonly category: string | null;
  readonly details: Record<string, unknown>;
  readonly retryable: boolean;
  /** Status of the answer; null if the failure ended a stream, or nothing was answered. */
  readonly status: number | null;
  readonly requestId: string | null;
  /** Response of the execution that failed, with its partial content; null if the request was refused. */
  readonly response: Schemas["SystemResponse"] | null;

  constructor(failure: Failure, options?: ErrorOptions) {
    super(failure.message, options);
    this.name = new.target.name;
    this.code = failure.code ?? null;
    this.category = failure.category ?? null;
    this.details = failure.details ?? {};
    this.retryable = failure.retryable ?? false;
    this.status = failure.status ?? null;
    this.requestId = failure.requestId ?? null;
    this.response = failure.response ?? null;
  }
}

/** No answer of the service arrived whole: no connection, a broken one, a timeout, or an answer of something else. */
export class ConnectionFailure extends PorticoError {}
/** No answer arrived within the timeout of the client. */
export class TimeoutFailure extends ConnectionFailure {}

export class InferenceFailure extends PorticoError {}
export class ToolFailure extends PorticoError {}
export class ConstraintFailure extends PorticoError {}
export class ValidationFailure extends PorticoError {}
export class OrchestrationFailure extends PorticoError {}
export class ConfigurationFailure extends PorticoError {}
export class Cancellation extends PorticoError {}
export class RequestFailure extends PorticoError {}
export class AccessFailure extends PorticoError {}
export class StorageFailure extends PorticoError {}

const CATEGORIES = new Map<unknown, typeof PorticoError>(
  Object.entries({
    InferenceFailure,
    ToolFailure,
    ConstraintFailure,
    ValidationFailure,
    OrchestrationFailure,
    ConfigurationFailure,
    Cancellation,
    RequestFailure,
    AccessFailure,
    StorageFailure,
  } satisfies Record<Schemas["Category"], typeof PorticoError>),
);

/** Return the failure with the class of its category; one of a newer service is a `PorticoError`. */
export function classified(failure: Failure): PorticoError {
  return new (CATEGORIES.get(failure.category) ?? PorticoError)(failure);
}

/** Return the failure of an execution; null if it did not fail. */
export function failureOf(response: Schemas["SystemResponse"], status: number | null = null): PorticoError | null {
  if (!response.error) return null;
  return classified({ ...response.error, status, requestId: response.request_id, response });
}

/** Return the failure that an answer without success reports. */
export function refusal(status: number, body: string, requestId: string | null): PorticoError {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    parsed = null;
  }
  if (isObject(parsed)) {
    const error = parsed["error"];
    if (isObject(error) && typeof error["code"] === "string" && "token_usage" in parsed) {
      const response = parsed as unknown as Schemas["SystemResponse"];
      return failureOf(response, status) as PorticoError;
    }
    if (typeof parsed["code"] === "string" && typeof parsed["message"] === "string") {
      const problem = parsed as unknown as Schemas["Problem"];
      return classified({ ...problem, details: problem.details ?? {}, requestId: problem.request_id, status });
    }
  }
  return new ConnectionFailure({ message: `status ${status} with a body that is not Portico's`, status, requestId });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
