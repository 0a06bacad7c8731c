"""Failure taxonomy: one row per code, one exception class per category.

    Failure
    ├── InferenceFailure       a model could not be asked, or its answer is not usable
    ├── ToolFailure            a tool is missing, refused, failed, or may have acted
    ├── ConstraintFailure      an answer does not have the required format
    ├── ValidationFailure      an answer has the required format, but breaks a rule
    ├── OrchestrationFailure   the execution reached a limit or broke an invariant
    ├── ConfigurationFailure   the deployment or the request's contract is not usable
    ├── Cancellation           a client, a signal or the deadline ended the execution
    ├── RequestFailure         the request cannot be accepted
    ├── AccessFailure          the caller is not authenticated or not permitted
    └── StorageFailure         the state could not be stored or read

The first seven are the boundary seed's; the last three hold what the seeds raise but do not place. Every status,
retryability and description on the wire is read from `TAXONOMY` and nowhere else: `/v1/errors`, OpenAPI and README
print this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

from portico.domain.value import value


class Category(StrEnum):
    """Category of a failure; it decides who may recover from it."""

    INFERENCE = "InferenceFailure"
    TOOL = "ToolFailure"
    CONSTRAINT = "ConstraintFailure"
    VALIDATION = "ValidationFailure"
    ORCHESTRATION = "OrchestrationFailure"
    CONFIGURATION = "ConfigurationFailure"
    CANCELLATION = "Cancellation"
    REQUEST = "RequestFailure"
    ACCESS = "AccessFailure"
    STORAGE = "StorageFailure"


class Code(StrEnum):
    """Stable error code; clients switch on it."""

    INFERENCE_ENGINE_ERROR = "INFERENCE_ENGINE_ERROR"
    INFERENCE_MODEL_UNAVAILABLE = "INFERENCE_MODEL_UNAVAILABLE"
    INFERENCE_CONTEXT_EXCEEDED = "INFERENCE_CONTEXT_EXCEEDED"
    INFERENCE_MALFORMED_RESPONSE = "INFERENCE_MALFORMED_RESPONSE"
    INFERENCE_CONTENT_FILTERED = "INFERENCE_CONTENT_FILTERED"
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    TOOL_EXECUTION_FAILED = "TOOL_EXECUTION_FAILED"
    TOOL_TIMEOUT = "TOOL_TIMEOUT"
    TOOL_UNAVAILABLE = "TOOL_UNAVAILABLE"
    TOOL_OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"
    CONSTRAINT_GRAMMAR_REJECTED = "CONSTRAINT_GRAMMAR_REJECTED"
    CONSTRAINT_SCHEMA_INVALID = "CONSTRAINT_SCHEMA_INVALID"
    CONSTRAINT_JSON_INVALID = "CONSTRAINT_JSON_INVALID"
    CONSTRAINT_ENUM_UNRECOGNIZED = "CONSTRAINT_ENUM_UNRECOGNIZED"
    VALIDATION_RULE_FAILED = "VALIDATION_RULE_FAILED"
    VALIDATION_SEMANTIC_FAILED = "VALIDATION_SEMANTIC_FAILED"
    VALIDATION_INPUT_REFUSED = "VALIDATION_INPUT_REFUSED"
    ORCHESTRATION_STEP_MISMATCH = "ORCHESTRATION_STEP_MISMATCH"
    ORCHESTRATION_ITERATION_LIMIT = "ORCHESTRATION_ITERATION_LIMIT"
    ORCHESTRATION_NO_CONSENSUS = "ORCHESTRATION_NO_CONSENSUS"
    ORCHESTRATION_PLAN_REFUSED = "ORCHESTRATION_PLAN_REFUSED"
    ORCHESTRATION_DEADLOCK = "ORCHESTRATION_DEADLOCK"
    ORCHESTRATION_NODE_FAILED = "ORCHESTRATION_NODE_FAILED"
    ORCHESTRATION_BUDGET_EXCEEDED = "ORCHESTRATION_BUDGET_EXCEEDED"
    ORCHESTRATION_INVALID_TRANSITION = "ORCHESTRATION_INVALID_TRANSITION"
    ORCHESTRATION_REPLAY_DIVERGED = "ORCHESTRATION_REPLAY_DIVERGED"
    CONFIG_SCHEMA_REQUIRED = "CONFIG_SCHEMA_REQUIRED"
    CONFIG_GRAMMAR_NOT_FOUND = "CONFIG_GRAMMAR_NOT_FOUND"
    CONFIG_GRAMMAR_INVALID = "CONFIG_GRAMMAR_INVALID"
    CONFIG_SCHEMA_INVALID = "CONFIG_SCHEMA_INVALID"
    CONFIG_FLOW_INVALID = "CONFIG_FLOW_INVALID"
    CONFIG_NO_ENGINE = "CONFIG_NO_ENGINE"
    CONFIG_INVALID = "CONFIG_INVALID"
    CANCELLED_TIMEOUT = "CANCELLED_TIMEOUT"
    CANCELLED_SIGNAL = "CANCELLED_SIGNAL"
    REQUEST_INVALID = "REQUEST_INVALID"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    REQUEST_UNSUPPORTED_MEDIA = "REQUEST_UNSUPPORTED_MEDIA"
    REQUEST_NOT_FOUND = "REQUEST_NOT_FOUND"
    REQUEST_ID_CONFLICT = "REQUEST_ID_CONFLICT"
    REQUEST_RESUME_REQUIRED = "REQUEST_RESUME_REQUIRED"
    REQUEST_RESUME_UNEXPECTED = "REQUEST_RESUME_UNEXPECTED"
    REQUEST_RESUME_MISMATCH = "REQUEST_RESUME_MISMATCH"
    REQUEST_HAS_FORKS = "REQUEST_HAS_FORKS"
    REQUEST_SESSION_BUSY = "REQUEST_SESSION_BUSY"
    REQUEST_IN_PROGRESS = "REQUEST_IN_PROGRESS"
    REQUEST_IDEMPOTENCY_MISMATCH = "REQUEST_IDEMPOTENCY_MISMATCH"
    REQUEST_RATE_LIMITED = "REQUEST_RATE_LIMITED"
    REQUEST_OVERLOADED = "REQUEST_OVERLOADED"
    REQUEST_SHUTTING_DOWN = "REQUEST_SHUTTING_DOWN"
    ACCESS_UNAUTHENTICATED = "ACCESS_UNAUTHENTICATED"
    ACCESS_DENIED = "ACCESS_DENIED"
    ACCESS_UNAVAILABLE = "ACCESS_UNAVAILABLE"
    STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"
    STORAGE_FULL = "STORAGE_FULL"
    STORAGE_SNAPSHOT_INVALID = "STORAGE_SNAPSHOT_INVALID"


@value
class Variant:
    """Variant of a code: its HTTP status, and whether sending the request again may help."""

    condition: str
    status: int
    retryable: bool


@value
class FailureRow:
    """Facts about one code. The first variant applies if none is named."""

    code: Code
    category: Category
    meaning: str
    recovery: str
    variants: tuple[Variant, ...]

    def variant(self, condition: str | None) -> Variant:
        """Return the variant with that condition. Raises: KeyError if the code has none."""
        if condition is None:
            return self.variants[0]
        for variant in self.variants:
            if variant.condition == condition:
                return variant
        raise KeyError(f"{self.code} has no variant {condition!r}")


def _row(code: Code, category: Category, meaning: str, recovery: str, *variants: Variant) -> FailureRow:
    return FailureRow(code, category, meaning, recovery, variants)


def _always(status: int, *, retryable: bool = False) -> Variant:
    return Variant("always", status, retryable)


_C, _K = Code, Category
# fmt: off
_ROWS = (
    _row(_C.INFERENCE_ENGINE_ERROR, _K.INFERENCE, "The provider failed, or refused our credentials or request",
         "Retry with backoff on a transport error; else fix the engine's configuration or the request",
         Variant("transport", 502, True), Variant("refused", 500, False)),
    _row(_C.INFERENCE_MODEL_UNAVAILABLE, _K.INFERENCE, "No configured provider could be reached or had capacity",
         "Retry after Retry-After", _always(503, retryable=True)),
    _row(_C.INFERENCE_CONTEXT_EXCEEDED, _K.INFERENCE, "The request does not fit the model's context window",
         "Send less, or name a model with a larger window", _always(413)),
    _row(_C.INFERENCE_MALFORMED_RESPONSE, _K.INFERENCE, "The provider's reply was not whole or not of its protocol",
         "Retry with backoff", _always(502, retryable=True)),
    _row(_C.INFERENCE_CONTENT_FILTERED, _K.INFERENCE, "The provider refused the content",
         "Change the request", _always(422)),
    _row(_C.TOOL_NOT_FOUND, _K.TOOL, "No tool of that name was offered",
         "Name a tool from GET /v1/tools", _always(422)),
    _row(_C.TOOL_EXECUTION_FAILED, _K.TOOL, "A tool refused its arguments or failed",
         "Retry the tool or skip it", Variant("idempotent", 502, True), Variant("not idempotent", 500, False)),
    _row(_C.TOOL_TIMEOUT, _K.TOOL, "A tool did not finish in its time",
         "Retry the tool or skip it", Variant("idempotent", 504, True), Variant("not idempotent", 500, False)),
    _row(_C.TOOL_UNAVAILABLE, _K.TOOL, "A tool cannot run right now",
         "Retry later or skip the tool", _always(503, retryable=True)),
    _row(_C.TOOL_OUTCOME_UNKNOWN, _K.TOOL, "A tool call may or may not have happened",
         "Find out whether it happened, then answer the suspension", _always(500)),
    _row(_C.CONSTRAINT_GRAMMAR_REJECTED, _K.CONSTRAINT, "The answer does not follow the grammar",
         "Infer again", _always(502, retryable=True)),
    _row(_C.CONSTRAINT_SCHEMA_INVALID, _K.CONSTRAINT, "The answer does not fit the schema",
         "Infer again", _always(502, retryable=True)),
    _row(_C.CONSTRAINT_JSON_INVALID, _K.CONSTRAINT, "The answer contains no JSON value",
         "Repair, or infer again", _always(502, retryable=True)),
    _row(_C.CONSTRAINT_ENUM_UNRECOGNIZED, _K.CONSTRAINT, "The answer names a value outside an enumeration",
         "Infer again", _always(502, retryable=True)),
    _row(_C.VALIDATION_RULE_FAILED, _K.VALIDATION, "The answer breaks a rule",
         "Infer again with the violations", _always(502, retryable=True)),
    _row(_C.VALIDATION_SEMANTIC_FAILED, _K.VALIDATION, "A judge found that the answer does not serve its intent",
         "Infer again with the judge's reasons", _always(502, retryable=True)),
    _row(_C.VALIDATION_INPUT_REFUSED, _K.VALIDATION, "A guard or a rule of the request refused the input",
         "Change the input; details.guard names the guard", _always(422)),
    _row(_C.ORCHESTRATION_STEP_MISMATCH, _K.ORCHESTRATION, "A plan step received an input of the wrong type",
         "Change the plan", _always(422)),
    _row(_C.ORCHESTRATION_ITERATION_LIMIT, _K.ORCHESTRATION, "More tool rounds or flow steps than are allowed",
         "Raise limits.tool_rounds or limits.flow_steps, or simplify", _always(422)),
    _row(_C.ORCHESTRATION_NO_CONSENSUS, _K.ORCHESTRATION, "The replicas did not agree enough",
         "Lower the quorum or change the question", _always(422)),
    _row(_C.ORCHESTRATION_PLAN_REFUSED, _K.ORCHESTRATION, "The plan breaks its policy",
         "Change the plan or the policy", _always(422)),
    _row(_C.ORCHESTRATION_DEADLOCK, _K.ORCHESTRATION, "No node of the flow can fire",
         "Fix the flow", _always(422)),
    _row(_C.ORCHESTRATION_NODE_FAILED, _K.ORCHESTRATION, "A node's function failed",
         "See the log", _always(422)),
    _row(_C.ORCHESTRATION_BUDGET_EXCEEDED, _K.ORCHESTRATION, "The token or cost budget is spent",
         "Raise limits.tokens or limits.cost", _always(422)),
    _row(_C.ORCHESTRATION_INVALID_TRANSITION, _K.ORCHESTRATION, "A state machine refused a transition: a service bug",
         "Report it with the request_id", _always(500)),
    _row(_C.ORCHESTRATION_REPLAY_DIVERGED, _K.ORCHESTRATION, "A replay asked for another step than the recorded one",
         "Report it with the request_id", _always(500)),
    _row(_C.CONFIG_SCHEMA_REQUIRED, _K.CONFIGURATION, "The mode needs output.schema or output.grammar",
         "Send output.schema or output.grammar", _always(422)),
    _row(_C.CONFIG_GRAMMAR_NOT_FOUND, _K.CONFIGURATION, "No grammar of that name is registered",
         "Send the grammar itself or a registered name", _always(422)),
    _row(_C.CONFIG_GRAMMAR_INVALID, _K.CONFIGURATION, "The grammar cannot be used",
         "Fix the grammar at the line and column given", _always(422)),
    _row(_C.CONFIG_SCHEMA_INVALID, _K.CONFIGURATION, "The schema cannot be used",
         "Fix the schema at the path given", _always(422)),
    _row(_C.CONFIG_FLOW_INVALID, _K.CONFIGURATION, "The flow does not exist or cannot be built",
         "Name a flow from GET /v1/flows", _always(422)),
    _row(_C.CONFIG_NO_ENGINE, _K.CONFIGURATION, "No engine is configured",
         "Add an [engines.NAME] table", _always(500)),
    _row(_C.CONFIG_INVALID, _K.CONFIGURATION, "The configuration cannot be used",
         "Fix the key that the message names", _always(500)),
    _row(_C.CANCELLED_TIMEOUT, _K.CANCELLATION, "The deadline passed",
         "Send the request again with a larger hints.timeout", _always(504)),
    _row(_C.CANCELLED_SIGNAL, _K.CANCELLATION, "The execution was cancelled",
         "Send the request again", _always(409)),
    _row(_C.REQUEST_INVALID, _K.REQUEST, "The request is not a valid SystemRequest",
         "Fix the fields that details.errors names",
         Variant("content", 422, False), Variant("syntax", 400, False)),
    _row(_C.REQUEST_TOO_LARGE, _K.REQUEST, "The body, a document or the memory of a tenant is larger than its limit",
         "Send less", _always(413)),
    _row(_C.REQUEST_UNSUPPORTED_MEDIA, _K.REQUEST, "The body is not plain application/json",
         "Send Content-Type: application/json, uncompressed", _always(415)),
    _row(_C.REQUEST_NOT_FOUND, _K.REQUEST, "There is nothing under that path or id",
         "Check the path", Variant("path", 404, False), Variant("method", 405, False)),
    _row(_C.REQUEST_ID_CONFLICT, _K.REQUEST, "The request_id is in use, or another user shares a document of that id",
         "Send a new one", _always(409)),
    _row(_C.REQUEST_RESUME_REQUIRED, _K.REQUEST, "The session waits for a resume",
         "Resume or cancel its execution first", _always(409)),
    _row(_C.REQUEST_RESUME_UNEXPECTED, _K.REQUEST, "The execution is not suspended",
         "Read its state first", _always(409)),
    _row(_C.REQUEST_RESUME_MISMATCH, _K.REQUEST, "No open suspension matches, or more than one does",
         "Name the suspension_id", _always(409)),
    _row(_C.REQUEST_HAS_FORKS, _K.REQUEST, "Forks hold messages of what is to be deleted",
         "Delete the executions that details.forks names, or send ?forks=delete", _always(409)),
    _row(_C.REQUEST_SESSION_BUSY, _K.REQUEST, "The session's last turn is still running",
         "Retry after Retry-After, or send if_session_busy: enqueue", _always(409, retryable=True)),
    _row(_C.REQUEST_IN_PROGRESS, _K.REQUEST, "The first request with this Idempotency-Key is still running",
         "Retry after Retry-After", _always(409, retryable=True)),
    _row(_C.REQUEST_IDEMPOTENCY_MISMATCH, _K.REQUEST, "The Idempotency-Key was used with another body",
         "Send a new key", _always(422)),
    _row(_C.REQUEST_RATE_LIMITED, _K.REQUEST, "The caller's rate is used up",
         "Retry after Retry-After", _always(429, retryable=True)),
    _row(_C.REQUEST_OVERLOADED, _K.REQUEST, "The service is at its limit of running executions",
         "Retry after Retry-After", _always(503, retryable=True)),
    _row(_C.REQUEST_SHUTTING_DOWN, _K.REQUEST, "This replica is stopping",
         "Retry: another replica answers", _always(503, retryable=True)),
    _row(_C.ACCESS_UNAUTHENTICATED, _K.ACCESS, "No valid key or token",
         "Send Authorization: Bearer", _always(401)),
    _row(_C.ACCESS_DENIED, _K.ACCESS, "The caller is not permitted to do this",
         "Ask for the permission", _always(403)),
    _row(_C.ACCESS_UNAVAILABLE, _K.ACCESS, "The keys of the tokens' issuer are not available",
         "Retry after Retry-After", _always(503, retryable=True)),
    _row(_C.STORAGE_UNAVAILABLE, _K.STORAGE, "The database does not answer",
         "Retry after Retry-After", _always(503, retryable=True)),
    _row(_C.STORAGE_FULL, _K.STORAGE, "The database is full",
         "Free space, then retry", _always(503, retryable=True)),
    _row(_C.STORAGE_SNAPSHOT_INVALID, _K.STORAGE, "The stored state belongs to another version",
         "Start a new execution; the stored state is kept", _always(409)),
)
# fmt: on
TAXONOMY: Mapping[Code, FailureRow] = MappingProxyType({row.code: row for row in _ROWS})


@dataclass(eq=False)
class Failure(Exception):  # noqa: N818 - the taxonomy's word; the wire calls it a SystemError
    """Failure with a row in the taxonomy; callers see it as a `SystemError`.

    `message` is for people and never contains input, credentials or upstream bodies; `details` are for programs.
    `condition` names the variant of the row (None: its first). `retry_after` is in seconds.
    """

    code: Code
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    condition: str | None = None
    retry_after: float | None = None

    category: ClassVar[Category]

    def __post_init__(self) -> None:
        super().__init__(f"{self.code}: {self.message}")
        if TAXONOMY[self.code].category is not self.category:
            raise ValueError(f"{self.code} is not a code of {self.category}")

    @property
    def variant(self) -> Variant:
        return TAXONOMY[self.code].variant(self.condition)

    @property
    def retryable(self) -> bool:
        return self.variant.retryable

    @property
    def status(self) -> int:
        """Return the HTTP status of this failure."""
        return self.variant.status


class InferenceFailure(Failure):
    """Failure to ask a model, or to use its answer."""

    category = Category.INFERENCE


class ToolFailure(Failure):
    """Failure of a tool that is missing, refused, failed, or may have acted."""

    category = Category.TOOL


class ConstraintFailure(Failure):
    """Failure of an answer that does not have the required format."""

    category = Category.CONSTRAINT


class ValidationFailure(Failure):
    """Failure of an answer that has the required format, or of an input, because it breaks a rule."""

    category = Category.VALIDATION


class OrchestrationFailure(Failure):
    """Failure of an execution that reached a limit or broke an invariant."""

    category = Category.ORCHESTRATION


class ConfigurationFailure(Failure):
    """Failure of a deployment, or of a request's own contract, that is not usable."""

    category = Category.CONFIGURATION


class Cancellation(Failure):
    """End of an execution by a client, a signal or the deadline."""

    category = Category.CANCELLATION


class RequestFailure(Failure):
    """Failure of a request that cannot be accepted."""

    category = Category.REQUEST


class AccessFailure(Failure):
    """Failure of a caller who is not authenticated or not permitted."""

    category = Category.ACCESS


class StorageFailure(Failure):
    """Failure to store or read the state."""

    category = Category.STORAGE


FAILURES: Mapping[Category, type[Failure]] = MappingProxyType(
    {kind.category: kind for kind in Failure.__subclasses__()}
)


def invalid_request(*errors: tuple[str, str]) -> RequestFailure:
    """Return the refusal of a request for these fields, each by its path and with what is wrong with it."""
    summary = "; ".join(f"{field}: {message}" for field, message in errors)
    details = {"errors": [{"field": field, "message": message} for field, message in errors]}
    return RequestFailure(Code.REQUEST_INVALID, summary, details)


def failure(
    code: Code, message: str, *, details: Mapping[str, Any] | None = None, condition: str | None = None
) -> Failure:
    """Return the failure of that code, as an instance of its category's exception class."""
    return FAILURES[TAXONOMY[code].category](code, message, dict(details or {}), condition)
