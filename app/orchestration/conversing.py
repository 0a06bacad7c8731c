"""An execution's turn in its session: what was said before it, and what it adds."""

from collections.abc import Sequence

from app.domain.effects import Bounds
from app.domain.messages import Message
from app.domain.produced import Produced
from app.keeping import Past
from app.orchestration.execution import Execution


class Turn:
    """The turn of an execution, where it has a session."""

    def __init__(self, execution: Execution) -> None:
        self.past = Past()
        """What was said before."""
        self._execution = execution
        self._session_id = execution.header.request.session_id

    async def come(self) -> Past:
        """What was said before, when it has come; at once without a session, or when it was stopped.

        A fork goes on with what was said before its origin, and hears nothing of its session.

        Until then no running time passes.

        Raises: RequestFailure (REQUEST_NOT_FOUND) when the session is deleted; StorageFailure.
        """
        if self._session_id is None or self._execution.stopped is not None:
            return self.past
        execution, header = self._execution, self._execution.header
        past = await execution.world.conversations.turn(
            header.tenant,
            self._session_id,
            header.execution_id,
            limit=looked_at(header.bounds),
            waits=execution.put,
        )
        if header.fork is None:
            self.past = past
        else:
            execution.said_before = past.count
        if execution.deadline is not None:
            execution.deadline.begin_again()
        return self.past

    def over(self) -> None:
        """It has ended, so the next may begin."""
        if self._session_id is not None:
            self._execution.world.conversations.turn_over(self._execution.header.tenant, self._session_id)


def looked_at(bounds: Bounds) -> int:
    """How many of a session's last messages: one more than may be told, which says whether a turn begins behind it."""
    return bounds.history_messages + 1


def added(execution: Execution, said: Sequence[Message], produced: Produced) -> list[Message]:
    """What the session's conversation grows by: what the client said, then what was `said`, else the answer alone.

    What the system says stands at the beginning of a session only.
    """
    request, fork, prepared = execution.header.request, execution.header.fork, execution.prepared
    if request.session_id is None or prepared is None:
        return []
    # What a fork kept of PREPARE counts what its origin's session held.
    said_before = prepared.said_before if fork is None else execution.said_before
    later = () if fork is None else (message for each in fork.in_force for message in each.messages)
    asked = [*request.messages, *later]
    own = [message for message in asked if said_before == 0 or message.role != "system"]
    answer = [Message(role="assistant", content=produced.content)] if produced.content else []
    return [*own, *(said or answer)]
