"""The closed union of effects' outcomes, what a step is keyed by, and how a journal knows it again.

A step's key alternates ordinals (from 0) and branches: `2/1/0` is the first effect of branch 1 of the third step.
Inferences and tool calls are compositions: their attempts are `k/0`, `k/1`, …, and the wait after attempt i is
`k/i/0`. The plan stands under `plan`, the result of PREPARE under `prepare`,
the decision to stop under `stop`, the decision that some branches of a gather are enough, or that the time of a branch
has passed, under the key of what they belong to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import JsonValue

from app.domain.contract.constrained_types import FormatEnforcement
from app.domain.contract.messages import Message, ModelMessage
from app.domain.contract.request import PlanStep
from app.domain.contract.response import NO_USAGE, TokenUsage
from app.domain.failures import Code, Failure, failure
from app.domain.model_call import AttemptFailureReason, Reply
from app.domain.tools import OfferedTool


@dataclass(frozen=True)
class StageTrace:
    """One stage of the pipeline as it ended."""

    stage: str
    duration_ms: float
    outcome: str = "ok"


@dataclass(frozen=True)
class Prepared:
    """What PREPARE found: the conversation to begin with, and the tools that may be offered.

    `prior_message_count` counts all messages of the session, including those that are left out here.
    """

    messages: tuple[ModelMessage | Message, ...]
    tools: tuple[str, ...]
    truncated_history: bool
    stages: tuple[StageTrace, ...]
    prior_message_count: int = 0


@dataclass(frozen=True)
class PlanningInputs:
    """Outcome: no plan is there yet, and these tools one may call; each has a name, a description and parameters.

    `history` is the conversation if it began before the request.
    """

    tools: tuple[Mapping[str, Any], ...]
    history: tuple[ModelMessage | Message, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Outcome: the plan that will run, which planner made it and why."""

    steps: tuple[PlanStep, ...]
    planner_id: str
    rationale: str


@dataclass(frozen=True)
class Candidate:
    """One provider an inference may try: the engine's configured name and the model it stands for.

    `price` is per million input and output tokens, where one is configured; `withheld` names what the request holds
    that this provider is not given. `way` is how it is kept to the answer's form, where there is one.
    """

    provider: str
    model: str
    price: tuple[float, float] | None = None
    withheld: tuple[str, ...] = ()
    way: FormatEnforcement | None = None

    @property
    def fingerprint(self) -> str:
        """What a journal knows an attempt on it again by."""
        return f"attempt:{self.provider}:{self.model}"


@dataclass(frozen=True)
class InferenceSetup:
    """What one inference begins with: tools available now, candidates in order, tool results cut to fit.

    `cut` are indexes into the conversation. `left_out` are candidates not to be tried, because their breaker is open;
    `closed_for` is how many seconds the first of them stays so.
    """

    tools: tuple[OfferedTool, ...]
    candidates: tuple[Candidate, ...]
    left_out: tuple[Candidate, ...] = ()
    closed_for: float = 0.0
    cut: tuple[int, ...] = ()


@dataclass(frozen=True)
class AttemptSucceeded:
    """Outcome: the provider answered."""

    reply: Reply
    duration_ms: float


@dataclass(frozen=True)
class AttemptFailed:
    """Outcome: the provider did not. `retry_after` is what it asked for, `wait` what was granted; both seconds.

    `wait` is None when this provider is to be left. `streamed` says whether a delta was published, `partial` holds
    the text of it. `details` are facts for programs.
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


@dataclass(frozen=True)
class ToolEnded:
    """Outcome: one tool attempt ended.

    `retry` says whether a second attempt was granted, `ran` whether the tool was run at all or the call refused.
    """

    content: str
    is_error: bool
    code: Code | None
    duration_ms: float
    retry: bool = False
    ran: bool = True


@dataclass(frozen=True)
class ToolCallSuspended:
    """Outcome: a tool attempt ended with a question to somebody outside, whose answer is the call's result."""

    value: JsonValue
    duration_ms: float


@dataclass(frozen=True)
class TimerFired:
    """Outcome: the wait is over."""


@dataclass(frozen=True)
class SuspensionAnswer:
    """Outcome: a person, or whoever was asked, answered."""

    payload: JsonValue


@dataclass(frozen=True)
class Refused:
    """Outcome: a check said no before anything was done. Replay never repeats a check."""

    code: Code
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    condition: str | None = None
    retry_after: float | None = None
    stages: tuple[StageTrace, ...] = ()

    @classmethod
    def by(cls, cause: Failure, stages: tuple[StageTrace, ...] = ()) -> "Refused":
        """The failure as an outcome; `stages` are those that ended before it, when it was PREPARE that refused."""
        return cls(cause.code, cause.message, cause.details, cause.condition, cause.retry_after, stages)

    def failure(self) -> Failure:
        """The outcome as the failure it was."""
        raised = failure(self.code, self.message, details=self.details, condition=self.condition)
        raised.retry_after = self.retry_after
        return raised


@dataclass(frozen=True)
class AttemptCancelled:
    """Outcome: cancelled while it ran; what it had used and streamed until then."""

    duration_ms: float
    usage: TokenUsage = NO_USAGE
    partial: str = ""


def usage_of(outcome: AttemptSucceeded | AttemptFailed | AttemptCancelled) -> TokenUsage:
    """The tokens of an attempt."""
    return outcome.reply.usage if isinstance(outcome, AttemptSucceeded) else outcome.usage


@dataclass(frozen=True)
class RaceDecided:
    """The decision, recorded before any branch is called off, that these branches of a gather are enough."""

    winners: tuple[int, ...]


@dataclass(frozen=True)
class StopDecision:
    """The decision, recorded before anything is cancelled, that the execution ends: by a signal or its deadline."""

    code: Code
    message: str


Outcome: TypeAlias = (
    PlanningInputs
    | Plan
    | Prepared
    | InferenceSetup
    | AttemptSucceeded
    | AttemptFailed
    | ToolEnded
    | ToolCallSuspended
    | TimerFired
    | SuspensionAnswer
    | Refused
    | AttemptCancelled
    | RaceDecided
    | StopDecision
)


@dataclass(frozen=True)
class RecordedStep:
    """A recorded step. `at` is Unix seconds."""

    key: str
    fingerprint: str
    outcome: Outcome
    at: float
