"""Journal port: the recorded history of executions."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from portico.domain.contract.messages import Message
from portico.domain.ids import ExecutionId, RequestId, TenantId
from portico.domain.journal.events import CorrelationContext, LiveEvent, StoredEvent, UnnumberedEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.journal.step_key import StepKey
from portico.domain.lifecycle import State
from portico.domain.value import value


@value
class ExecutionHistory:
    """Committed history of one execution: its header, its steps by key, its events in order.

    `commit_count` does not include the commit of the header. `epoch` counts the owners, the reader included. If
    `cancel_requested`, a client was promised that it ends.
    """

    header: ExecutionHeader
    steps: Mapping[StepKey, RecordedStep]
    events: Sequence[StoredEvent]
    commit_count: int = 0
    epoch: int = 1
    cancel_requested: bool = False


@value
class IdempotencyClaim:
    """Idempotency key under which an execution is opened; `body_digest` is the digest of the canonical request body."""

    key: str
    body_digest: str


@value
class IdempotencyHit:
    """Execution that already holds an idempotency key, and its state."""

    execution_id: ExecutionId
    request_id: RequestId
    state: State
    same_body: bool


class JournalObserver(Protocol):
    """Receiver of what is recorded here, beside the events, which sinks receive. Must neither block nor raise."""

    def opened(self, history: ExecutionHistory) -> None:
        """Take an execution that begins or continues here, with its history so far."""
        ...

    def recorded(self, execution_id: ExecutionId, step: RecordedStep) -> None:
        """Take a step, before the events that are committed with it."""
        ...

    def closed(self, execution_id: ExecutionId) -> None:
        """Take that nothing more of the execution is recorded here."""
        ...


class Journal(Protocol):
    """Writer of the outcomes and events of all executions.

    The commits of one execution are written in the order of `put`, outcomes together with their events, so the stored
    history is always a prefix. Events are published after their commit. An execution whose header says `journaled` is
    committed step by step. One that says `memory` is published at once and stored when it ends, if at all.
    """

    async def open(
        self,
        header: ExecutionHeader,
        claim: IdempotencyClaim | None = None,
        *,
        steps: Sequence[RecordedStep] = (),
        queued: bool = False,
    ) -> IdempotencyHit | None:
        """Begin a history and return None, or return the execution that already holds the claimed key.

        With `steps` the history begins with these steps, in the commit of its header; it is journaled then and claims
        no key. A `queued` execution has no owner and is not open here.

        Raises: RequestFailure (REQUEST_ID_CONFLICT, REQUEST_SESSION_BUSY, REQUEST_RESUME_REQUIRED); StorageFailure.
        """
        ...

    async def holder_of_key(self, header: ExecutionHeader, claim: IdempotencyClaim) -> IdempotencyHit | None:
        """Return the execution that holds the key that this one would claim. Raises: StorageFailure."""
        ...

    def attach(self, history: ExecutionHistory) -> None:
        """Continue a history that another owner or an earlier run has left. Nothing is published."""
        ...

    def put(
        self,
        execution_id: ExecutionId,
        steps: Sequence[RecordedStep],
        events: Sequence[UnnumberedEvent],
        new_messages: Sequence[Message] = (),
    ) -> None:
        """Queue these steps and events, and number the events. Never waits.

        Each step is a commit of its own; all are written in one transaction, the events with the last of them. Events
        without steps are one commit. `new_messages` are appended to the session's conversation, together with the
        terminal event.
        """
        ...

    def publish_delta(self, execution_id: ExecutionId, correlation: CorrelationContext, delta: LiveEvent) -> None:
        """Publish a delta after everything that was put before it. It is not stored."""
        ...

    async def durable(self, execution_id: ExecutionId) -> None:
        """Wait until everything that was put is committed. An execution in memory becomes journaled, unless it has
        ended.

        Raises: StorageFailure; RequestFailure (REQUEST_ID_CONFLICT) if it cannot become journaled.
        """
        ...

    async def flush(self, execution_id: ExecutionId) -> None:
        """Wait until everything that was put is committed; an execution in memory has nothing to wait for.

        Raises: StorageFailure, RequestFailure, as `durable`.
        """
        ...

    async def load(self, execution_id: ExecutionId) -> ExecutionHistory | None:
        """Return the committed history of an execution that is open here."""
        ...

    def discard(self, execution_id: ExecutionId, *, if_stored: bool = False) -> bool:
        """Store nothing of an execution in memory beyond its end; return False if it is not in memory.

        With `if_stored` nothing of a stored one is left either, neither its key nor the session that it began, unless
        another request has used that since. Its request id is free again after its end.
        """
        ...

    def forget(self, tenant: TenantId, request_id: RequestId) -> None:
        """Free the request id of an execution that was erased."""
        ...

    async def flushed(self) -> None:
        """Wait until all that was put before this call, ended executions too, is written or given up."""
        ...

    def close(self, execution_id: ExecutionId) -> None:
        """Accept nothing more for the execution: it has ended, or another owner continues it."""
        ...
