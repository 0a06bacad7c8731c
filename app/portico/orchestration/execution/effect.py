"""Effects: everything that an execution does to the world, and the questions that an effect may raise.

A non-idempotent effect that has started and has no outcome is uncertain. Question n of it is asked when its run n,
counted from 0, is uncertain. An answer may allow one more run; the start of that run is recorded below the question
before it acts, so that an answer is used once.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from pydantic import JsonValue

from portico.domain.access.tool_policy import USUAL_TERMS, ApprovalReason, ApprovalTerms
from portico.domain.contract.response import SuspensionKind
from portico.domain.fingerprints import question_digest
from portico.domain.journal.events import CorrelationContext, Event, LiveDelta
from portico.domain.journal.outcomes import AttemptCancelled, Outcome, RecordedStep, SuspensionAnswer
from portico.domain.journal.step_key import StepKey
from portico.domain.value import value
from portico.orchestration.execution.environment import Environment


class BranchStopped(BaseException):
    """End of a branch: it was stopped, its execution was, or an offline replay reached what was not recorded."""


class BranchSuspended(BaseException):
    """End of a branch that waits for an answer."""


class Effect(ABC):
    """One thing to do, and how it is recorded.

    `fingerprint` identifies the effect when it is replayed. The start event is recorded before the effect runs. An
    effect that `is_instant` never waits and touches nothing: nothing need be committed before it. One that `acts` runs
    a tool or other people's code, and waits until the judges of the input have passed it.
    """

    key: StepKey
    fingerprint: str
    correlation: CorrelationContext
    start_event: Event | None = None
    is_instant = False
    acts = False

    @abstractmethod
    async def run(self, environment: Environment) -> Outcome:
        """Run once and return the outcome."""

    def asked(self) -> JsonValue:
        """Return what the effect asks, as a list of the steps shows it; None if there is nothing to ask."""
        return None

    def start_again(self, runs: int) -> Sequence[Event]:
        """Return the events of a start after so many runs that were interrupted."""
        return ()

    def cancelled(self, ran_ms: float) -> AttemptCancelled:
        """Return the outcome of a run that was cancelled after this time."""
        return AttemptCancelled(duration_ms=ran_ms)

    def end_events(self, outcome: Outcome) -> Sequence[Event]:
        """Return the events of an outcome. Called once an outcome, recorded now or replayed."""
        return ()

    def account(self, step: RecordedStep) -> None:  # noqa: B027 - most effects use nothing
        """Add the step, recorded now or replayed, to the ledger."""

    def streamed_deltas(self) -> Sequence[LiveDelta]:
        """Return what was published so far, for a subscriber that joins while the effect runs."""
        return ()


class RecordedValue(Effect):
    """The effect of looking something up in the environment; `asked` returns what is looked up."""

    def __init__(
        self,
        key: StepKey,
        fingerprint: str,
        correlation: CorrelationContext,
        *,
        find: Callable[[Environment], Awaitable[Outcome]],
        is_instant: bool,
        asked: Callable[[], JsonValue] | None = None,
    ) -> None:
        self.key = key
        self.fingerprint = fingerprint
        self.correlation = correlation
        self.is_instant = is_instant
        self._find = find
        self._asked = asked

    def asked(self) -> JsonValue:
        """Return what is looked up; None if nothing is shown of it."""
        return None if self._asked is None else self._asked()

    async def run(self, environment: Environment) -> Outcome:
        """Look it up."""
        return await self._find(environment)


class NonIdempotentEffect(Effect):
    """An effect that must not happen twice. `unknown_outcome` is its outcome when no answer can be awaited."""

    unknown_outcome: Outcome

    @abstractmethod
    def is_uncertain(self, outcome: Outcome) -> bool:
        """Return True for an outcome that leaves open whether the effect has happened."""

    @abstractmethod
    def question(self, number: int) -> "SuspensionRequest":
        """Return the question about the run of that number."""

    @abstractmethod
    def outcome_from_answer(self, payload: JsonValue) -> Outcome | None:
        """Return the outcome that the answer gives; None where it allows one more run."""


@value
class SuspensionRequest:
    """A question that suspends its branch until it is answered.

    It is asked in the plan step or node `step_name`, and `agent` acts there; each is None outside of any. An approval
    has a `reason`, and `terms`.
    """

    key: StepKey
    kind: SuspensionKind
    tool_id: str
    value: JsonValue
    tool_call_id: str | None = None
    arguments_digest: str | None = None
    step_name: str | None = None
    agent: str | None = None
    reason: ApprovalReason | None = None
    terms: ApprovalTerms = USUAL_TERMS

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the question, by which its recorded answer is matched."""
        return question_digest(self.key, self.kind, self.tool_id, self.value)


@value
class UnknownOutcome:
    """The question that decides about an uncertain effect.

    `outcome` is what its answer gives; without one the effect is run once more if it `may_rerun`, else it waits.
    """

    number: int
    question: SuspensionRequest
    may_rerun: bool = False
    outcome: Outcome | None = None

    @property
    def rerun_key(self) -> StepKey:
        """Key of the step that records the start of the approved re-run."""
        return self.question.key.child(0)


def resolve(effect: NonIdempotentEffect, step: Callable[[StepKey], RecordedStep | None]) -> UnknownOutcome:
    """Return what the recorded answers decide; `step` looks up a recorded step."""
    for number in count():
        question = effect.question(number)
        answer = step(question.key)
        if answer is None:
            return UnknownOutcome(number, question)
        assert isinstance(answer.outcome, SuspensionAnswer)  # noqa: S101 - the only outcome of a question
        outcome = effect.outcome_from_answer(answer.outcome.payload)
        unknown = UnknownOutcome(number, question, outcome is None, outcome)
        if outcome is not None or step(unknown.rerun_key) is None:
            return unknown
    raise AssertionError
