"""A call that must not act twice, that began and has no outcome: who was asked about it, and what was said.

Question n of the call is asked when its run n, counted from 0, is in doubt. An answer may allow one more run. That it
began stands under a key behind the question's, put before it acts, so that the answer is used once.
"""

from dataclasses import dataclass
from itertools import count

from app.domain.journal.outcomes import Outcome, SuspensionAnswer
from app.orchestration.execution.effect import NonIdempotent, SuspensionRequest
from app.orchestration.execution.recorder import ReplayCursor


@dataclass(frozen=True, slots=True)
class UnknownOutcome:
    """The question that decides. `outcome` is what its answer gives; without one the call is run if it `may_run`."""

    number: int
    question: SuspensionRequest
    may_rerun: bool = False
    outcome: Outcome | None = None

    @property
    def rerun_key(self) -> str:
        """The key under which stands that the run began that the answer allows."""
        return f"{self.question.key}/0"


def resolve(call: NonIdempotent, before: ReplayCursor) -> UnknownOutcome:
    """What the record knows of it."""
    for number in count():
        doubt = UnknownOutcome(number, call.question(number))
        answered = before.step(doubt.question.key)
        if answered is None:
            return doubt
        assert isinstance(answered.outcome, SuspensionAnswer)  # noqa: S101 - what a question can come to
        outcome = call.outcome_from_answer(answered.outcome.payload)
        if outcome is not None or before.step(doubt.rerun_key) is None:
            return UnknownOutcome(number, doubt.question, outcome is None, outcome)
    raise AssertionError
