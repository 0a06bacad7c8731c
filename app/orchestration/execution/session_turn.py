"""An execution's turn in its session: what was said before it, and what it adds."""

from collections.abc import Sequence

from app.domain.contract.messages import Message
from app.domain.journal.header import EffectiveLimits
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.execution import Execution
from app.ports.storage import SessionHistory


class SessionTurn:
    """The turn of an execution, where it has a session."""

    def __init__(self, execution: Execution) -> None:
        self.history = SessionHistory()
        """What was said before."""
        self._execution = execution
        self._session_id = execution.header.request.session_id

    async def acquire(self) -> SessionHistory:
        """What was said before, when it has come; at once without a session, or when it was stopped.

        A fork goes on with what was said before its origin, and hears nothing of its session.

        Until then no running time passes.

        Raises: RequestFailure (REQUEST_NOT_FOUND) when the session is deleted; StorageFailure.
        """
        if self._session_id is None or self._execution.stop_decision is not None:
            return self.history
        execution, header = self._execution, self._execution.header
        past = await execution.environment.conversations.acquire_turn(
            header.tenant,
            self._session_id,
            header.execution_id,
            limit=history_window(header.bounds),
            on_wait=execution.commit,
        )
        if header.fork is None:
            self.history = past
        else:
            execution.prior_message_count = past.message_count
        if execution.deadline is not None:
            execution.deadline.restart()
        return self.history

    def release(self) -> None:
        """It has ended, so the next may begin."""
        if self._session_id is not None:
            self._execution.environment.conversations.release_turn(self._execution.header.tenant, self._session_id)


def history_window(bounds: EffectiveLimits) -> int:
    """How many of a session's last messages: one more than may be told, which says whether a turn begins behind it."""
    return bounds.history_messages + 1


def new_messages(execution: Execution, said: Sequence[Message], produced: PatternResult) -> list[Message]:
    """What the session's conversation grows by: what the client said, then what was `said`, else the answer alone.

    What the system says stands at the beginning of a session only.
    """
    request, fork, prepared = execution.header.request, execution.header.fork, execution.prepared
    if request.session_id is None or prepared is None:
        return []
    # What a fork kept of PREPARE counts what its origin's session held.
    said_before = prepared.prior_message_count if fork is None else execution.prior_message_count
    later = () if fork is None else (message for each in fork.chain for message in each.messages)
    asked = [*request.messages, *later]
    own = [message for message in asked if said_before == 0 or message.role != "system"]
    answer = [Message(role="assistant", content=produced.content)] if produced.content else []
    return [*own, *(said or answer)]
