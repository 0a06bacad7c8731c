"""State of a tool call: what was asked for, what persons decided about it, and what has come of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.response import ToolCallMade, ToolCallStatus
from portico.domain.failures import Code
from portico.domain.tools import ArgumentViolation, OfferedTool
from portico.orchestration.execution.call_answer import CallAnswer, marked_result

NOT_RUN = "not run: the execution ended"
CANCELLED = "cancelled while it ran"


@dataclass(slots=True)
class ToolCallState:
    """One call that was asked for, and what has come of it."""

    call: ToolCall
    step_name: str | None = None
    agent: str | None = None
    """The agent that makes the call; None without one."""
    result: str = NOT_RUN
    is_error: bool = True
    code: Code | None = None
    attempts: int = 0
    duration_ms: float = 0.0
    violations: Sequence[ArgumentViolation] = ()
    granted_digest: str | None = None
    """Digest of the definition with which it may run, empty for any; None until it may."""
    answer_given: CallAnswer | None = None
    """What persons decided about it; None if no person was asked."""
    offer: OfferedTool | None = None
    """The tool as it was offered; None until its round runs, and of an unknown tool."""
    has_begun: bool = False
    """True once it ran, or may have."""
    is_waiting: bool = False
    """True while it, or the agent that it called, waits for an answer."""

    def mark_waiting(self) -> None:
        """Let the call wait for an answer."""
        self.is_waiting, self.is_error, self.code = True, False, None
        self.result = CANCELLED if self.has_begun else NOT_RUN

    def mark_permitted(self, answer: CallAnswer, arguments: Mapping[str, Any] | None = None) -> None:
        """Let the call wait no longer: it may run, with these arguments if a person changed them."""
        self.is_waiting, self.is_error, self.answer_given = False, True, answer
        if answer.original is not None:
            self.call = self.call.model_copy(update={"arguments": arguments})

    def refuse(self, text: str, code: Code | None = None) -> None:
        """End the call, which does not run, with that text."""
        self.is_waiting, self.is_error, self.result, self.code = False, True, text, code

    def leave(self) -> None:
        """Leave the call to the client: no error, although it has not begun and does not wait. The execution ends."""
        self.is_error = False

    def answer(self, text: str) -> None:
        """End the call with a result that did not come from its tool."""
        self.is_waiting, self.has_begun, self.is_error, self.result = False, True, False, self.marked(text)

    def marked(self, result: str) -> str:
        """Return the result as the model reads it."""
        return marked_result(self.answer_given, self.call, result)

    def is_like(self, call: ToolCall) -> bool:
        """Return True for the same tool with the same arguments: those that it got, or those of the model."""
        given = self.answer_given
        original = None if given is None else given.original
        return self.call.name == call.name and (
            self.call.arguments == call.arguments or (original is not None and original.arguments == call.arguments)
        )

    @property
    def was_kept_from_running(self) -> bool:
        """True if it has neither begun nor been refused."""
        return not self.has_begun and self.result == NOT_RUN

    @property
    def has_ended(self) -> bool:
        """True if its result stands."""
        return not self.is_waiting and not self.was_kept_from_running

    def message(self) -> Message:
        """Return the result as a message for the model."""
        return Message(role="tool", content=self.result, tool_call_id=self.call.id, name=self.call.name[:64])

    def made(self, *, is_suspended: bool, edited: bool) -> ToolCallMade:
        """Return the call as the response of an execution shows it that has ended or `is_suspended`.

        The result of one that is `edited` is that of a fork.
        """
        is_open = self.is_waiting or (not self.has_begun and self.result == NOT_RUN)
        is_left = not (self.is_error or self.has_begun or self.is_waiting)
        waits = is_left or (is_suspended and is_open)
        is_error = not waits and (self.is_error or self.is_waiting)
        ended = ToolCallStatus.FAILED if is_error else ToolCallStatus.DONE
        given = self.answer_given
        return ToolCallMade(
            id=self.call.id,
            name=self.call.name,
            arguments=self.call.arguments,
            status=ToolCallStatus.WAITING if waits else ended if self.has_begun else ToolCallStatus.NOT_RUN,
            result=None if waits else self.result,
            is_error=is_error,
            attempts=self.attempts,
            duration_ms=self.duration_ms,
            step_name=self.step_name,
            agent=self.agent,
            client=self.offer is not None and self.offer.client,
            edited=edited,
            decision=None if given is None else given.decision,
            asked_arguments=None if given is None or given.original is None else given.original.arguments,
        )
