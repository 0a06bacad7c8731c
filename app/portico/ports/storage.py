"""Storage ports: stored executions, sessions and replicas."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final, Generic, Protocol, Self, TypeVar

from pydantic import JsonValue

from portico.domain.access.principal import AccessScope
from portico.domain.contract.messages import Message
from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.failures import Code
from portico.domain.ids import API, ChannelName, ExecutionId, ReplicaId, RequestId, SessionId, TenantId, UserId
from portico.domain.journal.events import StoredEvent, UnnumberedEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.journal.status import ExecutionStatus
from portico.domain.lifecycle import TERMINAL, Mode, State
from portico.domain.value import value
from portico.ports.grants import Grant
from portico.ports.journal import ExecutionHistory

T = TypeVar("T")


@value
class StoredExecution:
    """Execution as it is stored. `owner` is the replica that runs it, if any; `epoch` counts its owners.

    `origin` is the request id of the execution that it goes on from, at `origin_step` or without one at the end. If its
    response cannot be read, the status has none, and the last error says so. A suspended one has its open
    `suspensions`, at least one; after the answer to the last it is in EXECUTE.
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
    user: UserId
    agent: str | None = None
    suspensions: Sequence[Suspension] = ()
    title: str | None = None
    origin: RequestId | None = None
    origin_step: int | None = None
    channel: ChannelName = API
    run_at: float | None = None
    """When it is to start, as its request says, in Unix seconds; None: at once."""
    header: ExecutionHeader | None = None
    """Only where it was asked for."""

    @classmethod
    def of_running(
        cls, header: ExecutionHeader, status: ExecutionStatus, last_sequence_number: int, title: str | None
    ) -> Self:
        """Return an execution that runs here as it would be stored."""
        return cls(
            header.execution_id,
            header.tenant,
            header.request_id,
            header.request.session_id,
            header.mode,
            header.created_at,
            status,
            owner=None,
            epoch=0,
            last_sequence_number=last_sequence_number,
            user=header.user,
            agent=header.request.agent,
            title=title,
            origin=header.origin,
            origin_step=None if header.fork is None else header.fork.from_step,
            channel=header.channel,
            run_at=header.run_at,
        )


UNFINISHED: Final = tuple(sorted(set(State) - TERMINAL))
"""The states of executions that have not ended."""


@value
class RecoveryTicket:
    """Live execution that needs an owner or a cancellation.

    The ticket is valid while the execution is in that epoch.
    """

    execution_id: ExecutionId
    tenant: TenantId
    owner: ReplicaId | None
    epoch: int


@value
class ExecutionFilter:
    """Conditions of a list of executions, and its order; None matches all, and so does an empty list.

    The state is one of the `states`; the `prefix` is one of the request id or of the session id, and `origin` is the
    request id of the execution that an execution goes on from. `since` and `until`, which is excluded, bound the time
    of creation in Unix seconds. `code` is the code of the last error, `model` the model that was asked last, or its
    engine. An execution has all pairs of `metadata`.
    """

    states: Sequence[State] = ()
    mode: Mode | None = None
    session_id: SessionId | None = None
    agent: str | None = None
    model: str | None = None
    code: Code | None = None
    since: float | None = None
    until: float | None = None
    metadata: Sequence[tuple[str, str]] = ()
    prefix: str | None = None
    origin: RequestId | None = None
    oldest_first: bool = False
    channel: ChannelName | None = None


@value
class ResultPage(Generic[T]):
    """Part of a collection. `next` is the cursor of the following page; None on the last one."""

    items: Sequence[T]
    next: str | None


class OtherUsers(StrEnum):
    """Suspensions of other users that a list contains: none, those about calls of tools, or all of the tenant."""

    NONE = "none"
    CALLS = "calls"
    ALL = "all"


@value
class SuspensionFilter:
    """Conditions of a list of open suspensions; None matches all. `since` is in Unix seconds.

    `tool` is the tool whose call is suspended, else the name that a resume uses.
    """

    session_id: SessionId | None = None
    request_id: RequestId | None = None
    tool: str | None = None
    kind: SuspensionKind | None = None
    user: UserId | None = None
    since: float | None = None
    channel: ChannelName | None = None


@value
class OpenSuspension:
    """Open suspension of an execution, with the names of the execution."""

    execution_id: ExecutionId
    request_id: RequestId
    session_id: SessionId | None
    user: UserId
    channel: ChannelName
    suspension: Suspension


@value
class AnswerReceipt:
    """Receipt of recorded answers: suspensions still open, epoch and number of commits after them, and their events."""

    open_suspensions: int
    epoch: int
    commit_count: int
    events: Sequence[StoredEvent] = ()


class OutdatedAnswers(Exception):  # noqa: N818 - a reason to make them anew
    """Something has happened to the execution since the answers were made."""


@value
class SuspensionAnswers:
    """Answers to suspensions: the steps of those that are answered, the `changed` suspensions that stay open, the
    events, at least one, and the grants that the answers give.

    They were made when the event of number `after` was the last one; None if that does not matter. If the time for them
    has `expired`, they are taken all the same.
    """

    steps: Sequence[RecordedStep]
    events: Sequence[UnnumberedEvent] = ()
    changed: Sequence[Suspension] = ()
    grants: Sequence[Grant] = ()
    after: int | None = None
    expired: bool = False


class ExecutionStore(Protocol):
    """Stored executions of all replicas. Those of another tenant, and those out of a scope, are treated as missing.

    Every method raises StorageFailure.
    """

    async def find(
        self, scope: AccessScope, request_id: RequestId, *, with_header: bool = False
    ) -> StoredExecution | None:
        """Return the execution with that request id, with its header only if that is asked for."""
        ...

    async def find_all(self, tenant: TenantId, execution_ids: Sequence[ExecutionId]) -> Sequence[StoredExecution]:
        """Return those of the executions that are there."""
        ...

    async def executions(
        self, scope: AccessScope, where: ExecutionFilter, *, after: str | None = None, limit: int
    ) -> ResultPage[StoredExecution]:
        """Return a page of executions in the order of their creation, the newest first unless asked otherwise."""
        ...

    async def load(self, tenant: TenantId, execution_id: ExecutionId) -> ExecutionHistory | None:
        """Return the committed history of the execution."""
        ...

    async def events(
        self, tenant: TenantId, execution_id: ExecutionId, *, after: int = 0, limit: int
    ) -> Sequence[StoredEvent] | None:
        """Return the next `limit` events after a sequence number, in order; fewer if there are no more.

        A commit is not divided, since it is decoded as a whole: the rest of the last one is returned, too. None if
        there is no such execution.
        """
        ...

    async def answer(
        self, tenant: TenantId, execution_id: ExecutionId, answers: SuspensionAnswers, *, claim: bool = False
    ) -> AnswerReceipt:
        """Record answers, at least one, as the steps of their suspensions, each once, and publish the events.

        All of it is one transaction. With `claim` this replica becomes the owner in it if no suspension is left open.

        Raises: RequestFailure (REQUEST_RESUME_UNEXPECTED if the execution is not suspended, REQUEST_RESUME_MISMATCH if
        one of these suspensions is not open); OutdatedAnswers; nothing is changed then.
        """
        ...

    async def claim(self, execution_id: ExecutionId, epoch: int, *, cancel: bool = False) -> ExecutionHistory | None:
        """Make this replica the owner and return the history; None if the epoch has passed or the execution has ended.

        With `cancel` the same commit records that the execution is to be cancelled, whichever replica owns it next.

        From then on, all writes of an earlier owner are refused. An execution with a damaged history is ended as ERROR,
        its session's turn is released, and None is returned. Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) if a
        newer version wrote the history; nothing is changed then, since another replica may be able to read it.
        """
        ...

    async def release(self, execution_id: ExecutionId, epoch: int) -> None:
        """Undo the claim that began that epoch, after which nothing was put. The execution has no owner then."""
        ...

    async def request_cancel(self, tenant: TenantId, execution_id: ExecutionId) -> None:
        """Record that the execution is to be cancelled, and notify its owner where notifications are available."""
        ...

    async def cancel_requested(self) -> Sequence[RecoveryTicket]:
        """Return live executions with a requested cancellation that this replica owns or that have no owner."""
        ...

    async def orphaned(self, alive: Collection[ReplicaId]) -> Sequence[RecoveryTicket]:
        """Return live executions that need an owner: theirs is not alive, or their last suspension was answered."""
        ...

    async def expired(self) -> Sequence[RecoveryTicket]:
        """Return suspended executions with an open suspension that has expired."""
        ...


@value
class StoredSession:
    """Conversation as it is stored; `details` are set by the client."""

    session_id: SessionId
    created_at: float
    updated_at: float
    message_count: int
    details: Mapping[str, JsonValue]
    busy: bool


@value
class SessionHistory:
    """Messages of a session: their number, the most recent ones, and the leading system messages.

    All are in chronological order; a leading message may also be one of the recent ones.
    """

    message_count: int = 0
    recent_messages: Sequence[Message] = ()
    system_messages: Sequence[Message] = ()


NO_HISTORY = SessionHistory()


class ReplicaRegistry(Protocol):
    """Registry of the replicas that share a database."""

    @property
    def has_timers(self) -> bool:
        """Return whether any row of a timer was there at the last heartbeat, whichever replica stored it."""
        ...

    async def heartbeat(self) -> frozenset[ReplicaId]:
        """Record that this replica is alive and return all that are, this one included. Raises: StorageFailure."""
        ...

    async def leave(self) -> None:
        """Remove this replica. Raises: StorageFailure."""
        ...


class SessionStore(Protocol):
    """Stored sessions. Those of another tenant, and those out of a scope, are treated as missing.

    The journal grants the turn of a session to one execution when it opens, and to the next one in the queue in the
    commit that ends the execution and appends its messages. Every coroutine raises StorageFailure.
    """

    async def session(self, scope: AccessScope, session_id: SessionId) -> StoredSession | None: ...

    async def session_of_turn(self, owner: AccessScope, session_id: SessionId) -> StoredSession | None:
        """Return the session in which a turn may begin; None if there is none, so that the turn creates it.

        Raises: RequestFailure (REQUEST_NOT_FOUND) if it is out of the scope.
        """
        ...

    async def sessions(self, scope: AccessScope, *, after: str | None = None, limit: int) -> ResultPage[StoredSession]:
        """Return a page of sessions, the most recently used first."""
        ...

    async def create(self, owner: AccessScope, session_id: SessionId, now: float) -> None:
        """Create an empty session at that time in Unix seconds, unless there is one of that id."""
        ...

    async def update(
        self, scope: AccessScope, session_id: SessionId, changes: Mapping[str, JsonValue]
    ) -> StoredSession | None:
        """Replace these details and delete those that are None."""
        ...

    async def messages(
        self, scope: AccessScope, session_id: SessionId, *, after: int = 0, limit: int
    ) -> Sequence[Message]:
        """Return at most `limit` messages after a number, the oldest first; they are numbered from 1."""
        ...

    async def authors(
        self, scope: AccessScope, session_id: SessionId, *, after: int = 0, limit: int
    ) -> Sequence[ExecutionId]:
        """Return the executions that added these messages, each once."""
        ...

    async def transcript(
        self, scope: AccessScope, session_id: SessionId, execution_id: ExecutionId
    ) -> tuple[Message, ...]:
        """Return the messages up to the last one that the execution added; none if it added none."""
        ...

    async def history(self, scope: AccessScope, session_id: SessionId, *, limit: int) -> SessionHistory:
        """Return the history with at most `limit` recent messages."""
        ...

    async def acquire_turn(
        self,
        scope: AccessScope,
        session_id: SessionId,
        execution_id: ExecutionId,
        *,
        limit: int,
        on_wait: Callable[[], None],
    ) -> SessionHistory:
        """Wait for the execution's turn and return the history before it. `on_wait` is called once if it has to wait.

        A database that does not answer is waited for, too. Raises: RequestFailure (REQUEST_NOT_FOUND) if the session
        does not exist any more; StorageFailure (STORAGE_SNAPSHOT_INVALID) if its messages cannot be read.
        """
        ...

    def release_turn(self, tenant: TenantId, session_id: SessionId) -> None:
        """Signal that a turn has ended in this process, so that waiting executions check at once."""
        ...


DURATION_BOUNDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_600.0)
"""Upper bounds of the classes by which durations are counted, in seconds; a last class is above all of them."""


@value
class CountSelection:
    """Executions to count: those created from `since` to `until`, which is excluded, in Unix seconds.

    Both are multiples of `width`, the seconds of a bucket. None counts all; `model` is the model that was asked last,
    or its engine.
    """

    since: float
    until: float
    width: int
    agent: str | None = None
    mode: Mode | None = None
    model: str | None = None


@value
class ExecutionCount:
    """Number of executions that were created in the bucket from `start` on, in Unix seconds, and are in that state.

    `duration_class` is the number of the first of `DURATION_BOUNDS` that they did not exceed; None if they have not
    run to an end.
    """

    start: int
    state: State
    duration_class: int | None
    number: int


class RecordStore(Protocol):
    """Records of executions and sessions apart from running them: what outlives their steps, and their erasure.

    Those of another tenant, and those out of a scope, are treated as missing. Every method raises StorageFailure.
    """

    async def suspensions(
        self, own: AccessScope, where: SuspensionFilter, others: OtherUsers, *, after: str | None = None, limit: int
    ) -> ResultPage[OpenSuspension]:
        """Return a page of the open suspensions of a user, and of `others`, those of the oldest execution first."""
        ...

    async def counts(self, scope: AccessScope, where: CountSelection) -> Sequence[ExecutionCount]:
        """Return the counts of the executions in the scope, the oldest bucket first."""
        ...

    async def erase_execution(
        self, tenant: TenantId, execution_id: ExecutionId, *, with_forks: bool
    ) -> Sequence[RequestId]:
        """Delete the execution and all copies of its messages, those in forks only if asked to.

        Return the request ids of those that are live: these are not deleted before they end.

        Raises: RequestFailure (REQUEST_HAS_FORKS naming the forks; REQUEST_SESSION_BUSY, REQUEST_RESUME_REQUIRED if a
        later turn of its session is live); nothing is changed then.
        """
        ...

    async def forks_of_session(self, scope: AccessScope, session_id: SessionId) -> Sequence[RequestId]:
        """Return the request ids of executions outside the session that have copies of its messages."""
        ...

    async def erase_session(
        self, scope: AccessScope, session_id: SessionId, *, with_forks: bool
    ) -> Sequence[RequestId] | None:
        """Delete a session with its messages and executions, and the forks of these only if asked to.

        Return the request ids of the forks that are live, which are not deleted before they end; None if there is no
        such session. An execution of the session that is running is lost to its owner.

        Raises: RequestFailure (REQUEST_HAS_FORKS naming the forks); nothing is changed then.
        """
        ...
