"""Transcripts: the whole conversation of an execution that has ended, with which a later one begins.

Only messages are inherited. They are copied into the header of the later execution, so nothing runs or counts twice,
and the later execution does not depend on the earlier one.
"""

from collections.abc import Sequence
from typing import Final

from portico.capabilities.context.repair import unanswered
from portico.domain.contract.messages import Message, joined
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import ExecutionId
from portico.domain.journal.header import ExecutionHeader, SpanLink
from portico.domain.lifecycle import State
from portico.domain.value import replace, value
from portico.ports.storage import StoredExecution


@value
class Transcript:
    """Messages with which an execution begins, and the executions that they come from, the latest last.

    `root_span` is that of the latest. One that `is_whole` is read as if the request had it, and is not cut.
    """

    messages: tuple[Message, ...] = ()
    ancestors: tuple[ExecutionId, ...] = ()
    root_span: SpanLink | None = None
    is_whole: bool = False

    def continued_by(self, messages: Sequence[Message]) -> "Transcript":
        """Return the transcript with a result for each call that these messages, which follow it, do not answer.

        Raises: as `unanswered`.
        """
        results = unanswered(self.messages, messages)
        return replace(self, messages=(*self.messages, *results)) if results else self


@value
class Predecessor:
    """An execution that has ended and that another one may continue after, with its response and its conversation."""

    header: ExecutionHeader
    response: SystemResponse
    transcript: Transcript


NO_TRANSCRIPT: Final = Transcript()


def require_ended(stored: StoredExecution) -> None:
    """Raise unless the execution has ended.

    Raises: RequestFailure (REQUEST_RESUME_REQUIRED, REQUEST_IN_PROGRESS).
    """
    if stored.status.state is State.SUSPENDED and stored.owner is None:
        raise RequestFailure(Code.REQUEST_RESUME_REQUIRED, "the execution to continue after is suspended; resume it")
    if not stored.status.ended:
        raise still_running()


def refused_predecessor() -> RequestFailure:
    """Return the refusal of a continuation after an execution whose input was refused, or was never judged."""
    message = "the input of the execution to continue after was refused, so that it has no conversation"
    return RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, message)


def still_running() -> RequestFailure:
    """Return the refusal of a continuation after an execution that runs."""
    return RequestFailure(Code.REQUEST_IN_PROGRESS, "the execution to continue after is still running", retry_after=1.0)


def transcript_of(header: ExecutionHeader, response: SystemResponse, in_session: Sequence[Message]) -> Transcript:
    """Return the conversation that the execution ended with; `in_session` is that of its session by then, if any.

    Of one that failed or was cancelled, `in_session` is what its turn began with, and the session has nothing of it.
    """
    ancestors = (*header.ancestors, header.execution_id)
    has_answered = response.state is State.COMPLETE
    if in_session and has_answered and header.origin is None:
        return Transcript(tuple(in_session), ancestors, header.root_span)
    overrides = () if header.fork is None else (message for each in header.fork.chain for message in each.messages)
    earlier = header.inherited_messages if has_answered else in_session or header.inherited_messages
    asked = joined(earlier, header.request.messages)
    answer = [Message(role="assistant", content=response.content)] if response.content and has_answered else []
    return Transcript((*asked, *overrides, *(response.messages or answer)), ancestors, header.root_span)
