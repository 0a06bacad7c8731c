# ruff: noqa: E501
"""Types of the API, generated from openapi/openapi.json by `make clients-types`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

ApprovalReason: TypeAlias = Literal["rule", "repeated", "untrusted_text", "tool"]

AttemptFailureReason: TypeAlias = Literal[
    "rate_limited",
    "overloaded",
    "server_error",
    "broken",
    "malformed",
    "timed_out",
    "unreachable",
    "tls",
    "credentials",
    "quota",
    "model_missing",
    "breaker_open",
    "context_exceeded",
    "refused",
    "content_filtered",
    "over_budget",
    "over_limit",
    "limit_unknown",
    "limited",
    "kept_refused",
]

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]

Category: TypeAlias = Literal[
    "InferenceFailure",
    "ToolFailure",
    "ConstraintFailure",
    "ValidationFailure",
    "OrchestrationFailure",
    "ConfigurationFailure",
    "Cancellation",
    "RequestFailure",
    "AccessFailure",
    "StorageFailure",
]

Code: TypeAlias = Literal[
    "INFERENCE_ENGINE_ERROR",
    "INFERENCE_MODEL_UNAVAILABLE",
    "INFERENCE_CONTEXT_EXCEEDED",
    "INFERENCE_MALFORMED_RESPONSE",
    "INFERENCE_CONTENT_FILTERED",
    "TOOL_NOT_FOUND",
    "TOOL_EXECUTION_FAILED",
    "TOOL_TIMEOUT",
    "TOOL_UNAVAILABLE",
    "TOOL_OUTCOME_UNKNOWN",
    "CONSTRAINT_GRAMMAR_REJECTED",
    "CONSTRAINT_SCHEMA_INVALID",
    "CONSTRAINT_JSON_INVALID",
    "CONSTRAINT_ENUM_UNRECOGNIZED",
    "VALIDATION_RULE_FAILED",
    "VALIDATION_SEMANTIC_FAILED",
    "VALIDATION_INPUT_REFUSED",
    "ORCHESTRATION_STEP_MISMATCH",
    "ORCHESTRATION_ITERATION_LIMIT",
    "ORCHESTRATION_NO_CONSENSUS",
    "ORCHESTRATION_PLAN_REFUSED",
    "ORCHESTRATION_DEADLOCK",
    "ORCHESTRATION_NODE_FAILED",
    "ORCHESTRATION_BUDGET_EXCEEDED",
    "ORCHESTRATION_INVALID_TRANSITION",
    "ORCHESTRATION_REPLAY_DIVERGED",
    "CONFIG_SCHEMA_REQUIRED",
    "CONFIG_GRAMMAR_NOT_FOUND",
    "CONFIG_GRAMMAR_INVALID",
    "CONFIG_SCHEMA_INVALID",
    "CONFIG_FLOW_INVALID",
    "CONFIG_NO_ENGINE",
    "CONFIG_INVALID",
    "CANCELLED_TIMEOUT",
    "CANCELLED_SIGNAL",
    "REQUEST_INVALID",
    "REQUEST_TOO_LARGE",
    "REQUEST_UNSUPPORTED_MEDIA",
    "REQUEST_NOT_FOUND",
    "REQUEST_ID_CONFLICT",
    "REQUEST_RESUME_REQUIRED",
    "REQUEST_RESUME_UNEXPECTED",
    "REQUEST_RESUME_MISMATCH",
    "REQUEST_HAS_FORKS",
    "REQUEST_SESSION_BUSY",
    "REQUEST_IN_PROGRESS",
    "REQUEST_IDEMPOTENCY_MISMATCH",
    "REQUEST_RATE_LIMITED",
    "REQUEST_OVERLOADED",
    "REQUEST_SHUTTING_DOWN",
    "ACCESS_UNAUTHENTICATED",
    "ACCESS_DENIED",
    "ACCESS_UNAVAILABLE",
    "STORAGE_UNAVAILABLE",
    "STORAGE_FULL",
    "STORAGE_SNAPSHOT_INVALID",
]

ConfidenceSource: TypeAlias = Literal["voting", "validation", "retrieval"]

CredentialType: TypeAlias = Literal["secret", "request", "client_credentials"]

DecisionVerdict: TypeAlias = Literal["approved", "denied", "granted", "expired"]

DeploymentState: TypeAlias = Literal["available", "resting", "ejected", "refused"]

FallbackEvent: TypeAlias = Literal[
    "START", "PROVIDER_SUCCESS", "RETRYABLE_ERROR", "FATAL_ERROR", "USER_ABORT", "TIMEOUT"
]

FallbackState: TypeAlias = Literal["IDLE", "SELECTING", "ATTEMPTING", "RETRYING", "SUCCEEDED", "EXHAUSTED", "ABORTED"]

FormatEnforcement: TypeAlias = Literal["schema", "grammar", "submit", "contract"]

JsonValue: TypeAlias = Any

LegState: TypeAlias = Literal["answered", "failed", "skipped"]

LifecycleState: TypeAlias = Literal[
    "INIT", "PLAN", "PREPARE", "EXECUTE", "SUSPENDED", "VALIDATE", "COMPLETE", "ERROR", "CANCELLED"
]

Mode: TypeAlias = Literal["chat", "structured", "plan", "redundant", "flow"]

Origin: TypeAlias = Literal[
    "trusted", "model", "client", "tool", "retrieved", "fetched", "summary", "untrusted_summary", "skill"
]

PromptId: TypeAlias = Literal[
    "PLAN_GENERATION_SYSTEM",
    "PLAN_GENERATION_USER",
    "REASONING_STEP_SYSTEM",
    "REASONING_STEP_USER",
    "VALIDATION_SEMANTIC_SYSTEM",
    "VALIDATION_SEMANTIC_USER",
    "CONVERGENCE_ASSESSMENT_SYSTEM",
    "CONVERGENCE_ASSESSMENT_USER",
    "TASKPROFILE_INFERENCE_SYSTEM",
    "TASKPROFILE_INFERENCE_USER",
    "TASKPROFILE_UPDATE_SYSTEM",
    "TASKPROFILE_UPDATE_USER",
    "RECURSIVE_PLAN_GENERATION_USER",
    "RECURSIVE_SUBPLAN_GENERATION_USER",
    "RECURSIVE_REFINEMENT_SYSTEM",
    "RECURSIVE_REFINEMENT_USER",
    "SUPERVISOR_REPAIR_SYSTEM",
    "SUPERVISOR_REPAIR_JSON_USER",
    "SUPERVISOR_REPAIR_TOOLCALL_USER",
    "SUPERVISOR_REPAIR_PLAN_USER",
    "SUPERVISOR_REPAIR_MISSINGTOOL_USER",
    "ANSWER_SYNTHESIS_SYSTEM",
    "ANSWER_SYNTHESIS_USER",
    "ANSWER_JUDGEMENT_SYSTEM",
    "ANSWER_JUDGEMENT_USER",
    "INPUT_JUDGEMENT_SYSTEM",
    "INPUT_JUDGEMENT_USER",
    "STRUCTURED_CONTRACT_SYSTEM",
    "GRAMMAR_CONTRACT_SYSTEM",
    "STRUCTURED_ANSWER_USER",
    "STRUCTURED_VIOLATIONS_USER",
    "SUBMIT_TOOL_DESCRIPTION",
    "RETRIEVED_CONTEXT_USER",
    "SESSION_SUMMARY_USER",
    "EARLIER_TURNS_USER",
]

RunOutcome: TypeAlias = Literal["started", "skipped", "missed", "refused"]

SideEffects: TypeAlias = Literal["none", "read", "write", "external"]

StepStatus: TypeAlias = Literal["pending", "completed", "failed", "skipped", "cancelled"]

SuspensionKind: TypeAlias = Literal["question", "flow", "approval", "unknown_outcome", "client_tool", "authorization"]

ToolCallStatus: TypeAlias = Literal["waiting", "done", "failed", "not_run"]


class AgentList(TypedDict):
    data: list[AgentView]
    """Items."""


class AgentRecord(TypedDict):
    """The conversation of an agent. Its model and its system prompt are those of its first inference."""

    calls: NotRequired[list[PendingCall]]
    """Calls of the last reply, while some have no result."""
    is_working: NotRequired[bool]
    """True while the agent has a task. Default: false."""
    messages: NotRequired[list[ModelMessage | Message]]
    """The conversation."""
    model: str
    """Route or engine."""
    preamble: str
    """System prompt."""
    rejections: NotRequired[int]
    """Answers to this task that were rejected. Default: 0."""
    tool_rounds: NotRequired[int]
    """Tool rounds of this task. Default: 0."""


class AgentTrace(TypedDict):
    """Summary of one execution, from its first event to its last so far."""

    agent: str | None
    """The agent that the request names."""
    attempts: list[TracedAttempt]
    """All provider attempts, in the order in which they started."""
    completed_at: str | None
    """End time; null until the execution has ended."""
    context: TracedContext | None
    """The context of the first inference; null before PREPARE has ended."""
    error: SystemError | None
    """The failure that ended it."""
    fallback_attempts: int
    """Attempts after the first one of each inference."""
    inferences: list[TracedInference]
    """The context of each inference, in order."""
    model_used: str | None
    """Its model."""
    outcome: LifecycleState
    """The state of its lifecycle."""
    provider_used: str | None
    """The engine that answered last."""
    request_id: str
    """The request's id."""
    session_id: str | None
    """The session's id."""
    stages: list[TracedStage]
    """The stages that have ended, in order."""
    started_at: str
    """Start time."""
    tool_calls: list[TracedToolCall]
    """All attempts at tool calls, in the order in which they started."""
    total_tokens: TokenUsage
    """Tokens of all attempts."""
    trace_id: str
    """The trace's id."""


class AgentView(TypedDict):
    """A configured agent as GET /v1/agents shows it, without its prompt."""

    description: str
    """What it does, as the models read it that may call it."""
    idempotent: bool
    """True if no tool that it reaches is unsafe to call twice."""
    limits: dict[str, int | float]
    """Its limits, which a request can only lower."""
    mode: Mode
    """The mode of its executions."""
    model: str | None
    """Its route or engine; null: the request's or its session's."""
    name: str
    """The agent's name; `agent` in a request."""
    output_schema: dict[str, JsonValue] | None
    """JSON Schema of its answers."""
    side_effects: SideEffects
    """The worst effect of the tools that it reaches."""
    skills: list[str]
    """Its skills."""
    tools: list[str]
    """Its tools; `agent:NAME` is another agent."""


class Alive(TypedDict):
    """Liveness of the process."""

    alive: Literal[True]
    """Always true."""


class ApprovalGiven(TypedDict):
    """Approval of a call that more than one user must approve; `given` of the `needed` have."""

    caused_by: str | None
    given: int
    needed: int
    parent_span_id: str | None
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    suspension_id: str
    timestamp: str
    trace_id: str
    type: Literal["approval.given"]
    user: str


class AttemptBucket(TypedDict):
    """Attempts at an engine that ended within one minute."""

    attempts: int
    """Attempts that ended within it."""
    failures: int
    """Those that failed."""
    start: str
    """Begin of the minute, in UTC."""


class AudioPart(TypedDict):
    """Audio, embedded in the message of a user, or by its URL."""

    data: NotRequired[str]
    """The audio's bytes in base64."""
    media_type: Literal["audio/wav", "audio/mpeg"]
    """The audio's media type."""
    type: Literal["audio"]
    """Type of the part."""
    url: NotRequired[str | None]
    """URL from which the service fetches the bytes, once, instead of `data`; of user messages only."""


class BranchTranscript(TypedDict):
    """The conversation of one branch of an execution with a model."""

    branch: str
    """`outermost`, or the key of the branch in the journal: of a nested agent, step, replica or node."""
    messages: list[Any]
    """All messages in order, those that it began with included. Once the execution has ended, each call has a result."""
    step_name: str | None
    """The plan step, node or agent that it belongs to."""


class BranchTranscriptList(TypedDict):
    data: list[BranchTranscript]
    """Items."""


class BucketView(TypedDict):
    """The executions that were created within one bucket."""

    durations: list[int]
    """Number of those that have ended by seconds from their start to their end: a count for each of `duration_bounds`, and a last one above all of them."""
    start: str
    """Begin of the bucket, in UTC."""
    states: dict[str, int]
    """Number of executions by the state that they have now."""


class CallerLimit(TypedDict):
    """One limit of a caller, as far as this replica knows."""

    limit: int
    """Units that may be taken at once; of a cost, millionths of the currency."""
    policy: str
    """Name of the limit; those of the tenant begin with `tenant-`."""
    remaining: int
    """Units that are left of it."""
    reset_seconds: int | None
    """Seconds after which all of it is back; null of `concurrency`."""
    window_seconds: int | None
    """Seconds in which so many units come back; null of `concurrency`."""


class CallerRights(TypedDict):
    """Rights of a caller besides those on tools, models and agents."""

    act_for: bool
    """Name the user and the channel for which a request acts."""
    approve: bool
    """Decide on calls of tools that wait for a person."""
    manage_credentials: bool
    """Set and delete credentials of the tenant."""
    manage_keys: bool
    """List, make and revoke keys. Without authentication there are none."""
    manage_webhooks: bool
    """Make and change webhooks, together with `view_tenant`."""
    read_metrics: bool
    """Read the metrics on a public listener, and the health of engines."""
    send_messages: bool
    """Execute, fork, quote and resume."""
    share_memory: bool
    """Share documents within the tenant."""
    view_full_history: bool
    """Read earlier contents without redaction."""
    view_tenant: bool
    """Read the data of other users of the tenant."""


class CallerView(TypedDict):
    """The caller of a request, and the replica that answers it."""

    auth: Literal["none", "keys", "jwt"]
    """How callers are authenticated: `auth.mode` of the configuration."""
    can: CallerRights
    """What these permissions allow."""
    channel: str
    """Channel by which the request came."""
    key: str | None
    """Public id of the caller's key; null with a token, and without a key."""
    limits: list[CallerLimit]
    """Limits of the key and of the tenant; none if nothing limits it."""
    now: str
    """Time of the replica's clock."""
    permissions: list[str]
    """Names of the permissions; a trailing `*` stands for all that follows."""
    replica: str
    """Name of the replica that answers."""
    replicas: int
    """Number of replicas that are alive, this one included."""
    tenant: str
    """Tenant whose data the caller may access."""
    user: str
    """User that the caller acts for."""
    version: str
    """Version of the service."""


class ClientTool(TypedDict):
    """Tool that the client runs."""

    description: NotRequired[str]
    """What the tool does, for the model."""
    name: str
    """Name of the tool; none that the request may be offered by the service."""
    parameters: NotRequired[dict[str, JsonValue]]
    """JSON Schema of the arguments, which are an object, within the limits of `output.schema`."""


class Compare(TypedDict):
    """Rule: a value compares with another one: numbers with numbers, texts with texts, other values only for equality."""

    operator: Literal["eq", "ne", "lt", "le", "gt", "ge"]
    """Comparison of the value at `path` with the other one."""
    other: NotRequired[str | None]
    """Path of the value to compare with, instead of `value`."""
    path: str
    """Path in the structured output."""
    severity: NotRequired[Literal["error", "warning"]]
    """Severity of a violation. Default: `error`."""
    type: Literal["compare"]
    """Type of the rule."""
    value: NotRequired[JsonValue]
    """Value to compare with."""


class ConstraintRepaired(TypedDict):
    """Repairs or respellings that made an answer match its format; each has `action`, `path` and `times`. `replica` is None outside redundant mode."""

    attempt: int
    caused_by: str | None
    parent_span_id: str | None
    repairs: list[Any]
    replica: NotRequired[int | None]
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["constraint.repaired"]


class ContextAssembled(TypedDict):
    """The context of the first inference, if more than the request is in it: tokens of each term, and what was cut, redacted, chosen and retrieved. It has ids and counts and never a text."""

    caused_by: str | None
    chunks: list[ContextChunk]
    cut: HistoryCut
    excluded: list[ExcludedSkill]
    parent_span_id: str | None
    redacted: dict[str, int]
    request_id: str
    sequence_number: int
    session_id: str | None
    skills: list[UsedSkill]
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    terms: ContextTerms
    timestamp: str
    trace_id: str
    type: Literal["context.assembled"]


class ContextChunk(TypedDict):
    """A chunk of a document that was found; one that is not `used` did not fit or was refused."""

    chunk: int
    document_id: str
    score: float
    tokens: int
    used: NotRequired[bool]
    """Default: true."""


class ContextOptions(TypedDict):
    """Additional context next to the messages."""

    max_chunks: NotRequired[int | None]
    """Maximum number of chunks to retrieve; 5 if absent."""
    min_score: NotRequired[float | None]
    """Minimum score of a chunk; 0 if absent."""
    retrieve: NotRequired[bool]
    """True to search the memory with the text of the last user message. What is found stands before that message, for this execution only. Default: false."""
    skills: NotRequired[list[str] | Literal["auto"] | None]
    """Skills by name, or `auto` for those that the last user message triggers; absent: those of the agent; []: none."""


class ContextTerms(TypedDict):
    """The budget equation in tokens: the terms of its left side, and the `limit` on its right. `system` is the system prompt without skills. `history` includes a summary of earlier turns. `memory` is the retrieved context and `message` the last message."""

    history: int
    limit: NotRequired[int]
    """Default: 0."""
    memory: NotRequired[int]
    """Default: 0."""
    message: int
    skills: NotRequired[int]
    """Default: 0."""
    system: int
    tools: int


class Cost(TypedDict):
    """Cost of the tokens by the configured prices."""

    amount: float
    """Amount."""
    cache_saved: NotRequired[float | None]
    """What tokens read from and written to a cache of the provider had cost without it, less what they cost: negative if it did not pay, absent without such tokens."""
    currency: str
    """ISO 4217."""


class CredentialList(TypedDict):
    data: list[CredentialView]
    """Items."""


class CredentialRequest(TypedDict):
    """A value to store."""

    value: str
    """The value, of 8 to 8,192 characters."""


class CredentialView(TypedDict):
    """A credential without its value."""

    description: str
    """What it is for and where to get it."""
    expires_at: str | None
    """Time at which a fetched token expires; null without one."""
    name: str
    """Name of the credential."""
    owner: Literal["user", "tenant", "service"] | None
    """Owner of the value that would be used for the caller; null without any."""
    owners: list[Literal["user", "tenant", "service"]]
    """Whose values count, the first that is set; empty of type `request`."""
    rejected: bool
    """True if the value was refused elsewhere: calls wait for another one."""
    set_at: str | None
    """Time at which that value was set; null of the service."""
    type: CredentialType
    """`secret`: a value that is set; `request`: a header of the request; `client_credentials`: a token that the service fetches."""


class Custom(TypedDict):
    """Rule written in Python and registered under a name."""

    name: str
    """Registered name of the rule."""
    options: NotRequired[dict[str, JsonValue]]
    """Options of the rule."""
    path: NotRequired[str | None]
    """Path in the structured output; absent: the answer's text."""
    severity: NotRequired[Literal["error", "warning"]]
    """Severity of a violation. Default: `error`."""
    type: Literal["custom"]
    """Type of the rule."""


class DecidedBy(TypedDict):
    """User who decided about a call."""

    at: str
    """Time of the answer, or of the grant."""
    reason: NotRequired[str | None]
    """The user's comment."""
    user: str
    """The user."""


class DecisionMade(TypedDict):
    """Decision about a call that a person was asked for."""

    by: list[DecidedBy]
    """Who decided; empty if the time for it expired."""
    edited: NotRequired[bool]
    """True if the arguments were changed; absent otherwise. Default: false."""
    grant_id: NotRequired[str | None]
    """The grant that stood in for an answer; null without one."""
    verdict: DecisionVerdict
    """`approved`, `denied`, `granted` (by a grant for later calls), or `expired` (without an answer)."""


class DeliveryAccepted(TypedDict):
    """A delivery that is sent soon."""

    delivery_id: str
    """Id of the delivery: its `webhook-id`."""


class DeliveryPage(TypedDict):
    data: list[DeliveryView]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: str | None
    """Value of `after` for the next page; null on the last one."""


class DeliveryView(TypedDict):
    """A delivery without its body."""

    attempts: int
    """Number of attempts, since the last retry if there was one."""
    created_at: str
    """Time of the event."""
    delivery_id: str
    """Id of the delivery: its `webhook-id`, the same at every attempt."""
    endpoint: str
    """Name of its endpoint."""
    last_error: str | None
    """Why the last attempt delivered nothing; null if it did."""
    last_status: int | None
    """HTTP status of the last attempt; null without an answer."""
    next_at: str | None
    """Time of the next attempt; null unless it waits."""
    request_id: str | None
    """Id of the execution; null if it is about none."""
    state: Literal["waiting", "delivered", "dead"]
    """`waiting` for its first or next attempt, `delivered`, or `dead`."""
    type: str
    """Type of the event."""


class DeploymentView(TypedDict):
    """A deployment of an engine as GET /v1/engines shows it, without its key and host."""

    health: NotRequired[EngineHealth | None]
    """The last hour; only with `view=health`."""
    name: str
    """The configured name."""
    reason: AttemptFailureReason | None
    """Reason of the state; null while available."""
    running: int
    """Attempts on it that run in this process."""
    state: DeploymentState
    """`resting` after a refusal for its rate or at a cap, `ejected` while its breaker is open, `refused` while the provider refuses its key or model."""
    until: str | None
    """Time until which it is so; null if that is not known."""
    weight: int
    """Its weight beside the others."""


class DocumentContent(TypedDict):
    """A document to be stored."""

    metadata: NotRequired[dict[str, str]]
    """Client metadata, returned with the document."""
    shared: NotRequired[bool]
    """True to let all users of the tenant read it, which needs `can_share_memory`. Default: false."""
    text: str
    """Text, at most 1 MiB in UTF-8. It has to contain a word."""


class DocumentPart(TypedDict):
    """Document, embedded in the message of a user, or by its URL."""

    data: NotRequired[str]
    """The document's bytes in base64."""
    media_type: Literal["application/pdf", "text/plain", "text/markdown"]
    """The document's media type."""
    name: NotRequired[str | None]
    """Name of the document."""
    type: Literal["document"]
    """Type of the part."""
    url: NotRequired[str | None]
    """URL from which the service fetches the bytes, once, instead of `data`; of user messages only."""


class DocumentSummary(TypedDict):
    """A stored document without its text."""

    bytes: int
    """Size that counts towards the limit of the tenant."""
    chunks: int
    """Number of chunks that it is searched by."""
    created_at: str
    """The time at which it was first stored."""
    document_id: str
    """The document's id."""
    embedded: bool
    """True if it is searched by vectors, too; false until it is embedded by the configured model."""
    shared: bool
    """True if all users of the tenant may read it."""
    updated_at: str
    """The time at which it was last changed."""
    user: str
    """The user that has stored it."""


class DocumentSummaryPage(TypedDict):
    data: list[DocumentSummary]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: str | None
    """Value of `after` for the next page; null on the last one."""


class DocumentView(TypedDict):
    """A stored document."""

    bytes: int
    """Size that counts towards the limit of the tenant."""
    chunks: int
    """Number of chunks that it is searched by."""
    created_at: str
    """The time at which it was first stored."""
    document_id: str
    """The document's id."""
    embedded: bool
    """True if it is searched by vectors, too; false until it is embedded by the configured model."""
    metadata: dict[str, str]
    """Client metadata."""
    shared: bool
    """True if all users of the tenant may read it."""
    text: str
    """Text."""
    updated_at: str
    """The time at which it was last changed."""
    user: str
    """The user that has stored it."""


class EmbeddingAnswer(TypedDict):
    """The vectors of all texts."""

    data: list[EmbeddingVector]
    """The vectors in the order of the texts."""
    model: str
    """The `model` of the request."""
    object: Literal["list"]
    """Always `list`."""
    usage: EmbeddingUsage
    """Tokens."""


class EmbeddingRequest(TypedDict):
    """Request for the vectors of texts. Fields that are not named here are ignored."""

    dimensions: NotRequired[int | None]
    """Size of the vectors; it can only repeat the configured one."""
    encoding_format: NotRequired[Literal["float", "base64"] | None]
    """`float` for lists of numbers, `base64` for 32-bit floats, the least byte first."""
    input: str | list[str]
    """A text, or a list of texts. Lists of tokens are refused."""
    model: str
    """The engine that embeds, or an alias of it."""


class EmbeddingUsage(TypedDict):
    """Tokens of a request."""

    prompt_tokens: int
    """Tokens of the texts."""
    total_tokens: int
    """The same."""


class EmbeddingVector(TypedDict):
    """The vector of one text."""

    embedding: list[float] | str
    """The vector."""
    index: int
    """Number of the text, from 0."""
    object: Literal["embedding"]
    """Always `embedding`."""


class EndpointList(TypedDict):
    data: list[EndpointView]
    """Items."""


class EndpointRequest(TypedDict):
    """An endpoint to make, or to change: what is absent has its default again."""

    always: NotRequired[bool]
    """False: it hears only of executions whose request or agent names it. Default: true."""
    content: NotRequired[bool]
    """True: the answer is sent, too, redacted as without `can_view_full_history`. Default: false."""
    events: NotRequired[
        list[
            Literal[
                "execution.completed",
                "execution.failed",
                "execution.cancelled",
                "execution.suspended",
                "schedule.failed",
            ]
        ]
        | None
    ]
    """Events that it hears of; absent: all."""
    url: str
    """URL that deliveries are sent to, with https; not in a private network."""


class EndpointView(TypedDict):
    """An endpoint without its secret."""

    always: bool
    """False if it hears only of executions whose request or agent names it."""
    content: bool
    """True if the answer is sent, too."""
    created_at: str | None
    """Time at which it was made; null of the file."""
    created_by: str | None
    """Public id of the key that made or changed it last; null without a key, and of the file."""
    disabled_at: str | None
    """Time since which it hears of nothing; null while it does."""
    disabled_because: str | None
    """`gone` after a 410, `failing` after three days without a delivery, `revoked` with its key."""
    events: list[str]
    """Events that it hears of."""
    failing_since: str | None
    """Time since which every attempt has failed; null if none has."""
    name: str
    """Name of the endpoint."""
    source: Literal["api", "file"]
    """`file` for one of the configuration, which is read-only."""
    updated_at: str | None
    """Time of its last change; null of the file."""
    url: str
    """URL that deliveries are sent to."""


class EngineHealth(TypedDict):
    """Attempts at an engine in the last 60 minutes, of all tenants, as one process has seen them. An attempt for which the engine was not asked, because of a breaker, a limit or a budget, does not count."""

    attempts: int
    """Attempts that ended."""
    breaker_since: str | None
    """Time at which the breaker last opened; null while closed."""
    buckets: list[AttemptBucket]
    """The minutes with attempts, the oldest first."""
    codes: dict[str, int]
    """The failures by error code."""
    failures: int
    """Those that failed; a cancelled one did not."""
    p50_ms: float | None
    """Milliseconds within which half of the answered attempts ended, to 5 %; null without any."""
    p95_ms: float | None
    """The same for 95 % of them."""
    replica: str
    """The replica that answers; others have seen other attempts."""
    since: str
    """Begin of what is counted: 60 minutes ago, or the start of the process."""


class EngineList(TypedDict):
    data: list[EngineView]
    """Items."""


class EnginePrice(TypedDict):
    """Prices of a million tokens."""

    cache_write: float
    """Price of input tokens that were written to a cache."""
    cached: float
    """Price of input tokens that were read from a cache."""
    input: float
    """Price of input tokens."""
    output: float
    """Price of output tokens."""


class EngineView(TypedDict):
    """A configured engine as GET /v1/engines shows it."""

    breaker: BreakerState
    """State of its circuit breaker; an open one is not tried."""
    by_cause: dict[str, list[str]]
    """Routes that ask the engine after an attempt has failed for a cause, by that cause."""
    capabilities: dict[str, bool]
    """Native capabilities; the service emulates the others."""
    context_window: int
    """Tokens that fit its context window."""
    deployments: NotRequired[list[DeploymentView] | None]
    """Its deployments, for callers with `can_read_metrics`; absent without any."""
    health: NotRequired[EngineHealth | None]
    """The last hour; only with `view=health`."""
    known: list[str]
    """Facts that the configuration leaves out and that the service knows of the model."""
    model: str
    """The model's name at the provider."""
    name: str
    """The configured name; `provider` in responses, and a value for `model`."""
    options: list[str]
    """The keys of `hints.options` that are passed on to the engine."""
    price: EnginePrice | None
    """Prices of a million tokens, in the configured currency."""
    response_reserve: int
    """Tokens of the window that are reserved for the answer."""
    routes: list[str]
    """Routes that contain the engine; a route's name is a value for `model` too."""
    scheme: str
    """The protocol that the engine speaks."""


class ExcludedSkill(TypedDict):
    """A candidate that is not in the context, and why."""

    name: str
    reason: str


class ExecutionCancelled(TypedDict):
    """Terminal event of an execution that a client, a signal or the deadline ended."""

    caused_by: str | None
    parent_span_id: str | None
    request_id: str
    response: SystemResponse
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["execution.cancelled"]


class ExecutionCompleted(TypedDict):
    """Terminal event of an execution that ended with an answer."""

    caused_by: str | None
    parent_span_id: str | None
    request_id: str
    response: SystemResponse
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["execution.completed"]


class ExecutionFailed(TypedDict):
    """Terminal event of an execution that ended with a failure."""

    caused_by: str | None
    parent_span_id: str | None
    request_id: str
    response: SystemResponse
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["execution.failed"]


class ExecutionHints(TypedDict):
    """Tuning of inferences. A missing hint leaves the engine's default; `temperature: 0` is greedy."""

    max_tokens: NotRequired[int | None]
    """Maximum number of tokens of one answer."""
    options: NotRequired[dict[str, JsonValue]]
    """Engine options; only keys on the engine's allow-list are passed on."""
    reasoning: NotRequired[Literal["none", "low", "medium", "high", "max"] | None]
    """How much the model reasons. It is sent the nearest level that it has, never a higher one, except that `none` may become its lowest; `metadata.left_out` says if that is another level."""
    seed: NotRequired[int | None]
    """Seed for engines with reproducible sampling."""
    stop: NotRequired[str | list[str] | None]
    """Text or texts that end the answer."""
    temperature: NotRequired[float | None]
    """Sampling temperature."""
    timeout: NotRequired[float | None]
    """Time limit of the whole execution, in seconds of running time."""
    tool_choice: NotRequired[Literal["auto", "none", "required"] | NamedTool | None]
    """`auto`: tools may be called; `none`: they must not; `required`: one must be; or a tool by name."""
    top_p: NotRequired[float | None]
    """Nucleus sampling."""


class ExecutionPage(TypedDict):
    """One page of executions, whole or in brief."""

    data: list[ExecutionView | ExecutionSummary]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: str | None
    """Value of `after` for the next page; null on the last one."""


class ExecutionResumed(TypedDict):
    """Answer to an open suspension; the execution continues when none is left."""

    caused_by: str | None
    kind: SuspensionKind
    parent_span_id: str | None
    request_id: str
    resumed_by: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    suspension_id: str
    timestamp: str
    tool_id: str
    trace_id: str
    type: Literal["execution.resumed"]


class ExecutionSummary(TypedDict):
    """An execution and its status in brief, with figures instead of its response."""

    agent: str | None
    """The agent that the request names."""
    attempt: int
    """Attempts at a valid answer, the current one included."""
    channel: str
    """The channel by which the request came, such as `api` or `openai`."""
    cost: Cost | None
    """Cost of the tokens, if prices are configured."""
    created_at: str
    """The time at which it was accepted."""
    duration: float | None
    """Seconds from its start to its end; null until it has ended."""
    entered_at: str
    """The time at which it entered its state."""
    events: int
    """Number of its last event. It only grows, also when events are deleted: of two views the one with the higher number is newer."""
    fork_points: int | None
    """Highest `from_step` of a fork besides `end`; null if it is not known any more."""
    last_error: SystemError | None
    """The most recent error; it may have been recovered from."""
    last_step: str | None
    """Name of the plan step, or key of the flow's node, that ended last, or else `round N`."""
    mode: Mode
    """The mode, which selects the pattern."""
    model: str | None
    """The model that was asked last, as it is configured."""
    origin: ForkOrigin | None
    """What it is a fork or a continuation of."""
    provider: str | None
    """The engine that was asked last; null before the first inference."""
    request_id: str
    """The request's id."""
    run_at: str | None
    """The time at which it is to start, as its request says; it is in INIT until then. Null: at once."""
    session_id: str | None
    """The session's id."""
    started_at: str | None
    """The time at which it began to run; null before."""
    state: LifecycleState
    """The state of its lifecycle."""
    suspensions: list[Suspension]
    """Open suspensions."""
    title: str | None
    """The first 80 characters of the last user message, with white space collapsed, always redacted; null without text."""
    tokens: int | None
    """Input and output tokens together; null until there is a response."""
    total_steps: int
    """Plan steps that have ended, waves of a flow in which a node has, or else rounds: inferences at the top level."""
    user: str
    """User who asked for the execution."""


class ExecutionSuspended(TypedDict):
    """Suspension of the execution: nothing can run until the open suspensions are answered."""

    caused_by: str | None
    parent_span_id: str | None
    request_id: str
    response: SystemResponse
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    suspensions: list[Suspension]
    timestamp: str
    trace_id: str
    type: Literal["execution.suspended"]


class ExecutionView(TypedDict):
    """An execution and its status."""

    agent: str | None
    """The agent that the request names."""
    attempt: int
    """Attempts at a valid answer, the current one included."""
    channel: str
    """The channel by which the request came, such as `api` or `openai`."""
    created_at: str
    """The time at which it was accepted."""
    entered_at: str
    """The time at which it entered its state."""
    events: int
    """Number of its last event. It only grows, also when events are deleted: of two views the one with the higher number is newer."""
    fork_points: int | None
    """Highest `from_step` of a fork besides `end`; null if it is not known any more."""
    last_error: SystemError | None
    """The most recent error; it may have been recovered from."""
    last_step: str | None
    """Name of the plan step, or key of the flow's node, that ended last, or else `round N`."""
    mode: Mode
    """The mode, which selects the pattern."""
    model: str | None
    """The model that was asked last, as it is configured."""
    origin: ForkOrigin | None
    """What it is a fork or a continuation of."""
    progress: NotRequired[ProgressView | None]
    """How far a call of a tool is that runs, if the tool says so; null otherwise, and on another replica than the one that runs it. It is not stored."""
    provider: str | None
    """The engine that was asked last; null before the first inference."""
    request_id: str
    """The request's id."""
    response: SystemResponse | None
    """The response; null until there is one."""
    run_at: str | None
    """The time at which it is to start, as its request says; it is in INIT until then. Null: at once."""
    session_id: str | None
    """The session's id."""
    started_at: str | None
    """The time at which it began to run; null before."""
    state: LifecycleState
    """The state of its lifecycle."""
    suspensions: list[Suspension]
    """Open suspensions."""
    title: str | None
    """The first 80 characters of the last user message, with white space collapsed, always redacted; null without text."""
    total_steps: int
    """Plan steps that have ended, waves of a flow in which a node has, or else rounds: inferences at the top level."""
    user: str
    """User who asked for the execution."""


class Extension(TypedDict):
    """The member `portico` of a request. All but the last two fields are those of a `SystemRequest`."""

    context: NotRequired[ContextOptions | None]
    """Retrieval and skills."""
    deltas: NotRequired[Literal["live", "settled"] | None]
    """When text is sent: as it is made, or once it cannot be taken back."""
    flow: NotRequired[FlowOptions | None]
    """Options of flow mode."""
    if_session_busy: NotRequired[Literal["reject", "enqueue"] | None]
    """Effect of a busy session."""
    input: NotRequired[InputContract | None]
    """Requirements of the input."""
    limits: NotRequired[Limits | None]
    """Limits of this execution."""
    mode: NotRequired[Mode | None]
    """Pattern to run."""
    on_disconnect: NotRequired[Literal["cancel", "continue"] | None]
    """Effect of a closed connection."""
    on_limit: NotRequired[Literal["fail", "salvage"] | None]
    """Effect of a reached limit."""
    output: NotRequired[OutputContract | None]
    """Required format of the answer."""
    plan: NotRequired[PlanOptions | None]
    """Options of plan mode."""
    quote: NotRequired[bool]
    """True to run nothing and to answer with the upper bounds only. Default: false."""
    redundancy: NotRequired[RedundancyOptions | None]
    """Options of redundant mode."""
    session_id: NotRequired[str | None]
    """Id of a session."""
    tools: NotRequired[list[str] | None]
    """Tools of the service to offer beside those of the client."""


class FailureList(TypedDict):
    data: list[FailureView]
    """Items."""


class FailureView(TypedDict):
    """One row of the failure taxonomy."""

    category: str
    """Category of the failure."""
    code: str
    """Stable error code."""
    meaning: str
    """Meaning of the code."""
    recovery: str
    """Recommended reaction."""
    variants: list[VariantView]
    """Variants of the code."""


class FallbackTransition(TypedDict):
    """Change of the fallback machine of one inference; `segment` is the attempt concerned, if there is one."""

    caused_by: str | None
    deployment: NotRequired[str | None]
    from_state: FallbackState
    fsm_event: FallbackEvent
    model: str | None
    parent_span_id: str | None
    provider: str | None
    reason: str
    request_id: str
    retry_count: int
    segment: str | None
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    to_state: FallbackState
    trace_id: str
    type: Literal["fallback.transition"]


class FilePage(TypedDict):
    data: list[FileView]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: str | None
    """Value of `after` for the next page; null on the last one."""


class FileView(TypedDict):
    """A file of a session."""

    bytes: int
    """Its size in bytes."""
    modified_at: str
    """The time at which it was last written."""
    path: str
    """Its path, relative, with `/` between its parts."""


class FinalAnswer(TypedDict):
    """Answer of an execution, with how far the execution got. `metadata.degraded` is always present. If it is true, `metadata.reason` says why."""

    answer_text: str
    """Text of the answer; if it is degraded, it says why."""
    confidence: float | None
    """Confidence in the answer."""
    metadata: dict[str, JsonValue]
    """`degraded`; if true, `reason` (`incomplete_state`, `ttl_expiration`, `zero_passes`, `non_convergent`, `synthesis_failed`, `limit_reached`), `missing_fields`, `limit` (the code of a limit that was reached), and what the execution found, by name."""
    notes: str | None
    """Remarks on the answer."""
    ttl_exhausted: bool | None
    """True if no pass was left; absent otherwise."""
    used_step_ids: list[str] | None
    """Names of the steps whose results the answer uses."""


class FlowList(TypedDict):
    data: list[FlowView]
    """Items."""


class FlowOptions(TypedDict):
    """Options of flow mode."""

    input: JsonValue
    """Entry value of the flow."""
    name: str
    """Registered name of the flow."""


class FlowSnapshot(TypedDict):
    """A flow between two steps. `state` holds keys and values in the order in which nodes fire."""

    agents: dict[str, AgentRecord]
    """Agents that have worked, by node."""
    fingerprint: str
    """Fingerprint of its graph."""
    flow: str
    """Name of the flow."""
    format: Literal[1]
    """Version of this format. Default: 1."""
    is_announced: bool
    """True once a step has reported the open suspensions. Default: false."""
    state: list[list[Any]]
    """The state, from its head."""
    steps: int
    """Steps that were taken. Default: 0."""
    suspensions: list[FlowSuspension]
    """Questions of nodes that are no agents."""
    usage: TokenUsage
    """Tokens of all agents."""


class FlowStep(TypedDict):
    """Step of a flow: a node put out what follows, waits for an answer, or put out the flow's result."""

    caused_by: str | None
    node: str
    outcome: Literal["continue", "suspend", "done"]
    parent_span_id: str | None
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["flow.step"]


class FlowSuspension(TypedDict):
    """An open question of a node: a person or a program outside answers it with a resume."""

    kind: SuspensionKind
    """Kind of the suspension."""
    node: str
    """Key of the node that waits."""
    suspension_id: str
    """Id of the suspension, unique in the flow."""
    tool_id: str
    """Name that a resume uses: the node, or node::tool."""
    value: JsonValue
    """Question."""


class FlowView(TypedDict):
    """A registered flow as GET /v1/flows shows it."""

    fingerprint: str
    """Digest of the graph; a suspended execution needs the same one to go on."""
    graph: dict[str, JsonValue]
    """Entry, output, and nodes with their kinds and edges."""
    input_schema: dict[str, JsonValue]
    """JSON Schema of `flow.input`."""
    mermaid: str
    """The graph as a Mermaid flowchart."""
    name: str
    """The flow's name; `flow.name` in a request."""
    output_schema: dict[str, JsonValue]
    """JSON Schema of the result."""


class ForkEdit(TypedDict):
    """Another result of a tool call in the last inherited step."""

    content: str
    """The result that the model reads instead, of at most 1 MiB."""
    is_error: NotRequired[bool]
    """True if the result is an error. Default: false."""
    key: str
    """The `key` of the call's step in `GET /v1/executions/{request_id}/steps`, its last one."""


class ForkOrigin(TypedDict):
    """The execution from which a fork or a continuation comes."""

    from_step: int | Literal["end"]
    """Number of top-level steps that were inherited; `end`: it goes on after the last message."""
    request_id: str
    """The request's id."""


class ForkRequest(TypedDict):
    """The step at which an execution is forked, and the changes from there on."""

    edits: NotRequired[list[ForkEdit]]
    """Other results of tool calls in the step `from_step - 1`. These calls do not run."""
    from_step: int | Literal["end"]
    """Number of top-level steps to inherit as recorded; `end`: continue after the last message instead."""
    overrides: NotRequired[Overrides]
    """Changes from the next step on."""
    session_id: NotRequired[str | None]
    """The session that the fork adds to; none if absent."""


class FoundChunkView(TypedDict):
    """A part of a document that fits the query."""

    document_id: str
    """Id of the document."""
    score: float
    """Fused rank, between 0 and 1."""
    source: str
    """Id of the chunk: that of the document, and the number of the chunk in it."""
    text: str
    """Text of the chunk."""


class GivenAnswer(TypedDict):
    """An answer to one open suspension, which the other fields select."""

    payload: JsonValue
    """The answer."""
    suspension_id: NotRequired[str | None]
    """The suspension."""
    tool_call_id: NotRequired[str | None]
    """The tool call that is suspended."""
    tool_id: NotRequired[str | None]
    """The tool that waits for the answer."""


class GivenApprovals(TypedDict):
    """Approvals of a call that more than one user must approve."""

    arguments: NotRequired[dict[str, Any] | None]
    """The arguments that were approved so far, if they are not those of the model; absent otherwise."""
    given: list[DecidedBy]
    """Who has approved so far."""
    needed: int
    """Number of users who must approve."""


class GrantList(TypedDict):
    data: list[GrantView]
    """Items."""


GrantView = TypedDict(
    "GrantView",
    {
        "agent": "str | None",
        "expires_at": "str",
        "for": "Literal['execution', 'session']",
        "grant_id": "str",
        "granted_at": "str",
        "granted_by": "str",
        "match": "Literal['tool', 'arguments']",
        "request_id": "str",
        "session_id": "str | None",
        "tool": "str",
        "user": "str",
        "uses": "int",
    },
)


class GuardEnd(TypedDict):
    """End of a guard: the action that it takes if it trips, and if it did."""

    action: Literal["refuse", "flag"]
    caused_by: str | None
    guard: str
    parent_span_id: str | None
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    tripped: bool
    type: Literal["guard.end"]


class HistoryCut(TypedDict):
    """Messages of the earlier conversation that are not in the context; `summarised` of them are in a summary. `repaired` counts tool results that were dropped without a call or added for a call that had none."""

    messages: NotRequired[int]
    """Default: 0."""
    repaired: NotRequired[int]
    """Default: 0."""
    summarised: NotRequired[int]
    """Default: 0."""


class ImagePart(TypedDict):
    """Image, embedded in the message, or by its URL."""

    data: NotRequired[str]
    """The image's bytes in base64."""
    media_type: NotRequired[str]
    """The image's media type; absent with a `url`, whose bytes have one."""
    type: Literal["image"]
    """Type of the part."""
    url: NotRequired[str | None]
    """URL from which the service fetches the bytes, once, instead of `data`; of user messages only."""


class InferenceDelta(TypedDict):
    """Piece of an answer. `offset` is the number of characters of its kind before it in the segment. `value` is the partial value of a structured answer; `offset` is then the number of characters it was read from."""

    caused_by: str | None
    offset: int
    parent_span_id: str | None
    reasoning: NotRequired[str | None]
    request_id: str
    segment: str
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    text: NotRequired[str | None]
    timestamp: str
    trace_id: str
    type: Literal["inference.delta"]
    value: NotRequired[Any]


class InferenceEnd(TypedDict):
    """End of an attempt on a provider."""

    caused_by: str | None
    cost: NotRequired[float | None]
    duration_ms: float
    finish_reason: Literal["stop", "tool", "length", "content_filter", "cancelled", "error"]
    parent_span_id: str | None
    request_id: str
    segment: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    tokens_cache_written: NotRequired[int]
    """Default: 0."""
    tokens_cached: NotRequired[int]
    """Default: 0."""
    tokens_in: int
    tokens_out: int
    tokens_reasoning: NotRequired[int]
    """Default: 0."""
    tool_call_count: int
    tool_call_ids: NotRequired[list[str]]
    trace_id: str
    type: Literal["inference.end"]


class InferenceRetracted(TypedDict):
    """Withdrawal of the streamed content of a segment; another attempt follows."""

    caused_by: str | None
    parent_span_id: str | None
    request_id: str
    segment: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["inference.retracted"]


class InferenceStart(TypedDict):
    """Start of an attempt on a provider. `replica` is None outside redundant mode."""

    caused_by: str | None
    deployment: NotRequired[str | None]
    grammar_present: bool
    message_count: int
    model: str
    parent_span_id: str | None
    provider: str
    replica: NotRequired[int | None]
    request_id: str
    schema_present: bool
    segment: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    temperature: float | None
    timestamp: str
    tool_defs_count: int
    trace_id: str
    type: Literal["inference.start"]


class InputContract(TypedDict):
    """Requirements of the input."""

    rules: NotRequired[list[str | NotEmpty | Length | Regex | Compare | OneOf | Custom]]
    """Rules for the text of the last user message, by name or inline, checked before anything is sent; a path reads the text as JSON."""


class KeyLimits(TypedDict):
    """Limits of a key; null is no limit."""

    concurrency: int | None
    """Its executions that may run at the same time."""
    cost: str | None
    """Cost of all its inferences, as `5/86400`."""
    requests: str | None
    """Executions and forks that may begin, as `600/60`."""
    tokens: str | None
    """Tokens of all its inferences, as `200000/60`."""


class KeyPage(TypedDict):
    data: list[KeyView]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: str | None
    """Value of `after` for the next page; null on the last one."""


class KeyRequest(TypedDict):
    """A key to make. Without limits of its own those of its tenant hold all the same."""

    channel: NotRequired[str | None]
    """Channel of its requests, always. A key with a channel makes only keys of the same one, which is then the default."""
    concurrency: NotRequired[int | None]
    """Its executions that may run at the same time."""
    cost: NotRequired[str | None]
    """Cost of all its inferences, as `5.00/86400`."""
    expires_days: NotRequired[float | None]
    """Days until it is refused. It ends no later than the key that makes it; with a token at most 90 are needed."""
    permissions: NotRequired[list[str] | None]
    """Names of its permissions, each of which the caller has. Absent: those of a key of the command line that names none, as far as the caller has them."""
    requests: NotRequired[str | None]
    """Executions and forks that may begin, as `600/60`."""
    tokens: NotRequired[str | None]
    """Tokens of all its inferences, as `200000/60`."""
    user: str
    """User that the key acts for; another than one's own with `can_view_tenant`."""


class KeyView(TypedDict):
    """A key without its secret, which is stored nowhere."""

    channel: str | None
    """Channel of all its requests; null if it has none of its own."""
    created_at: str
    """Time at which it was made."""
    created_by: str | None
    """Public id of the key that made it, `jwt` for a token; null for the command line."""
    expires_at: str | None
    """Time from which it is refused; null if it has no end."""
    last_used_at: str | None
    """Time of its last use, to the minute; null before the first."""
    limits: KeyLimits
    """Its own limits, which hold beside those of its tenant."""
    permissions: list[str]
    """Names of its permissions."""
    public_id: str
    """The 8 characters behind `ptk_`, which may be shown."""
    revoked_at: str | None
    """Time at which it was revoked; null if it was not."""
    tenant: str
    """Tenant whose data the key gives access to."""
    user: str
    """User that the key acts for."""


class LastRunView(TypedDict):
    """The last time of a schedule."""

    at: str
    """The planned time."""
    outcome: RunOutcome
    """What became of it."""
    request_id: str | None
    """Id of the execution; null if none was started."""
    state: str | None
    """State of the execution; null without one."""


class Length(TypedDict):
    """Rule: a text has that many characters, a list that many elements, an object that many members."""

    max: NotRequired[int | None]
    """Maximum."""
    min: NotRequired[int | None]
    """Minimum."""
    path: NotRequired[str | None]
    """Path in the structured output; absent: the answer's text."""
    severity: NotRequired[Literal["error", "warning"]]
    """Severity of a violation. Default: `error`."""
    type: Literal["length"]
    """Type of the rule."""


class LifecycleTransition(TypedDict):
    """Change of the execution's state. The first one has no `from_state`."""

    attempt: int
    caused_by: str | None
    from_state: LifecycleState | None
    parent_span_id: str | None
    reason: str
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    to_state: LifecycleState
    trace_id: str
    type: Literal["lifecycle.transition"]


class Limits(TypedDict):
    """Limits of this execution; they can only narrow the configured ones."""

    attempts: NotRequired[int | None]
    """Maximum number of attempts at a valid answer."""
    calls_per_reply: NotRequired[int | None]
    """Maximum number of tool calls that run per reply."""
    cost: NotRequired[float | None]
    """Maximum cost, in the configured currency."""
    flow_steps: NotRequired[int | None]
    """Maximum number of steps of a flow."""
    tokens: NotRequired[int | None]
    """Maximum number of tokens of all inferences together."""
    tool_calls: NotRequired[int | None]
    """Maximum number of tool calls, with those of the agents that it calls."""
    tool_rounds: NotRequired[int | None]
    """Maximum number of tool rounds."""


class ListReady(TypedDict):
    """The end of the beginning of a live list."""

    truncated: bool
    """True if more is unfinished than the list began with."""


class MachineList(TypedDict):
    data: list[MachineView]
    """Items."""


class MachineView(TypedDict):
    """A state machine of the service."""

    events: NotRequired[list[str]]
    """Events, if the edges have them."""
    initial: str
    """Initial state."""
    mermaid: str
    """The machine as a Mermaid state diagram."""
    name: str
    """`lifecycle.<mode>` or `fallback`."""
    states: list[str]
    """States."""
    table: dict[str, Any]
    """Successors by state, or by state and event if the edges have events."""
    terminal: list[str]
    """Terminal states."""


class MemoryQuery(TypedDict):
    """A search of the documents that the caller may read."""

    max_chunks: NotRequired[int]
    """Maximum number of chunks. Default: 5."""
    min_score: NotRequired[float]
    """Least score of a chunk. Default: 0.0."""
    query: str
    """Text to search for."""


class MemorySearchView(TypedDict):
    """The chunks that fit the query, best first, and how the two legs of the search did."""

    data: list[FoundChunkView]
    """Chunks."""
    lexical: LegState
    """State of the search by words."""
    vector: LegState
    """State of the search by vectors; `skipped` if there are none."""


class Message(TypedDict):
    """Message of a conversation, independent of any provider's dialect."""

    content: str | list[TextPart | ImagePart | DocumentPart | AudioPart]
    """Text, or a list of parts: text and images, and of a user also documents and audio."""
    name: NotRequired[str | None]
    """Name of the author or tool."""
    role: Literal["system", "user", "assistant", "tool"]
    """Author's role."""
    tool_call_id: NotRequired[str | None]
    """Call that a tool message answers."""
    tool_calls: NotRequired[list[ToolCall] | None]
    """Tool calls of an assistant message."""


class MessagePage(TypedDict):
    data: list[Message]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: int | None
    """Value of `after` for the next page; null on the last one."""


class ModelMessage(TypedDict):
    """Answer of a model with content that only its provider can read, such as signed thoughts. `kept` holds blocks in the provider's own format, in their original order. They are omitted for any other provider."""

    account: NotRequired[str | None]
    """Account at the provider that alone can read the blocks, if one does."""
    content: str | list[TextPart | ImagePart | DocumentPart | AudioPart]
    """Text, or a list of parts: text and images, and of a user also documents and audio."""
    kept: list[dict[str, Any]]
    """Blocks that the provider needs back unchanged."""
    name: NotRequired[str | None]
    """Name of the author or tool."""
    origin: NotRequired[Origin | None]
    """Origin of the text, where a session stores it."""
    provider: str
    """Configured name of the engine that answered."""
    role: Literal["system", "user", "assistant", "tool"]
    """Author's role."""
    tool_call_id: NotRequired[str | None]
    """Call that a tool message answers."""
    tool_calls: NotRequired[list[ToolCall] | None]
    """Tool calls of an assistant message."""


class NamedTool(TypedDict):
    """Tool that the model must call."""

    name: str
    """Name of the tool."""


class NewEndpointView(TypedDict):
    """An endpoint with a new secret."""

    always: bool
    """False if it hears only of executions whose request or agent names it."""
    content: bool
    """True if the answer is sent, too."""
    created_at: str | None
    """Time at which it was made; null of the file."""
    created_by: str | None
    """Public id of the key that made or changed it last; null without a key, and of the file."""
    disabled_at: str | None
    """Time since which it hears of nothing; null while it does."""
    disabled_because: str | None
    """`gone` after a 410, `failing` after three days without a delivery, `revoked` with its key."""
    events: list[str]
    """Events that it hears of."""
    failing_since: str | None
    """Time since which every attempt has failed; null if none has."""
    name: str
    """Name of the endpoint."""
    secret: str
    """Secret that signs, which cannot be shown again."""
    source: Literal["api", "file"]
    """`file` for one of the configuration, which is read-only."""
    updated_at: str | None
    """Time of its last change; null of the file."""
    url: str
    """URL that deliveries are sent to."""


class NewKeyView(TypedDict):
    """A key that was just made."""

    channel: str | None
    """Channel of all its requests; null if it has none of its own."""
    created_at: str
    """Time at which it was made."""
    created_by: str | None
    """Public id of the key that made it, `jwt` for a token; null for the command line."""
    expires_at: str | None
    """Time from which it is refused; null if it has no end."""
    last_used_at: str | None
    """Time of its last use, to the minute; null before the first."""
    limits: KeyLimits
    """Its own limits, which hold beside those of its tenant."""
    permissions: list[str]
    """Names of its permissions."""
    public_id: str
    """The 8 characters behind `ptk_`, which may be shown."""
    revoked_at: str | None
    """Time at which it was revoked; null if it was not."""
    secret: str
    """The whole key, which cannot be shown again."""
    tenant: str
    """Tenant whose data the key gives access to."""
    user: str
    """User that the key acts for."""


class NodeStart(TypedDict):
    """Start of the function of a flow's node."""

    caused_by: str | None
    node: str
    parent_span_id: str | None
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["node.start"]


class NotEmpty(TypedDict):
    """Rule: the value is not blank, not an empty list or object, and not null."""

    path: NotRequired[str | None]
    """Path in the structured output; absent: the answer's text."""
    severity: NotRequired[Literal["error", "warning"]]
    """Severity of a violation. Default: `error`."""
    type: Literal["not_empty"]
    """Type of the rule."""


class OneOf(TypedDict):
    """Rule: a value is one of a list; whitespace around a text is ignored."""

    path: NotRequired[str | None]
    """Path in the structured output; absent: the answer's text."""
    severity: NotRequired[Literal["error", "warning"]]
    """Severity of a violation. Default: `error`."""
    type: Literal["one_of"]
    """Type of the rule."""
    values: list[JsonValue]
    """Allowed values."""


class OpenSuspension(TypedDict):
    """An open suspension and the execution that it belongs to."""

    agent: NotRequired[str | None]
    """Configured agent that acts there; null without one."""
    approvals: NotRequired[GivenApprovals | None]
    """Approvals so far, of a call that needs more than one; absent otherwise."""
    arguments_digest: NotRequired[str | None]
    """Digest of the arguments that an approval applies to."""
    asked_at: NotRequired[str | None]
    """Time of the suspension."""
    asked_because: NotRequired[ApprovalReason | None]
    """Why an approval is asked for, the first that holds: `rule` (of `policy.approve`), `repeated` (an unsafe call again), `untrusted_text` (a rule of `policy.pre_authorise` would else cover it), `tool` (declared to act outside). Null of other kinds."""
    channel: str
    """Channel by which the request came."""
    expires_at: str
    """Time of expiry."""
    kind: SuspensionKind
    """Kind of the suspension."""
    on_expiry: NotRequired[Literal["deny"] | None]
    """`deny` if the call is not approved then, and the execution goes on; absent if it is cancelled."""
    request_id: str
    """The request's id."""
    session_id: str | None
    """The session's id."""
    step_name: NotRequired[str | None]
    """Plan step or node of a flow that is suspended."""
    suspension_id: str
    """Id of the suspension."""
    tool_call_id: NotRequired[str | None]
    """Tool call that is suspended."""
    tool_id: str
    """Name that a resume uses."""
    user: str
    """User who asked for the execution."""
    value: JsonValue
    """Question."""


class OutputContract(TypedDict):
    """Required format of the answer, and rules it must satisfy."""

    grammar: NotRequired[str | None]
    """GBNF if it contains `::=`, otherwise a registered name."""
    reasoning: NotRequired[bool]
    """True to read what the model thought in `reasoning`, as far as its provider shows it. Default: false."""
    repair_allowed: NotRequired[bool]
    """True if invalid JSON may be repaired. Default: true."""
    rules: NotRequired[list[str | NotEmpty | Length | Regex | Compare | OneOf | Custom]]
    """Rules, by name or inline."""
    schema: NotRequired[dict[str, JsonValue] | None]
    """JSON Schema 2020-12."""
    semantic: NotRequired[bool | str]
    """True for validation by a judge model, or the intent to judge by. Default: false."""
    strict_validation: NotRequired[bool]
    """True if an answer that breaks a rule or is rejected by the judge fails after the last attempt and is not shown; false if it completes with `valid: false` and confidence 0. A broken format always fails. Default: true."""


class Overrides(TypedDict):
    """Changes from the first step that is not inherited; an absent field keeps its value."""

    hints: NotRequired[ExecutionHints | None]
    """Hints to change; absent hints keep their values."""
    messages: NotRequired[list[Message]]
    """Messages to add before the next inference."""
    model: NotRequired[str | None]
    """A route or engine name from GET /v1/engines."""
    tools: NotRequired[list[str] | None]
    """Tools to offer; [] offers none."""


PassEnd = TypedDict(
    "PassEnd",
    {
        "caused_by": "str | None",
        "coherence": "float | None",
        "completeness": "float | None",
        "consistent": "bool",
        "converged": "bool",
        "parent_span_id": "str | None",
        "pass": "int",
        "reasons": "list[str]",
        "request_id": "str",
        "sequence_number": "int",
        "session_id": "str | None",
        "span_id": "str",
        "step_name": "NotRequired[str]",
        "timestamp": "str",
        "trace_id": "str",
        "ttl_remaining": "int",
        "type": "Literal['pass.end']",
    },
)


class PendingCall(TypedDict):
    """A tool call of an agent's last reply, with its result or the question it waits for."""

    call: ToolCall
    """The call."""
    is_approved: NotRequired[bool]
    """True if a person has approved the call. Default: false."""
    result: NotRequired[str | None]
    """Text that the model will see; null until the call has ended."""
    suspension: NotRequired[FlowSuspension | None]
    """Question that the call waits for."""


class PlanCreated(TypedDict):
    """The plan to run; each step has `name`, `type` and `depends_on`, the names of its predecessors. A refined plan, which replaces the one before it, and the plan of a `subplan` step each have an event of their own."""

    caused_by: str | None
    parent_span_id: str | None
    planner_id: str
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    steps: list[dict[str, Any]]
    timestamp: str
    trace_id: str
    type: Literal["plan.created"]


class PlanOptions(TypedDict):
    """Options of plan mode."""

    passes: NotRequired[int]
    """Maximum number of passes; 1 means no multi-pass reasoning. Default: 1."""
    policy: NotRequired[PlanPolicy | None]
    """Restrictions on the plan."""
    steps: NotRequired[list[PlanStep] | None]
    """Authored plan; the planner is skipped."""


class PlanPolicy(TypedDict):
    """Restrictions on a plan."""

    allowed_step_types: NotRequired[list[str] | None]
    """Allowed step types."""
    max_steps: NotRequired[int | None]
    """Maximum number of steps."""
    require_linear: NotRequired[bool]
    """True to reject branches. Default: false."""
    timeout_per_step: NotRequired[float | None]
    """Time limit of one step, in seconds."""


class PlanReport(TypedDict):
    """Plan that ran."""

    steps: list[StepReport]
    """Steps in plan order."""
    trace: PlanTrace
    """Origin of the plan."""


class PlanStep(TypedDict):
    """One step of an authored plan; further keys belong to its type."""

    depends_on: NotRequired[list[str] | None]
    """Steps that must have ended before."""
    input: NotRequired[JsonValue]
    """The step's input; absent means the output before it."""
    name: str
    """The step's name, unique in its plan."""
    type: str
    """Type of the step."""


class PlanTrace(TypedDict):
    """Origin of a plan."""

    created_at: str
    """Time of creation."""
    planner_id: str
    """Id of the planner."""
    rationale: str
    """Reason for these steps."""
    step_count: int
    """Number of steps."""


Problem = TypedDict(
    "Problem",
    {
        "category": "Category",
        "caused_by": "NotRequired[str | None]",
        "code": "Code",
        "detail": "str",
        "details": "NotRequired[dict[str, Any]]",
        "instance": "str",
        "message": "str",
        "request_id": "str",
        "retryable": "bool",
        "status": "int",
        "title": "str",
        "type": "str",
        "violated-policies": "NotRequired[list[str] | None]",
    },
)


class ProgressView(TypedDict):
    """Progress of a call of a tool, as the tool has said last."""

    message: str
    """In words; empty without."""
    progress: float
    """From 0 to 1."""
    tool_call_id: str
    """Id of the call."""
    tool_name: str
    """Name of the tool."""


class PromptList(TypedDict):
    data: list[PromptView]
    """Items."""


class PromptView(TypedDict):
    """A prompt of the service itself as GET /v1/prompts shows it, without its text."""

    id: PromptId
    """The prompt's id."""
    input_schema: dict[str, JsonValue]
    """JSON Schema of its input."""
    is_changed: bool
    """True if its text is not the shipped one."""
    output_schema: dict[str, JsonValue] | None
    """JSON Schema of the answer; null if it is a text."""
    places: list[str]
    """Places that its text may have, each written `{name}`."""
    system_prompt: PromptId | None
    """The system prompt that goes with it."""


class Quote(TypedDict):
    """Upper bounds of a request, guaranteed by the state machines and the limits; not an estimate."""

    cost: Cost | None
    """Cost; null if an engine that may be used has no price."""
    inferences: int
    """Attempts on providers."""
    seconds: float
    """Seconds of running time."""
    tokens: int
    """Tokens over all attempts, by the engines' context windows."""
    tool_calls: int
    """Attempts at tool calls."""
    transitions: int
    """State changes of its lifecycle and of the fallback machines."""


class Readiness(TypedDict):
    """Readiness of this replica for new work."""

    ready: bool
    """True if new work is accepted."""
    reason: str | None
    """Reason why it is not."""


class Reasoning(TypedDict):
    """Reasoning before an answer of a model, as its provider shows it."""

    provider: str
    """Configured engine that answered."""
    step_name: NotRequired[str | None]
    """Plan step or node of a flow that asked."""
    text: str
    """Text, or a summary of it."""


class RedundancyOptions(TypedDict):
    """Options of redundant mode."""

    early_stop: NotRequired[bool]
    """True to cancel replicas that cannot change the result. Default: true."""
    min_confidence: NotRequired[float | None]
    """Minimum confidence."""
    models: NotRequired[list[str] | None]
    """Models, one per replica."""
    n: NotRequired[int]
    """Number of replicas. Default: 3."""
    quorum: NotRequired[int | None]
    """Minimum number of votes for the winner."""
    voting: NotRequired[Literal["majority", "unanimity", "field_majority"]]
    """Voting method. Default: `majority`."""


class Regex(TypedDict):
    """Rule: a text contains a match of a pattern, or with `negate` none. It is searched for in linear time: no look-around, no back references."""

    negate: NotRequired[bool]
    """True if the text must not match. Default: false."""
    path: NotRequired[str | None]
    """Path in the structured output; absent: the answer's text."""
    pattern: str
    """Pattern; ^ and $ anchor it to the ends."""
    severity: NotRequired[Literal["error", "warning"]]
    """Severity of a violation. Default: `error`."""
    type: Literal["regex"]
    """Type of the rule."""


class RemovedExecution(TypedDict):
    """An execution that was deleted."""

    request_id: str
    """The request's id."""


class ReplayReport(TypedDict):
    """Result of an offline replay."""

    field: NotRequired[str | None]
    """Path of the first value that differs, such as `$.outcome`; `$` if one side has nothing."""
    identical: bool
    """True if the replay equals the record, step by step."""
    recorded: NotRequired[str | None]
    """The value in the record as JSON, cut to 200 characters."""
    replayed: NotRequired[str | None]
    """The value in the replay as JSON, cut to 200 characters."""
    step: NotRequired[str | None]
    """The first step that differs."""
    steps: NotRequired[int | None]
    """The number of steps."""


class ResponseMetadata(TypedDict):
    """Details of how the answer was produced."""

    channel: str
    """Channel by which the request came. Default: `api`."""
    client: NotRequired[dict[str, str]]
    """Metadata of the request."""
    deployment: NotRequired[str | None]
    """Deployment of the engine that answered; absent for one without any."""
    durability: Literal["memory", "journaled"]
    """Durability of the execution. Default: `memory`."""
    fallback_attempts: int
    """Number of attempts after the first of each inference. Default: 0."""
    finish_reason: str | None
    """Reason why the last answer ended."""
    flags: list[str]
    """Warnings: `usage_implausible` if a provider reported token counts that cannot be true, which an estimate replaced; the names of guards that tripped and only flag, `input_rules` for warnings of the rules of the request; `guardrail_failed` if a judge of the input gave no judgement; `redacted` if `structured_output` is shown redacted and may no longer fit its schema."""
    kept_by: NotRequired[FormatEnforcement | None]
    """Enforcement of the required format."""
    left_out: NotRequired[list[str]]
    """Parts of the request that a provider could not be given."""
    model: str | None
    """Model as the provider names it."""
    provider: str | None
    """Configured engine that answered last."""
    sources: NotRequired[list[Source]]
    """Parts of documents that were retrieved and read, best first; absent if there are none."""
    tool_rounds: int
    """Number of tool rounds. Default: 0."""
    truncated_history: bool
    """True if the history was truncated. Default: false."""


class ResumeRequest(TypedDict):
    """An answer to one open suspension, or several, which are accepted together."""

    answers: NotRequired[list[GivenAnswer] | None]
    """Answers to several open suspensions, instead of all else; either all are accepted or none."""
    payload: NotRequired[JsonValue]
    """The answer; needed without `answers`."""
    suspension_id: NotRequired[str | None]
    """The suspension; needed if the tool has more than one."""
    tool_id: NotRequired[str | None]
    """The tool that waits for the answer; needed without `answers`."""


class RetrievalEnd(TypedDict):
    """End of a search of the memory: how many chunks were found, and the state of each of its two legs. A leg is `skipped` if there was nothing to search, or no room in the context for what it could find."""

    caused_by: str | None
    duration_ms: float
    found: int
    lexical: LegState
    parent_span_id: str | None
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    top_k: int
    trace_id: str
    type: Literal["retrieval.end"]
    vector: LegState


class RetrievalStart(TypedDict):
    """Start of a search of the memory, for at most `top_k` chunks of documents."""

    caused_by: str | None
    parent_span_id: str | None
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    top_k: int
    trace_id: str
    type: Literal["retrieval.start"]


class SchedulePage(TypedDict):
    data: list[ScheduleView]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: str | None
    """Value of `after` for the next page; null on the last one."""


class ScheduleRequest(TypedDict):
    """A schedule to store."""

    catch_up_seconds: NotRequired[int]
    """Of the times that were missed, the last one runs if it is no longer ago; 0: none does. Default: 3600."""
    cron: str
    """Five fields: minute, hour, day of the month, month, day of the week."""
    description: NotRequired[str | None]
    """Text for people."""
    overlap: NotRequired[Literal["skip", "cancel", "allow"]]
    """Effect of a run before that has not ended: `skip` this one, `cancel` that one, or `allow` both. Default: `skip`."""
    paused: NotRequired[bool]
    """True if it does not start by itself. Default: false."""
    request: SystemRequest
    """The request of each run, without `request_id`. It runs in the background."""
    timezone: NotRequired[str]
    """Time zone of the IANA database, in which the fields are read. Default: `UTC`."""


class ScheduleRunPage(TypedDict):
    data: list[ScheduleRunView]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: str | None
    """Value of `after` for the next page; null on the last one."""


class ScheduleRunView(TypedDict):
    """A time of a schedule and what became of it."""

    at: str
    """The planned time; of a run by hand, when it was asked for."""
    code: Code | None
    """Code of the refusal."""
    outcome: RunOutcome
    """`started`; `skipped`, as the run before had not ended; `missed`, as the service was away; or `refused` with a code."""
    request_id: str | None
    """Id of the execution; null if none was started."""
    started_at: str
    """The time at which it was started, or given up."""
    state: str | None
    """State of the execution; null without one, and once it is deleted."""


class ScheduleView(TypedDict):
    """A schedule, its next time, and the last one."""

    catch_up_seconds: int
    """Age up to which the last of the missed times runs."""
    created_at: str
    """Time at which it was stored first."""
    cron: str
    """Minute, hour, day of the month, month, day of the week."""
    description: str | None
    """Text for people."""
    last: LastRunView | None
    """Its last time; null before the first."""
    name: str
    """Its name, unique in the tenant."""
    next_at: str | None
    """Its next time; null while it is paused."""
    overlap: Literal["skip", "cancel", "allow"]
    """Effect of a run before that has not ended."""
    paused: bool
    """True if it does not start by itself."""
    paused_because: str | None
    """Reason why the service has paused it."""
    quote: Quote | None
    """The most that one run can take, as of the time at which it was stored."""
    request: SystemRequest
    """The request of each run."""
    timezone: str
    """Time zone in which the fields are read."""
    updated_at: str
    """Time at which it was stored last."""
    user: str
    """User that it acts for."""


class SessionChanges(TypedDict):
    """Changes to a session; null removes a value."""

    model: NotRequired[str | None]
    """A route or engine name from GET /v1/engines."""
    preferences: NotRequired[JsonValue]
    """A value that the client stores with the session. Of an object, `hints` are used by requests that have none of their own, and `instructions`, a text of at most 2,000 characters, follow the system prompt."""
    state: NotRequired[JsonValue]
    """Another value that the client stores with the session."""


class SessionPage(TypedDict):
    data: list[SessionView]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: str | None
    """Value of `after` for the next page; null on the last one."""


class SessionView(TypedDict):
    """A conversation."""

    busy: bool
    """True while a turn runs or is suspended."""
    created_at: str
    """The time at which its first turn began."""
    messages: int
    """Number of messages."""
    model: str | None
    """The model of requests that name none."""
    preferences: JsonValue
    """A value that the client stores with the session."""
    session_id: str
    """The session's id."""
    state: JsonValue
    """Another value that the client stores with the session."""
    updated_at: str
    """The time at which a turn last began or ended."""


class SkillList(TypedDict):
    data: list[SkillView]
    """Items."""


class SkillView(TypedDict):
    """A skill as GET /v1/skills shows it, without its text."""

    always: bool
    """True if it is a candidate for every message."""
    description: str
    """What it is for."""
    name: str
    """The skill's name; a value for `context.skills`."""
    requires: list[str]
    """Skills that it is read with."""
    tokens: int
    """Tokens that it takes in a context, without those that it requires."""
    tools: list[str]
    """Tools that it needs; `agent:NAME` is an agent."""
    triggers: list[str]
    """Words, and expressions between slashes, that call for it."""
    value: float
    """Its value; those of the most value that fit are read."""


class Source(TypedDict):
    """Part of a document that the answer was given to read."""

    document_id: str
    """Id of the document."""
    score: float
    """How well it fits the query."""
    source: str
    """Id of the part: `DOCUMENT_ID#NUMBER`, as the model saw it."""


class StageEnd(TypedDict):
    """End of a pipeline stage."""

    caused_by: str | None
    duration_ms: float
    outcome: str
    parent_span_id: str | None
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    stage: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["stage.end"]


class StartedRun(TypedDict):
    """A run that was started by hand."""

    request_id: str
    """Id of the execution."""


class StatisticsView(TypedDict):
    """Executions over time. Buckets without any are left out."""

    bucket: Literal["minute", "hour", "day"]
    """Width of a bucket."""
    buckets: list[BucketView]
    """Buckets with executions, the oldest first."""
    duration_bounds: list[float]
    """Upper bounds of the classes of durations, in seconds."""
    since: str
    """Begin of the first bucket."""
    until: str
    """End of the last bucket."""


StepEnd = TypedDict(
    "StepEnd",
    {
        "attempt": "int",
        "caused_by": "str | None",
        "duration_ms": "float",
        "error_code": "Code | None",
        "parent_span_id": "str | None",
        "pass": "NotRequired[int | None]",
        "request_id": "str",
        "sequence_number": "int",
        "session_id": "str | None",
        "span_id": "str",
        "status": "StepStatus",
        "step_name": "NotRequired[str]",
        "step_type": "str",
        "timestamp": "str",
        "trace_id": "str",
        "type": "Literal['step.end']",
    },
)


class StepException(TypedDict):
    """Exception that the code of a tool, step, rule, planner or node raised."""

    frames: list[str]
    """Function, file and line of at most 20 frames; the last raised it."""
    message: str
    """Its text, of at most 2,000 characters."""
    type: str
    """Type of the exception."""


class StepPage(TypedDict):
    """Steps of an execution, whole or in brief; all of them without a limit."""

    data: list[StepView | StepSummary]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: int | None
    """Value of `after` for the next page; null on the last one."""


class StepReport(TypedDict):
    """Plan step with its result."""

    error: SystemError | None
    """Failure of the step."""
    name: str
    """Name of the step."""
    output: Any
    """Output of the step."""
    status: StepStatus
    """Status of the step."""
    type: str
    """Type of the step."""


StepStart = TypedDict(
    "StepStart",
    {
        "attempt": "int",
        "caused_by": "str | None",
        "parent_span_id": "str | None",
        "pass": "NotRequired[int | None]",
        "request_id": "str",
        "sequence_number": "int",
        "session_id": "str | None",
        "span_id": "str",
        "step_name": "NotRequired[str]",
        "step_type": "str",
        "timestamp": "str",
        "trace_id": "str",
        "type": "Literal['step.start']",
    },
)


class StepSummary(TypedDict):
    """A recorded step of an execution."""

    cost: Cost | None
    """Cost of the attempt, if the engine has prices."""
    digest: str | None
    """Digest of what was answered, without what was measured; null without `can_view_full_history`."""
    duration_ms: float | None
    """Duration in milliseconds; null if it takes no time."""
    edited: bool
    """True if it is the result of a call that a fork has edited; nothing ran for it."""
    fingerprint: str | None
    """Digest of what was asked, equal in two executions that asked the same at this step. Null without `can_view_full_history`, and where it is not known any more."""
    from_step: int | None
    """The `from_step` of a fork that runs it again; null before the first."""
    key: str
    """The step's key in the journal."""
    kind: str
    """`retrieval` (a search of the memory), `prepare`, `compaction` (of a session), `planning`, `plan`, `inference` (tools and candidates), `attempt` (at an inference), `tool_call`, `code_round` (calls that code waits for), `node` and `agent` (of a flow: its function; its system prompt and model), `validation` (of an answer, by a worker), `wait`, `answer` (to a suspension), `decision`, `refusal`, or `stop`."""
    provider: str | None
    """The engine that was asked."""
    started_at: str
    """Start time."""
    step_name: str | None
    """The plan step, or the node of a flow, that it belongs to."""
    tool_name: str | None
    """The tool that was called."""
    usage: TokenUsage | None
    """Tokens of the attempt."""


class StepTypeList(TypedDict):
    data: list[StepTypeView]
    """Items."""


class StepTypeView(TypedDict):
    """A step type of plans as GET /v1/step-types shows it."""

    approval: bool
    """True if a step of itself may wait for a person."""
    at_most_once: bool
    """True if a step never runs twice unless a person says so."""
    available: bool
    """True if a step of the type can run now."""
    description: str
    """The description that a planner reads."""
    idempotent: bool | None
    """True if a second run has no further effect; null for built-in types."""
    input_schema: dict[str, JsonValue]
    """JSON Schema of a step's `input`."""
    name: str
    """The type's name; `type` of a step."""
    options_schema: dict[str, JsonValue]
    """JSON Schema of the object of its further members."""
    output_schema: dict[str, JsonValue] | None
    """JSON Schema of its output; null for built-in types."""
    reason: str
    """The reason if it cannot."""
    side_effects: SideEffects | None
    """The effect of a step on the outside world; null for built-in types, which act through tools."""
    source: str
    """The source: `built-in` or `modules`."""


class StepView(TypedDict):
    """A recorded step of an execution: what was asked and what was answered."""

    cost: Cost | None
    """Cost of the attempt, if the engine has prices."""
    digest: str | None
    """Digest of what was answered, without what was measured; null without `can_view_full_history`."""
    duration_ms: float | None
    """Duration in milliseconds; null if it takes no time."""
    edited: bool
    """True if it is the result of a call that a fork has edited; nothing ran for it."""
    exception: NotRequired[StepException | None]
    """What the code of the step raised; absent if nothing, and without `can_view_full_history`."""
    fingerprint: str | None
    """Digest of what was asked, equal in two executions that asked the same at this step. Null without `can_view_full_history`, and where it is not known any more."""
    from_step: int | None
    """The `from_step` of a fork that runs it again; null before the first."""
    key: str
    """The step's key in the journal."""
    kind: str
    """`retrieval` (a search of the memory), `prepare`, `compaction` (of a session), `planning`, `plan`, `inference` (tools and candidates), `attempt` (at an inference), `tool_call`, `code_round` (calls that code waits for), `node` and `agent` (of a flow: its function; its system prompt and model), `validation` (of an answer, by a worker), `wait`, `answer` (to a suspension), `decision`, `refusal`, or `stop`."""
    outcome: Any
    """What was answered."""
    provider: str | None
    """The engine that was asked."""
    request: Any
    """What was asked; null if nothing is, or if it is not known any more."""
    started_at: str
    """Start time."""
    step_name: str | None
    """The plan step, or the node of a flow, that it belongs to."""
    tool_name: str | None
    """The tool that was called."""
    usage: TokenUsage | None
    """Tokens of the attempt."""


class Suspension(TypedDict):
    """Open suspension of an execution."""

    agent: NotRequired[str | None]
    """Configured agent that acts there; null without one."""
    approvals: NotRequired[GivenApprovals | None]
    """Approvals so far, of a call that needs more than one; absent otherwise."""
    arguments_digest: NotRequired[str | None]
    """Digest of the arguments that an approval applies to."""
    asked_at: NotRequired[str | None]
    """Time of the suspension."""
    asked_because: NotRequired[ApprovalReason | None]
    """Why an approval is asked for, the first that holds: `rule` (of `policy.approve`), `repeated` (an unsafe call again), `untrusted_text` (a rule of `policy.pre_authorise` would else cover it), `tool` (declared to act outside). Null of other kinds."""
    expires_at: str
    """Time of expiry."""
    kind: SuspensionKind
    """Kind of the suspension."""
    on_expiry: NotRequired[Literal["deny"] | None]
    """`deny` if the call is not approved then, and the execution goes on; absent if it is cancelled."""
    step_name: NotRequired[str | None]
    """Plan step or node of a flow that is suspended."""
    suspension_id: str
    """Id of the suspension."""
    tool_call_id: NotRequired[str | None]
    """Tool call that is suspended."""
    tool_id: str
    """Name that a resume uses."""
    value: JsonValue
    """Question."""


class SuspensionChange(TypedDict):
    """A suspension that was opened, or is not open any more."""

    open: bool
    """True while it can be answered."""
    suspension: OpenSuspension
    """The suspension."""


class SuspensionPage(TypedDict):
    data: list[OpenSuspension]
    """Items of this page."""
    has_more: bool
    """True if there are more pages."""
    next: str | None
    """Value of `after` for the next page; null on the last one."""


class SystemError(TypedDict):
    """Failure as clients see it; `code` is for programs, `message` for people."""

    category: Category
    """Category of the failure taxonomy."""
    caused_by: str | None
    """Code or type of the cause."""
    code: Code
    """Stable error code."""
    details: dict[str, Any]
    """Facts for programs."""
    message: str
    """Description for people; never echoes input."""
    retryable: bool
    """True if sending the request again may help."""


class SystemRequest(TypedDict):
    """Request to the system."""

    after: NotRequired[str | None]
    """Id of an execution that has ended; the conversation begins with its whole transcript."""
    agent: NotRequired[str | None]
    """An agent from GET /v1/agents: prompt, model, mode, tools, limits, output and hints in one name. `model` and `mode` can only repeat its own, but an agent of mode chat may answer in the request's format; `tools` and limits can only narrow them."""
    background: NotRequired[bool]
    """True to answer 202 at once and run in the background. Default: false."""
    client_tools: NotRequired[list[ClientTool]]
    """Tools to offer that the client runs, in the modes chat and structured."""
    context: NotRequired[ContextOptions]
    """Retrieval and skills."""
    flow: NotRequired[FlowOptions | None]
    """Options of flow mode."""
    hints: NotRequired[ExecutionHints]
    """Tuning."""
    if_session_busy: NotRequired[Literal["reject", "enqueue"]]
    """Effect of a busy session. Default: `reject`."""
    input: NotRequired[InputContract | None]
    """Requirements of the input."""
    limits: NotRequired[Limits]
    """Limits of this execution."""
    messages: NotRequired[list[Message]]
    """Conversation, the oldest message first; optional in mode flow only. In a session and with `after` it may begin with the results of calls that the last turn left to the client."""
    metadata: NotRequired[dict[str, str]]
    """Client metadata, returned under `metadata.client`."""
    mode: NotRequired[Mode]
    """Pattern to run. Default: `chat`."""
    model: NotRequired[str | None]
    """Route or engine name from GET /v1/engines, never a URL."""
    on_client_call: NotRequired[Literal["suspend", "end"]]
    """Effect of a call of a client tool, after the other calls of the reply: `suspend` until each is answered, or `end` the execution with `client_calls`. Default: `suspend`."""
    on_disconnect: NotRequired[Literal["cancel", "continue"] | None]
    """Effect of a closed connection; absent: `cancel` for a plain request."""
    on_limit: NotRequired[Literal["fail", "salvage"]]
    """Effect of a reached limit. Default: `fail`."""
    output: NotRequired[OutputContract]
    """Required format of the answer."""
    plan: NotRequired[PlanOptions | None]
    """Options of plan mode."""
    redundancy: NotRequired[RedundancyOptions | None]
    """Options of redundant mode."""
    request_id: NotRequired[str | None]
    """Id of the execution, unique per tenant; generated if absent."""
    run_at: NotRequired[str | None]
    """Time of RFC 3339 at which it starts, in the background, at most 366 days ahead; one in the past is now. It runs with the rights that its caller has then."""
    session_id: NotRequired[str | None]
    """Id of a session, which makes the conversation persistent."""
    store: NotRequired[bool]
    """False: nothing is stored beyond the end of the execution, which can then not be read again. Default: true."""
    tools: NotRequired[list[str] | None]
    """Tools to offer; absent: all that are permitted, or those of the agent; []: none. `agent:NAME` is an agent as a tool, offered only if it is named."""
    trace_id: NotRequired[str | None]
    """32 hex digits; if absent, taken from `traceparent` or generated."""
    webhooks: NotRequired[list[str]]
    """Endpoints of GET /v1/webhooks that hear of this execution, beside those that hear of all."""


class SystemResponse(TypedDict):
    """Response of the system, failures included."""

    client_calls: NotRequired[list[ToolCall]]
    """Calls that the client is left with, in order; absent if there are none."""
    confidence: float | None
    """Confidence in the answer."""
    confidence_source: ConfidenceSource | None
    """Source of the confidence."""
    content: str | None
    """Text of the answer; partial if there is an error."""
    cost: Cost | None
    """Cost, if prices are configured."""
    error: SystemError | None
    """Failure that ended the execution."""
    final_answer: FinalAnswer | None
    """Final answer of multi-pass reasoning or salvage."""
    messages: list[Message]
    """Messages that this turn adds to a conversation: the model's turns with their calls, tool results."""
    metadata: ResponseMetadata
    """Details of the answer."""
    mode: Mode
    """Pattern that ran."""
    plan: PlanReport | None
    """Plan, in plan mode."""
    reasoning: NotRequired[list[Reasoning] | None]
    """What models thought before their answers, in order, cut to 1 MiB; with `output.reasoning` only."""
    request_id: str
    """Id of the request."""
    session_id: str | None
    """Id of the session."""
    state: LifecycleState
    """State of the execution."""
    structured_output: Any
    """Value of the answer if a format was required."""
    suspensions: list[Suspension]
    """Open suspensions."""
    token_usage: TokenUsage
    """Tokens of all attempts."""
    tool_calls_made: list[ToolCallMade]
    """All tool calls, in order."""
    trace_id: str
    """Id of the trace."""
    validation_result: ValidationResult | None
    """Result of the validation."""
    vote: VoteReport | None
    """Vote, in redundant mode."""


class TextPart(TypedDict):
    """Text next to other parts."""

    text: str
    """The text."""
    type: Literal["text"]
    """Type of the part."""


class TokenUsage(TypedDict):
    """Tokens of all attempts. Output includes reasoning, input includes tokens read from and written to a cache."""

    cache_write_tokens: int
    """Input tokens written to a cache. Default: 0."""
    cached_tokens: int
    """Input tokens read from a cache. Default: 0."""
    estimated: bool
    """True if any part is an estimate. Default: false."""
    input_tokens: int
    """Input tokens. Default: 0."""
    output_tokens: int
    """Output tokens. Default: 0."""
    reasoning_tokens: int
    """Output tokens used for reasoning. Default: 0."""
    total_tokens: int
    """Input and output tokens together. Default: 0."""


class ToolCall(TypedDict):
    """Tool call that a model asked for."""

    arguments: dict[str, Any]
    """The arguments by name."""
    id: str
    """Id of the call, generated if the provider gave none."""
    name: str
    """Name of the tool as the model wrote it."""


class ToolCallMade(TypedDict):
    """Tool call that the model asked for, refused ones included."""

    agent: str | None
    """Configured agent that made the call; null without one."""
    arguments: dict[str, Any]
    """Arguments by name, as the tool got them."""
    asked_arguments: NotRequired[dict[str, Any] | None]
    """The arguments that the model asked for, if a person changed them; absent otherwise."""
    attempts: int
    """Number of times the tool ran."""
    client: NotRequired[bool]
    """True if the client runs the tool; absent otherwise. Default: false."""
    decision: NotRequired[DecisionMade | None]
    """What persons decided about the call; absent if no person was asked."""
    duration_ms: float
    """Duration of all attempts in milliseconds."""
    edited: NotRequired[bool]
    """True if the result is an edit of a fork; absent otherwise. Default: false."""
    id: str
    """Id of the call, generated if the provider gave none."""
    is_error: bool
    """True if the result is an error text."""
    name: str
    """Name of the tool as the model wrote it."""
    result: str | None
    """Text the model saw; null while the call waits."""
    status: ToolCallStatus
    """What has become of the call."""
    step_name: str | None
    """Plan step the call belongs to."""


class ToolContent(TypedDict):
    """Arguments of a tool call as it starts, or its result as it ends. Live only: never stored, never logged."""

    arguments: NotRequired[Any]
    caused_by: str | None
    client: NotRequired[bool]
    """Default: false."""
    parent_span_id: str | None
    request_id: str
    result: NotRequired[str | None]
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    tool_call_id: str
    trace_id: str
    type: Literal["tool.content"]


class ToolEnd(TypedDict):
    """End of an attempt at a tool call."""

    caused_by: str | None
    duration_ms: float
    error_code: Code | None
    parent_span_id: str | None
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    success: bool
    timestamp: str
    tool_call_id: str
    tool_name: str
    trace_id: str
    type: Literal["tool.end"]


class ToolList(TypedDict):
    data: list[ToolView]
    """Items."""


class ToolProgress(TypedDict):
    """Progress of a tool call from 0 to 1, as its tool reports it. Live only: never stored, never logged."""

    caused_by: str | None
    message: NotRequired[str]
    parent_span_id: str | None
    progress: float
    request_id: str
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    tool_call_id: str
    tool_name: str
    trace_id: str
    type: Literal["tool.progress"]


class ToolStart(TypedDict):
    """Start of an attempt at a tool call."""

    args_hash: str
    caused_by: str | None
    client: NotRequired[bool]
    """Default: false."""
    parent_span_id: str | None
    replica: NotRequired[int | None]
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    tool_call_id: str
    tool_name: str
    trace_id: str
    type: Literal["tool.start"]


class ToolView(TypedDict):
    """A registered tool as GET /v1/tools shows it."""

    approval: bool
    """True if a call may wait for a person."""
    at_most_once: bool
    """True if a call acts and is not idempotent: it never runs twice unless a person says so."""
    available: bool
    """True if the tool can run now."""
    containment: str
    """How a call is contained; empty for a tool that runs in the service itself."""
    description: str
    """The description that the model reads."""
    idempotent: bool
    """True if a second call has no further effect."""
    isolation: str
    """The level of isolation in force: `bubblewrap`, `landlock`, `limits`, or `interpreter` for code that calls tools; empty without a program."""
    name: str
    """The tool's name."""
    network: str
    """The hosts that its program reaches: `none`, or `open` for all that the service reaches; empty without a program."""
    original_name: str
    """The name at its MCP server; empty for a tool of another source."""
    parameters: dict[str, JsonValue]
    """JSON Schema of its arguments."""
    reason: str
    """The reason if it cannot."""
    requires: list[str]
    """Requirements of its environment; `person` waits for an answer."""
    retried: bool
    """True if a call that failed is tried once more."""
    side_effects: SideEffects
    """The effect of a call on the outside world."""
    source: str
    """The source: `built-in`, `sandbox`, `modules`, `flows`, `cli`, `http` or `mcp`."""
    type: str
    """The kind of tool."""


class TracedAttempt(TypedDict):
    """One provider attempt; null values mean that it has not ended, or never did because its process died."""

    duration_ms: float | None
    """Duration in milliseconds."""
    finish_reason: Literal["stop", "tool", "length", "content_filter", "cancelled", "error"] | None
    """The reason for which it ended."""
    model: str
    """The model's name at the provider."""
    provider: str
    """The configured engine."""
    replica: int | None
    """The replica that it belongs to."""
    segment: str
    """The attempt's id in events."""
    started_at: str
    """Start time."""
    step_name: str | None
    """The step of a plan that it belongs to."""
    tokens_in: int
    """Input tokens."""
    tokens_out: int
    """Output tokens."""
    tool_call_count: int
    """Number of tool calls in its reply."""


class TracedContext(TypedDict):
    """Choices of PREPARE for the first inference: ids and counts."""

    chunks: list[ContextChunk]
    """The chunks that were retrieved; one that is not used did not fit."""
    cut: HistoryCut
    """Earlier messages that are left out, summed up or repaired."""
    excluded: list[ExcludedSkill]
    """The skills that were not, and why."""
    redacted: dict[str, int]
    """Number of values of the history that were redacted, by kind."""
    skills: list[UsedSkill]
    """The skills that were chosen, with their tokens."""
    terms: TracedTerms
    """The budget equation."""


class TracedInference(TypedDict):
    """The context of one inference; its attempts have the segments `KEY/0`, `KEY/1`, …."""

    fits: bool
    """False if the inference was refused because its context is too large."""
    key: str
    """Key of the inference."""
    results_cut: int
    """Number of tool results that were cut to fit."""
    step_name: str | None
    """The step of a plan that it belongs to."""
    terms: TracedTerms
    """The budget equation, behind the cut."""


class TracedStage(TypedDict):
    """One stage of the pipeline."""

    duration_ms: float
    """Duration in milliseconds; of a summed stage, of all its parts together."""
    outcome: str
    """`ok` or `failed`."""
    stage: str
    """The stage's name."""
    started_at: str
    """Start time; of a summed stage, the start of its first part."""


class TracedTerms(TypedDict):
    """The budget equation of one context, in tokens."""

    history: int
    """Earlier messages and their summary."""
    limit: int
    """Context window of the largest engine of the route, less its response reserve."""
    memory: int
    """Retrieved context."""
    message: int
    """The last message."""
    skills: int
    """Skills."""
    system: int
    """The system prompt, without skills."""
    tools: int
    """Definitions of tools."""
    used: int
    """The sum of the terms."""


class TracedToolCall(TypedDict):
    """One attempt at a tool call; null values mean that it has not ended."""

    args_hash: str
    """Keyed hash of the arguments."""
    client: bool
    """True if the client runs the tool."""
    duration_ms: float | None
    """Duration in milliseconds."""
    error_code: Code | None
    """The error code if it did not."""
    started_at: str
    """Start time."""
    step_name: str | None
    """The step of a plan that it belongs to."""
    success: bool | None
    """True if the tool succeeded."""
    tool_call_id: str
    """The call's id in events."""
    tool_name: str
    """The tool's name."""


class UsageList(TypedDict):
    data: list[UsageView]
    """Items."""


class UsageView(TypedDict):
    """Sums of one group, whose name is under the field that they are grouped by."""

    agent: NotRequired[str | None]
    """Agent; null without one."""
    cost: Cost
    """Cost by the configured prices; models without a price are free."""
    day: NotRequired[str | None]
    """Day in UTC, as 2026-11-22."""
    executions: int
    """Executions that began; of a model, those that asked it."""
    input_tokens: int
    """Tokens that the models read."""
    key: NotRequired[str | None]
    """Public id of the key; null without one."""
    model: NotRequired[str | None]
    """Model, as it is configured."""
    output_tokens: int
    """Tokens that they wrote."""
    total_tokens: int
    """Both together."""
    user: NotRequired[str | None]
    """User."""


class UsedSkill(TypedDict):
    """A skill in the context."""

    name: str
    tokens: int


class ValidationEnd(TypedDict):
    """Result of a validation. Rules never quote the answer, but a judge may. `replica` is None outside redundant mode."""

    attempt: int
    caused_by: str | None
    errors: list[Any]
    parent_span_id: str | None
    replica: NotRequired[int | None]
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["validation.end"]
    valid: bool
    warnings: list[Any]


class ValidationResult(TypedDict):
    """Errors, warnings and repairs of the answer."""

    attempts: int
    """Number of attempts. Default: 1."""
    errors: list[JsonValue]
    """Errors."""
    repairs: list[JsonValue]
    """Repairs."""
    valid: bool
    """True if the answer is valid."""
    warnings: list[JsonValue]
    """Warnings."""


class VariantView(TypedDict):
    """One variant of an error code."""

    condition: str
    """Condition of this variant."""
    retryable: bool
    """True if sending the request again may help."""
    status: int
    """HTTP status."""


class VoteCast(TypedDict):
    """Vote of a replica, or its failure without one. The event does not contain the vote."""

    caused_by: str | None
    error_code: Code | None
    parent_span_id: str | None
    replica: int
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    status: Literal["voted", "failed"]
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    timestamp: str
    trace_id: str
    type: Literal["vote.cast"]


class VoteDecided(TypedDict):
    """End of a vote: the `votes` of the winner or a failure, early if some `replicas` were cancelled. `replica` is the first one that gave the winning answer. `confidence` is between 0 and 1."""

    caused_by: str | None
    confidence: float | None
    error_code: Code | None
    failed: int
    parent_span_id: str | None
    replica: int | None
    replicas: int
    request_id: str
    sequence_number: int
    session_id: str | None
    span_id: str
    step_name: NotRequired[str]
    """Step of a plan in which the event happened."""
    stopped_early: bool
    timestamp: str
    trace_id: str
    type: Literal["vote.decided"]
    voted: int
    votes: int | None


class VoteReport(TypedDict):
    """Vote that was held."""

    candidates: list[Any]
    """The replicas' values."""
    fields: dict[str, Any] | None
    """Votes by JSON path."""
    stopped_early: bool
    """True if replicas were cancelled early."""
    tally: list[Any]
    """Votes by value."""


class WrittenFileView(TypedDict):
    """A file that was written."""

    bytes: int
    """Its size in bytes."""
    path: str
    """Its path, relative, with `/` between its parts."""
    sha256: str
    """SHA-256 of its bytes, in hex."""


ExecutionEvent: TypeAlias = (
    LifecycleTransition
    | FallbackTransition
    | StageEnd
    | ContextAssembled
    | GuardEnd
    | InferenceStart
    | InferenceDelta
    | InferenceRetracted
    | InferenceEnd
    | ToolStart
    | ToolContent
    | ToolProgress
    | ToolEnd
    | ConstraintRepaired
    | ValidationEnd
    | PlanCreated
    | VoteCast
    | VoteDecided
    | StepStart
    | StepEnd
    | PassEnd
    | NodeStart
    | FlowStep
    | RetrievalStart
    | RetrievalEnd
    | ExecutionSuspended
    | ExecutionResumed
    | ApprovalGiven
    | ExecutionCompleted
    | ExecutionFailed
    | ExecutionCancelled
)
