"""A call that must not act twice, that began and has no outcome: who was asked about it, and what was said.

Question n of the call is asked when its run n, counted from 0, is in doubt. An answer may allow one more run. That it
began stands under a key behind the question's, put before it acts, so that the answer is used once.
"""

from dataclasses import dataclass
from itertools import count

from app.domain.effects import Answered, Outcome
from app.orchestration.leaf import Question, UnsafeCall
from app.orchestration.record import Recollection


@dataclass(frozen=True, slots=True)
class Doubt:
    """The question that decides. `outcome` is what its answer gives; without one the call is run if it `may_run`."""

    number: int
    question: Question
    may_run: bool = False
    outcome: Outcome | None = None

    @property
    def intent(self) -> str:
        """The key under which stands that the run began that the answer allows."""
        return f"{self.question.key}/0"


def doubt_about(call: UnsafeCall, before: Recollection) -> Doubt:
    """What the record knows of it."""
    for number in count():
        doubt = Doubt(number, call.question(number))
        answered = before.row(doubt.question.key)
        if answered is None:
            return doubt
        assert isinstance(answered.outcome, Answered)  # noqa: S101 - what a question can come to
        outcome = call.told(answered.outcome.payload)
        if outcome is not None or before.row(doubt.intent) is None:
            return Doubt(number, doubt.question, outcome is None, outcome)
    raise AssertionError
