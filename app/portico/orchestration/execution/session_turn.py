"""Session turn: the exclusive turn of an execution in its session, the history it reads and the messages it adds."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from portico.capabilities.context.repair import unanswered
from portico.capabilities.limits.quotas import RunSlot
from portico.domain.contract.messages import Message, Origin, is_untrusted_text, with_origin
from portico.domain.ids import SessionId
from portico.domain.journal.header import EffectiveLimits
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.progress import RunProgress
from portico.orchestration.execution.response import Termination
from portico.ports.storage import NO_HISTORY, SessionHistory

_TRUSTED_ORIGINS: Mapping[str, Origin] = MappingProxyType({"assistant": Origin.MODEL, "tool": Origin.TRUSTED})
_UNTRUSTED_ORIGINS: Mapping[str, Origin] = MappingProxyType({"assistant": Origin.TOOL, "tool": Origin.TOOL})


class SessionTurn:
    """The turn of an execution in its session."""

    def __init__(self, execution: Execution, session_id: SessionId) -> None:
        self.history = NO_HISTORY
        """The messages before this turn. An execution with an origin has those of its origin instead."""
        self._execution = execution
        self._session_id = session_id
        self._prior_message_count = 0

    async def acquire(self) -> SessionHistory:
        """Wait for the turn and return the history; at once if the execution was stopped.

        While it waits no running time passes, and it holds no slot in the limits of its caller.

        Raises: RequestFailure (REQUEST_NOT_FOUND) if the session was deleted; StorageFailure
        (STORAGE_SNAPSHOT_INVALID).
        """
        execution, header = self._execution, self._execution.header
        if execution.recorder.stop_decision is not None:
            return self.history
        history = await execution.environment.conversations.acquire_turn(
            header.scope,
            self._session_id,
            header.execution_id,
            limit=history_window(header.bounds),
            on_wait=self._wait,
        )
        if self._slot is not None:
            await self._slot.retake()
        if header.origin is None:
            self.history = history
        self._prior_message_count = history.message_count
        if execution.deadline is not None:
            execution.deadline.restart()
        return self.history

    @property
    def _slot(self) -> RunSlot | None:
        usage = self._execution.environment.usage.of(self._execution.header.execution_id)
        return None if usage is None else usage.slot

    def _wait(self) -> None:
        self._execution.recorder.commit()
        if self._slot is not None:
            self._slot.release()

    def release(self) -> None:
        """End the turn, so that the next one may begin."""
        self._execution.environment.conversations.release_turn(self._execution.header.tenant, self._session_id)

    def new_messages(self, progress: RunProgress, termination: Termination) -> list[Message]:
        """Return what the session's conversation grows by: the messages of the request, then what followed them.

        They begin with results for the calls that the last turn left to the client and that the request does not
        answer. System messages belong to the beginning of a session only.
        """
        header, prepared = self._execution.header, progress.prepared
        if termination.result is None:
            return []
        # With an origin, PREPARE counted the messages of the origin; a limit may end an execution before PREPARE.
        is_counted = prepared is not None and header.origin is None
        prior_messages = prepared.prior_message_count if prepared and is_counted else self._prior_message_count
        overrides = () if header.fork is None else (message for each in header.fork.chain for message in each.messages)
        asked = [*header.request.messages, *overrides]
        own = [message for message in asked if prior_messages == 0 or message.role != "system"]
        earlier, missing = self.history.recent_messages, list[Message]()
        if earlier and (earlier[-1].role == "tool" or earlier[-1].tool_calls):
            missing += unanswered(earlier, header.request.messages)
        return [*missing, *own, *self._traced(progress, termination)]

    def _traced(self, progress: RunProgress, termination: Termination) -> Iterator[Message]:
        """Yield the new messages; answers and results with their origin, that of tools if untrusted text was read."""
        ledger = self._execution.ledger
        is_untrusted = ledger.has_untrusted_text or is_untrusted_text(progress.prepared_messages)
        origins = _UNTRUSTED_ORIGINS if is_untrusted else _TRUSTED_ORIGINS
        for message in termination.new_messages:
            yield with_origin(message, origins[message.role]) if message.role in origins else message


def history_window(limits: EffectiveLimits) -> int:
    """Return how many messages to read: the history limit and one, to see whether the cut falls on a turn."""
    return limits.history_messages + 1
