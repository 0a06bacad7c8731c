"""Journal port: the recorded history of executions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.contract.messages import Message
from app.domain.ids import ExecutionId, RequestId
from app.domain.journal.events import CorrelationContext, InferenceDelta, StoredEvent, UnnumberedEvent
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import RecordedStep
from app.domain.lifecycle import State


@dataclass(frozen=True, slots=True)
class ExecutionHistory:
    """What a journal holds of one execution: its header, its steps by key, its events in order.

    `commits` is how many commits it took, the header's aside; `epoch` counts its owners, the reader included.
    """

    header: ExecutionHeader
    steps: Mapping[str, RecordedStep]
    events: Sequence[StoredEvent]
    commit_count: int = 0
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The Idempotency-Key an execution is opened under; `body_digest` is that of the canonical body."""

    key: str
    body_digest: str


@dataclass(frozen=True, slots=True)
class IdempotencyHit:
    """The execution that an Idempotency-Key belongs to already, and where it stands."""

    execution_id: ExecutionId
    request_id: RequestId
    state: State
    same_body: bool


class Journal(Protocol):
    """The list of recorded outcomes and events of every execution.

    One ordered writer: what is put for one execution commits in that order, an outcome together with its events, so
    what is stored is always a prefix. Publication to sinks follows the commit. What its header calls journaled is
    committed step by step. What it calls held in memory is published at once, and kept when it ends, if at all.
    """

    async def open(
        self,
        header: ExecutionHeader,
        claim: IdempotencyClaim | None = None,
        *,
        rows: Sequence[RecordedStep] = (),
        queued: bool = False,
    ) -> IdempotencyHit | None:
        """Begins a record; None when it did. The execution that holds the claimed key already is returned instead.

        With `rows` it begins with these steps, in the commit of its header; it is journaled then, and claims no key.
        Nobody owns one that `waits` for its turn, and it is not open here.

        Raises: RequestFailure (REQUEST_ID_CONFLICT, REQUEST_SESSION_BUSY, REQUEST_RESUME_REQUIRED); StorageFailure.
        """
        ...

    def attach(self, record: ExecutionHistory) -> None:
        """Goes on with a record that another owner, or an earlier run, left. Publishes nothing."""
        ...

    def put(
        self,
        execution_id: ExecutionId,
        row: RecordedStep | None,
        events: Sequence[UnnumberedEvent],
        new_messages: Sequence[Message] = (),
    ) -> None:
        """Queues one commit; numbers the events. Never waits.

        `turn` is what the session's conversation grows by, with the terminal event.
        """
        ...

    def publish_delta(self, execution_id: ExecutionId, correlation: CorrelationContext, delta: InferenceDelta) -> None:
        """Publishes a delta behind all that was put before it. Nothing is kept."""
        ...

    async def durable(self, execution_id: ExecutionId) -> None:
        """Returns when all that was put is committed. What is held in memory becomes journaled by it, unless it ended.

        Raises: StorageFailure; RequestFailure (REQUEST_ID_CONFLICT) when it cannot become journaled.
        """
        ...

    async def load(self, execution_id: ExecutionId) -> ExecutionHistory | None:
        """What is committed of an execution that is open here."""
        ...

    async def flushed(self) -> None:
        """Returns when every record that ended so far is written, or given up."""
        ...

    def close(self, execution_id: ExecutionId) -> None:
        """Nothing more is put here: the execution has ended, or another owner goes on with it."""
        ...
