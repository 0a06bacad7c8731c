"""What is kept beyond an execution's run, and what we need of whoever keeps it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pydantic import JsonValue

from app.domain.contract.messages import Message
from app.domain.contract.response import Suspension
from app.domain.ids import ExecutionId, ReplicaId, RequestId, SessionId, SuspensionId, TenantId
from app.domain.journal.events import StoredEvent, UnnumberedEvent
from app.domain.journal.outcomes import RecordedStep
from app.domain.journal.status import ExecutionStatus
from app.domain.lifecycle import Mode, State
from app.ports.journal import ExecutionHistory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredExecution:
    """An execution as the store knows it. `owner` runs it, unless nobody does; `epoch` counts its owners.

    `events` is the number of the last event. A response that cannot be read is left out, and is the last error.
    """

    execution_id: ExecutionId
    tenant: TenantId
    request_id: RequestId
    session_id: SessionId | None
    mode: Mode
    created_at: float
    status: ExecutionStatus
    owner: ReplicaId | None
    epoch: int
    last_sequence_number: int


@dataclass(frozen=True, slots=True)
class RecoveryTicket:
    """A live execution that somebody has to see to. It is of use while the execution is in that epoch."""

    execution_id: ExecutionId
    tenant: TenantId
    owner: ReplicaId | None
    epoch: int


@dataclass(frozen=True, slots=True)
class ExecutionFilter:
    """Which executions are listed; None takes all."""

    state: State | None = None
    mode: Mode | None = None
    session_id: SessionId | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of a collection; `next` is what the page after this begins after, None on the last."""

    items: Sequence[T]
    next: str | None


@dataclass(frozen=True, slots=True)
class OpenSuspension:
    """An open question of a suspended execution."""

    execution_id: ExecutionId
    request_id: RequestId
    suspension: Suspension


@dataclass(frozen=True, slots=True)
class AnswerReceipt:
    """Receipt of a recorded answer: suspensions still open, epoch and number of commits after it, and its events."""

    open_suspensions: int
    epoch: int
    commit_count: int
    events: Sequence[StoredEvent] = ()


class ExecutionStore(Protocol):
    """Everything that is kept of executions, of whichever replica. Another tenant's does not exist.

    Raises: StorageFailure, in everything.
    """

    async def find(self, tenant: TenantId, request_id: RequestId) -> StoredExecution | None:
        """The execution of that name."""
        ...

    async def executions(
        self, tenant: TenantId, selection: ExecutionFilter, *, after: str | None = None, limit: int
    ) -> Page[StoredExecution]:
        """The newest first."""
        ...

    async def load(self, tenant: TenantId, execution_id: ExecutionId) -> ExecutionHistory | None:
        """All that is committed of it."""
        ...

    async def events(
        self, tenant: TenantId, execution_id: ExecutionId, *, after: int = 0, limit: int
    ) -> Sequence[StoredEvent]:
        """At most `limit` events behind that number, in order; fewer when that is all there is."""
        ...

    async def suspensions(self, tenant: TenantId, execution_id: ExecutionId | None = None) -> Sequence[OpenSuspension]:
        """The open questions of the tenant, or of one execution, the oldest execution first."""
        ...

    async def answer(
        self,
        tenant: TenantId,
        execution_id: ExecutionId,
        suspension_id: SuspensionId,
        row: RecordedStep,
        events: Sequence[UnnumberedEvent] = (),
        *,
        claim: bool = False,
    ) -> AnswerReceipt:
        """Record the answer to one suspension as its step, once, and publish the events.

        With `claim` this replica becomes the owner, in the same transaction, if no suspension is left open.

        Raises: RequestFailure (REQUEST_RESUME_UNEXPECTED when it is not suspended, REQUEST_RESUME_MISMATCH when that
        question is not open); nothing is changed then.
        """
        ...

    async def claim(self, execution_id: ExecutionId, epoch: int) -> ExecutionHistory | None:
        """Makes this replica the owner, if it is still in that epoch and has not ended: its record then, else None.

        Whatever an earlier owner still writes is refused from now on. One whose record is broken ends here, as ERROR,
        and so does its session's turn: None too. Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when a later version
        wrote it; nothing is changed then, for somebody else may know it.
        """
        ...

    async def release(self, execution_id: ExecutionId, epoch: int) -> None:
        """Undoes the claim that led to that epoch, of whose execution nothing was put since; it has no owner then."""
        ...

    async def request_cancel(self, tenant: TenantId, execution_id: ExecutionId) -> None:
        """Writes down that it is to be cancelled, for whoever owns it; its owner is told where that can be done."""
        ...

    async def cancel_requested(self) -> Sequence[RecoveryTicket]:
        """Live executions that somebody asked to cancel, of this replica or of nobody."""
        ...

    async def orphaned(self, alive: Collection[ReplicaId]) -> Sequence[RecoveryTicket]:
        """Live executions that somebody should run: their owner is not alive, or their last question is answered."""
        ...

    async def expired(self) -> Sequence[RecoveryTicket]:
        """Suspended executions with an open question that is past its time."""
        ...

    async def purge(self, *, ended_before: float, limit: int) -> int:
        """Drops journal and events of executions that ended before that, at most so many; how many there were."""
        ...


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A conversation; `details` are what the client keeps with it."""

    session_id: SessionId
    created_at: float
    updated_at: float
    message_count: int
    details: Mapping[str, JsonValue]
    busy: bool


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """What was said in a session: how many messages, the last of them, and the system messages that it begins with.

    All are in the order in which they were said; what a session begins with may be among the last too.
    """

    message_count: int = 0
    recent_messages: Sequence[Message] = ()
    system_messages: Sequence[Message] = ()


class ReplicaRegistry(Protocol):
    """Who shares this database."""

    async def heartbeat(self) -> frozenset[ReplicaId]:
        """Says that this replica lives, and returns who does, this one included. Raises: StorageFailure."""
        ...

    async def leave(self) -> None:
        """Says that it does not live any more. Raises: StorageFailure."""
        ...


class SessionStore(Protocol):
    """What sessions hold. Another tenant's do not exist. Raises: StorageFailure, in everything that waits.

    The journal gives a session's turn to one execution when it opens, and on to the next that waits when it ends,
    in the commit that appends what was said.
    """

    async def session(self, tenant: TenantId, session_id: SessionId) -> StoredSession | None: ...

    async def sessions(self, tenant: TenantId, *, after: str | None = None, limit: int) -> Page[StoredSession]:
        """The one spoken in last first."""
        ...

    async def update(
        self, tenant: TenantId, session_id: SessionId, changes: Mapping[str, JsonValue]
    ) -> StoredSession | None:
        """Replaces those details, and drops those that are None."""
        ...

    async def messages(
        self, tenant: TenantId, session_id: SessionId, *, after: int = 0, limit: int
    ) -> Sequence[Message]:
        """At most `limit` messages behind that number, the oldest first; they are numbered from 1."""
        ...

    async def history(self, tenant: TenantId, session_id: SessionId, *, limit: int) -> SessionHistory:
        """What was said so far, with at most so many of the last messages."""
        ...

    async def acquire_turn(
        self,
        tenant: TenantId,
        session_id: SessionId,
        execution_id: ExecutionId,
        *,
        limit: int,
        on_wait: Callable[[], None],
    ) -> SessionHistory:
        """What was said before, when it is that execution's turn. `waits` is called once where it is not so yet.

        Raises: RequestFailure (REQUEST_NOT_FOUND) when there is no such session any more.
        """
        ...

    def release_turn(self, tenant: TenantId, session_id: SessionId) -> None:
        """A turn has ended here: who waits for the next looks at once."""
        ...

    async def delete(self, tenant: TenantId, session_id: SessionId) -> bool:
        """Removes it with its messages and its executions, journals and events; whether there was one.

        One that runs is lost to its owner.
        """
        ...
