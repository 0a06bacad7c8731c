"""Outcomes of effects, and the steps that record them.

The union is closed: a journal stores each outcome by its kind, and a replay returns it instead of acting again.
Outcomes and everything in them have no slots, since orjson writes a dataclass that has a dict five times as fast.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from pydantic import JsonValue

from portico.domain.access.tool_policy import USUAL_TERMS, ApprovalReason, ApprovalTerms, CallVerdict
from portico.domain.context.guards import GuardVerdict
from portico.domain.context.report import ContextReport, ContextTerms
from portico.domain.contract.constrained_types import FormatEnforcement
from portico.domain.contract.messages import Message, ModelMessage, ToolCall, TracedMessage
from portico.domain.contract.request import ExecutionHints, Limits, NamedTool, OutputContract, PlanStep
from portico.domain.contract.response import NO_USAGE, TokenUsage, ValidationResult
from portico.domain.failures import Code, Failure, failure
from portico.domain.ids import UserId
from portico.domain.journal.step_key import StepKey
from portico.domain.lifecycle import Mode
from portico.domain.memory import EmbeddingCharge, FoundChunk, LegState
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.domain.raised_exception import RecordedException
from portico.domain.token_prices import TokenPrices
from portico.domain.tools import ArgumentViolation, OfferedTool
from portico.domain.value import value


@value(slots=False)
class StageTrace:
    """Stage of the pipeline, with its duration and outcome."""

    stage: str
    duration_ms: float
    outcome: str = "ok"


@value(slots=False)
class Prepared:
    """Outcome of PREPARE: the initial conversation and the tools that may be offered.

    `prior_message_count` counts all messages of the session, including those that are left out here. `left_out` are the
    tools that are not offered: those beyond the number that may be, and those that no chosen skill requires.
    """

    messages: tuple[ModelMessage | TracedMessage | Message, ...]
    tools: tuple[str, ...]
    truncated_history: bool
    stages: tuple[StageTrace, ...]
    prior_message_count: int = 0
    left_out: tuple[str, ...] = ()
    context: ContextReport | None = None

    def narrows(self, choice: object) -> bool:
        """Return True if the chosen skills leave out the tool that the request's `tool_choice` names."""
        has_skills = self.context is not None and bool(self.context.skills)
        return has_skills and isinstance(choice, NamedTool) and choice.name in self.left_out


@value(slots=False)
class Retrieved:
    """Outcome: the memory was searched for this `query`. `chunks` are those that were found, best first.

    Both legs are `skipped` if nothing was searched, because nothing is asked or the context has no room. `flagged` are
    the sources of chunks that a guard refused, which were dropped, each with the name of the guard.
    """

    query: str
    chunks: tuple[FoundChunk, ...]
    lexical: LegState
    vector: LegState
    duration_ms: float
    embedding: EmbeddingCharge | None = None
    flagged: Mapping[str, str] = field(default_factory=dict)


@value(slots=False)
class MediaFetched:
    """Outcome: the bytes behind a URL of the request, in base64, their media type, and what guards found in them."""

    media_type: str
    data: str
    duration_ms: float
    guards: tuple[GuardVerdict, ...] = ()

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return len(self.data) // 4 * 3 - self.data[-2:].count("=")


MODEL_PLANNERS: Final = frozenset({"model", "subplan"})
"""The `planner_id` of plans that a model made."""
PLANNER_IDS: Final = MODEL_PLANNERS | {"authored", "static"}
"""Every `planner_id` that no planner of a module may have."""


@value(slots=False)
class Plan:
    """Outcome: the plan to run, which planner made it and why."""

    steps: tuple[PlanStep, ...]
    planner_id: str
    rationale: str


@value(slots=False)
class CompactionStarted:
    """Outcome: turns of the session are to be summed up, as redacted texts, together with the `earlier` summary.

    The new one covers the first `covered` messages of the session, and has at most so many tokens.
    """

    turns: tuple[str, ...]
    earlier: str
    covered: int
    is_untrusted: bool
    max_tokens: int


@value(slots=False)
class PlanningInputs:
    """Outcome: the inputs of the planner. Each tool has a name, a description and parameters.

    So has each of the `step_types` of modules. `history` is the conversation if it began before the request. `plan` is
    that of a planner of a module, if one is configured. With `retrieval` a plan may search the memory.
    """

    tools: tuple[Mapping[str, Any], ...]
    history: tuple[ModelMessage | TracedMessage | Message, ...] = ()
    step_types: tuple[Mapping[str, Any], ...] = ()
    plan: Plan | None = None
    retrieval: bool = False


@value(slots=False)
class Candidate:
    """Provider that an inference may try: the engine's configured name and its model.

    `price` is that of a million input and output tokens, `cache_price` that of a million input tokens which were read
    from a cache, and of those written to one; absent, they cost as much as others. `withheld` names the parts of the
    request that this provider does not get. `way` is how the response format is enforced, if there is one. An engine
    with deployments has a candidate for each of some; the `account` is that which alone can read what it keeps.
    """

    provider: str
    model: str
    price: tuple[float, float] | None = None
    withheld: tuple[str, ...] = ()
    way: FormatEnforcement | None = None
    cache_price: tuple[float, float] | None = None
    deployment: str | None = None
    account: str | None = None

    @property
    def prices(self) -> TokenPrices | None:
        """Return the prices, if they are known."""
        if self.price is None:
            return None
        return TokenPrices(*self.price, *(self.cache_price or (self.price[0], self.price[0])))

    @property
    def address(self) -> str:
        """Return what is asked: the name of the engine, or `ENGINE/DEPLOYMENT`."""
        return self.provider if self.deployment is None else f"{self.provider}/{self.deployment}"

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of an attempt on this candidate."""
        named = f"attempt:{self.provider}:{self.model}"
        return named if self.deployment is None else f"{named}:{self.deployment}"


@value(slots=False)
class CauseCandidates:
    """Candidates in order that are tried once an attempt has failed for that cause."""

    cause: AttemptFailureReason
    candidates: tuple[Candidate, ...]


@value(slots=False)
class InferenceSetup:
    """Outcome: the tools that are available now, the candidates in order, and the tool results that were cut to fit.

    `cut` holds indexes into the conversation. `left_out` holds the candidates whose breaker is open; the first of them
    closes in `closed_for` seconds. `terms` are those of the conversation behind the cut. `by_cause` holds the
    candidates that replace the others after a failure for a cause, also those behind an open breaker.
    """

    tools: tuple[OfferedTool, ...]
    candidates: tuple[Candidate, ...]
    left_out: tuple[Candidate, ...] = ()
    closed_for: float = 0.0
    cut: tuple[int, ...] = ()
    terms: ContextTerms | None = None
    by_cause: tuple[CauseCandidates, ...] = ()

    @property
    def all_candidates(self) -> tuple[Candidate, ...]:
        """Return the candidates and those by cause."""
        return (*self.candidates, *[each for cause in self.by_cause for each in cause.candidates])


@value(slots=False)
class AttemptSucceeded:
    """Outcome: the provider answered."""

    reply: Reply
    duration_ms: float


@value(slots=False)
class AttemptFailed:
    """Outcome: the attempt on the provider failed.

    `retry_after` is what the provider asked for and `wait` what was granted, in seconds; without `wait` the provider is
    not tried again. `streamed` is True if a delta was published, and `partial` is the text of the deltas, of a very
    long one its beginning. `details` are facts for programs. An attempt that `leaves_engine` was denied another one by
    the retry budget of its engine, so that none of its other deployments is asked either.
    """

    reason: AttemptFailureReason
    message: str
    wait: float | None
    retry_after: float | None
    streamed: bool
    partial: str
    usage: TokenUsage
    duration_ms: float
    details: Mapping[str, Any] = field(default_factory=dict)
    leaves_engine: bool = False


@value(slots=False)
class ToolEnded:
    """Outcome: one attempt at a tool call ended.

    `retry` is True if a second attempt was granted, `ran` is False if the call was refused. `violations` say why its
    arguments were refused. `exception` is what the tool raised, if that was no `ToolError`.
    """

    content: str
    is_error: bool
    code: Code | None
    duration_ms: float
    retry: bool = False
    ran: bool = True
    violations: tuple[ArgumentViolation, ...] = ()
    exception: RecordedException | None = None


@value(slots=False)
class ToolCallSuspended:
    """Outcome: the tool asked a question, whose answer becomes the result of the call.

    With a `state` the tool is called again with the answer and the state instead. With a `credential` the question is
    for its value, and the tool, which has not acted, is called again when there is one.
    """

    value: JsonValue
    duration_ms: float
    state: str | None = None
    credential: str | None = None


@value(slots=False)
class CallDecided:
    """Outcome: policy decided about a tool call. `tool_digest` is that of the tool's definition by then, and `reason`
    says why a person is asked, on which `terms`; a grant can stand in for an answer if it is `grantable`.
    """

    verdict: CallVerdict
    tool_digest: str
    reason: ApprovalReason | None = None
    terms: ApprovalTerms = USUAL_TERMS
    grantable: bool = False


@value(slots=False)
class GrantUsed:
    """Outcome: a grant was looked for in place of a person's answer; all fields are None if none covers the call.

    `granted_at` is in Unix seconds.
    """

    grant_id: str | None = None
    granted_by: UserId | None = None
    granted_at: float | None = None


@value(slots=False)
class NodeEnded:
    """Outcome: the function of a flow's node returned. `output` is its output in JSON."""

    output: str
    duration_ms: float


@value(slots=False)
class AgentStarted:
    """Outcome: an agent of a flow got its first task; this system prompt and this model hold from then on.

    So do the name, tools, hints and limits of an agent of the configuration; they are None for any other.
    """

    preamble: str
    model: str
    agent: str | None = None
    tools: tuple[str, ...] | None = None
    hints: ExecutionHints | None = None
    limits: Limits | None = None


@value(slots=False)
class AgentCallStarted:
    """Outcome: a tool call began to run that `agent`; these settings hold for its run.

    `tools` are those that it may use, `left_out` those of its own that the principal may not. `model` is None if it is
    that of the caller.
    `pattern_version` is that of the pattern of its `mode`, `result_bytes` the size of its result.
    """

    agent: str
    system_prompt: str | None
    mode: Mode
    pattern_version: int
    model: str | None
    tools: tuple[str, ...]
    hints: ExecutionHints
    output: OutputContract
    limits: Limits
    result_bytes: int
    left_out: tuple[str, ...] = ()


@value(slots=False)
class CodeStarted:
    """Outcome: a call began to run code that calls tools, in an interpreter of that version.

    `tools` are those that it may call. Its clock stands at the time of this step. Its result has at most `result_bytes`
    bytes.
    """

    interpreter: str
    tools: tuple[OfferedTool, ...]
    result_bytes: int


@value(slots=False)
class CodeRound:
    """Outcome: code went on until it could only wait, for these calls."""

    calls: tuple[ToolCall, ...]


@value(slots=False)
class TimerFired:
    """Outcome: the wait is over."""


@value(slots=False)
class Approver:
    """User who decided about a call: when, in Unix seconds, and with which comment."""

    user: UserId
    at: float
    reason: str | None = None


@value(slots=False)
class SuspensionAnswer:
    """Outcome: a suspension was answered; `guards` is what the guards found in the answer.

    The text of an answer that `is_untrusted` counts as that of an untrusted tool: a model may have given it. A decision
    about a call was made `by` these users, or by none if the time for it `expired`.
    """

    payload: JsonValue
    guards: tuple[GuardVerdict, ...] = ()
    is_untrusted: bool = False
    by: tuple[Approver, ...] = ()
    expired: bool = False


@value(slots=False)
class Refused:
    """Outcome: a check refused to act. A replay does not repeat the check."""

    code: Code
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    condition: str | None = None
    retry_after: float | None = None
    stages: tuple[StageTrace, ...] = ()
    exception: RecordedException | None = None
    """What the function of a flow's node, or of a planner, raised."""

    @classmethod
    def by(cls, cause: Failure, stages: tuple[StageTrace, ...] = ()) -> "Refused":
        """Return the failure as an outcome; `stages` are those that ended before PREPARE refused."""
        return cls(cause.code, cause.message, cause.details, cause.condition, cause.retry_after, stages)

    def failure(self) -> Failure:
        """Return the original failure."""
        raised = failure(self.code, self.message, details=self.details, condition=self.condition)
        raised.retry_after = self.retry_after
        return raised


@value(slots=False)
class AnswerValidated:
    """Outcome: a worker validated the answer of the inference that the step belongs to.

    `failure` says why the answer is invalid, and `exception` what the first rule raised that raised anything.
    """

    structured_output: JsonValue
    validation: ValidationResult
    failure: Refused | None = None
    exception: RecordedException | None = None


@value(slots=False)
class AttemptCancelled:
    """Outcome: the attempt was cancelled, after it had used and streamed this."""

    duration_ms: float
    usage: TokenUsage = NO_USAGE
    partial: str = ""


def usage_of(outcome: AttemptSucceeded | AttemptFailed | AttemptCancelled) -> TokenUsage:
    """Return the tokens of an attempt."""
    return outcome.reply.usage if isinstance(outcome, AttemptSucceeded) else outcome.usage


@value(slots=False)
class RaceDecided:
    """Outcome: these branches of a gather are enough. It is recorded before the others are cancelled."""

    winners: tuple[int, ...]


@value(slots=False)
class StopDecision:
    """Outcome: the execution stops, on a signal or at its deadline. It is recorded before anything is cancelled."""

    code: Code
    message: str


Outcome: TypeAlias = (
    PlanningInputs
    | Plan
    | MediaFetched
    | Retrieved
    | Prepared
    | CompactionStarted
    | InferenceSetup
    | AttemptSucceeded
    | AttemptFailed
    | ToolEnded
    | ToolCallSuspended
    | CallDecided
    | GrantUsed
    | NodeEnded
    | AgentStarted
    | AgentCallStarted
    | CodeStarted
    | CodeRound
    | TimerFired
    | SuspensionAnswer
    | Refused
    | AnswerValidated
    | AttemptCancelled
    | RaceDecided
    | StopDecision
)


@value(slots=False)
class RecordedStep:
    """Step of an execution with its outcome. `at` is in Unix seconds.

    A replay accepts the outcome only if the fingerprint is that of the effect it asks for.
    """

    key: StepKey
    fingerprint: str
    outcome: Outcome
    at: float
