"""Transcripts of an execution that runs or has ended: the conversation of each of its branches, for people to read.

The record has the answers of models and tools, and the messages between follow from them. So the execution is replayed
offline, as far as its record goes, and the conversations that its inferences ask about are read.
"""

from contextlib import suppress
from typing import Final

from pydantic import BaseModel, Field

from portico.domain.contract.messages import Message
from portico.domain.contract.response import Json, public_message
from portico.domain.failures import Failure
from portico.domain.journal.events import GuardEnd
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.journal.step_key import ROOT, StepKey
from portico.domain.value import value
from portico.orchestration.execution.effect import Effect
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.inference import Attempt
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.execution.progress import Conversation
from portico.orchestration.runtime.driver import replay
from portico.orchestration.runtime.resume import as_suspended, status_of
from portico.ports.journal import ExecutionHistory

OUTERMOST: Final = "outermost"


class BranchTranscript(BaseModel):
    """The conversation of one branch of an execution with a model."""

    branch: str = Field(
        description="`outermost`, or the key of the branch in the journal: of a nested agent, step, replica or node."
    )
    step_name: str | None = Field(description="The plan step, node or agent that it belongs to.")
    messages: list[Json] = Field(
        description="All messages in order, those that it began with included. Once the execution has ended, each call "
        "has a result."
    )


@value
class BranchConversation:
    """The messages of a branch, and what it belongs to."""

    branch: StepKey
    step_name: str | None
    messages: tuple[Message, ...]

    def view(self) -> BranchTranscript:
        """Return the conversation as clients see it."""
        return BranchTranscript(
            branch=OUTERMOST if self.branch == ROOT else self.branch,
            step_name=self.step_name,
            messages=[public_message(message) for message in self.messages],
        )


def branch_conversations(history: ExecutionHistory, pattern: Pattern) -> list[BranchConversation]:
    """Return the conversations of the execution so far, the outermost first; none before its input was judged."""
    if not passed_judges(history):
        return []
    observed = _Observed(as_suspended(history))
    with suppress(Failure):
        # The record of a running execution ends in the middle.
        replay(observed, pattern)
    has_ended = status_of(history).ended
    return sorted(
        (
            BranchConversation(branch, step_name, tuple(conversation.messages_so_far(has_ended=has_ended)))
            for branch, step_name, conversation in observed.conversations.values()
        ),
        key=lambda each: each.branch.numbers,
    )


def passed_judges(history: ExecutionHistory) -> bool:
    """Return True unless a judge that may refuse the input has refused it, or has not judged it."""
    passed = {
        stored.event.guard
        for stored in history.events
        if isinstance(stored.event, GuardEnd) and not stored.event.tripped
    }
    return all(judge.guard in passed for judge in history.header.judges if judge.action == "refuse")


class _Observed(Execution):
    """An execution in an offline replay that notes the conversations of its inferences, but for side questions."""

    def __init__(self, history: ExecutionHistory) -> None:
        super().__init__(history.header, environment=None, journal=None, history=history)
        self.conversations: dict[int, tuple[StepKey, str | None, Conversation]] = {}

    def find(self, effect: Effect) -> RecordedStep | None:
        if isinstance(effect, Attempt) and not effect.inference.settings.is_side_question:
            inference = effect.inference
            found = (inference.key.parent, effect.correlation.step_name, inference.conversation)
            self.conversations.setdefault(id(inference.conversation), found)
        return super().find(effect)
