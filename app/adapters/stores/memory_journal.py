"""The journal of one process: what is put is committed and published at once, and gone with the process."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from app.adapters.stores.journal.request_ids import RequestIds
from app.domain.contract.messages import Message
from app.domain.ids import ExecutionId
from app.domain.journal.events import (
    CorrelationContext,
    InferenceDelta,
    LiveDelta,
    StoredEvent,
    UnnumberedEvent,
    number_events,
)
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import RecordedStep
from app.ports.events import EventSink
from app.ports.journal import ExecutionHistory, IdempotencyClaim, IdempotencyHit
from app.ports.runtime import Clock


@dataclass(slots=True)
class _Held:
    header: ExecutionHeader
    rows: dict[str, RecordedStep] = field(default_factory=dict)
    events: list[StoredEvent] = field(default_factory=list)
    commits: int = 0


class MemoryJournal:
    """Implements `ports.Journal`.

    Holds running executions whole, and of the last `keep_ended` ended ones only the names, so that a request_id
    is not used twice; older names are forgotten. It keeps neither sessions nor Idempotency-Keys. Misuse, which is a
    bug, raises RuntimeError and changes nothing.
    """

    def __init__(self, clock: Clock, sink: EventSink, *, keep_ended: int) -> None:
        self._clock = clock
        self._sink = sink
        self._held: dict[str, _Held] = {}
        self._names = RequestIds(keep_ended)

    async def open(
        self,
        header: ExecutionHeader,
        claim: IdempotencyClaim | None = None,
        *,
        rows: Sequence[RecordedStep] = (),
        queued: bool = False,
    ) -> IdempotencyHit | None:
        if claim is not None or queued:
            raise RuntimeError("a journal that forgets keeps no Idempotency-Key, and nothing for later")
        self._hold(_Held(header, {row.key: row for row in rows}))
        return None

    def attach(self, record: ExecutionHistory) -> None:
        """Goes on with what another journal had committed, as a stored one does at take-over; publishes nothing.

        Raises: RequestFailure (REQUEST_ID_CONFLICT) as `open` does.
        """
        self._hold(_Held(record.header, dict(record.steps), list(record.events), record.commit_count))

    def put(
        self,
        execution_id: ExecutionId,
        row: RecordedStep | None,
        events: Sequence[UnnumberedEvent],
        new_messages: Sequence[Message] = (),
    ) -> None:
        held = self._of(execution_id)
        if row is not None:
            if row.key in held.rows:
                raise RuntimeError(f"step {row.key} of {execution_id} is recorded already")
            held.rows[row.key] = row
        held.commits += 1
        if not events:
            return
        recorded = number_events(events, len(held.events) + 1, self._clock.now(), held.header.fork)
        held.events += recorded
        self._sink.publish(execution_id, recorded)

    def publish_delta(self, execution_id: ExecutionId, correlation: CorrelationContext, delta: InferenceDelta) -> None:
        self._of(execution_id)
        self._sink.publish(execution_id, (LiveDelta(self._clock.now(), correlation, delta),))

    async def durable(self, execution_id: ExecutionId) -> None:
        self._of(execution_id)

    async def load(self, execution_id: ExecutionId) -> ExecutionHistory | None:
        return self.record(execution_id)

    async def flushed(self) -> None:
        return

    def record(self, execution_id: ExecutionId) -> ExecutionHistory | None:
        """What is committed, as it is now: later puts do not show in it."""
        held = self._held.get(execution_id)
        if held is None:
            return None
        return ExecutionHistory(held.header, MappingProxyType(dict(held.rows)), tuple(held.events), held.commits)

    def close(self, execution_id: ExecutionId) -> None:
        """Drops the record and remembers its name; nothing happens when it is closed already."""
        held = self._held.pop(execution_id, None)
        if held is not None:
            self._names.release(held.header)

    def _hold(self, held: _Held) -> None:
        if held.header.execution_id in self._held:
            raise RuntimeError(f"execution {held.header.execution_id} is open already")
        self._names.reserve(held.header)
        self._held[held.header.execution_id] = held

    def _of(self, execution_id: ExecutionId) -> _Held:
        held = self._held.get(execution_id)
        if held is None:
            raise RuntimeError(f"execution {execution_id} is not open")
        return held
