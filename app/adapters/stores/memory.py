"""The journal of one process: what is put is committed and published at once, and gone with the process."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from app.adapters.stores.names import Names
from app.domain.effects import Header, Row
from app.domain.events import Anchored, CorrelationContext, InferenceDelta, Live, Recorded, numbered
from app.domain.messages import Message
from app.ports import Claim, Clock, Earlier, EventSink, Record


@dataclass(slots=True)
class _Held:
    header: Header
    rows: dict[str, Row] = field(default_factory=dict)
    events: list[Recorded] = field(default_factory=list)
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
        self._names = Names(keep_ended)

    async def open(
        self, header: Header, claim: Claim | None = None, *, rows: Sequence[Row] = (), waits: bool = False
    ) -> Earlier | None:
        if claim is not None or waits:
            raise RuntimeError("a journal that forgets keeps no Idempotency-Key, and nothing for later")
        self._hold(_Held(header, {row.key: row for row in rows}))
        return None

    def adopt(self, record: Record) -> None:
        """Goes on with what another journal had committed, as a stored one does at take-over; publishes nothing.

        Raises: RequestFailure (REQUEST_ID_CONFLICT) as `open` does.
        """
        self._hold(_Held(record.header, dict(record.rows), list(record.events), record.commits))

    def put(self, execution_id: str, row: Row | None, events: Sequence[Anchored], turn: Sequence[Message] = ()) -> None:
        held = self._of(execution_id)
        if row is not None:
            if row.key in held.rows:
                raise RuntimeError(f"step {row.key} of {execution_id} is recorded already")
            held.rows[row.key] = row
        held.commits += 1
        if not events:
            return
        recorded = numbered(events, len(held.events) + 1, self._clock.now(), held.header.fork)
        held.events += recorded
        self._sink.publish(execution_id, recorded)

    def delta(self, execution_id: str, correlation: CorrelationContext, delta: InferenceDelta) -> None:
        self._of(execution_id)
        self._sink.publish(execution_id, (Live(self._clock.now(), correlation, delta),))

    async def durable(self, execution_id: str) -> None:
        self._of(execution_id)

    async def load(self, execution_id: str) -> Record | None:
        return self.record(execution_id)

    async def written(self) -> None:
        return

    def record(self, execution_id: str) -> Record | None:
        """What is committed, as it is now: later puts do not show in it."""
        held = self._held.get(execution_id)
        if held is None:
            return None
        return Record(held.header, MappingProxyType(dict(held.rows)), tuple(held.events), held.commits)

    def close(self, execution_id: str) -> None:
        """Drops the record and remembers its name; nothing happens when it is closed already."""
        held = self._held.pop(execution_id, None)
        if held is not None:
            self._names.release(held.header)

    def _hold(self, held: _Held) -> None:
        if held.header.execution_id in self._held:
            raise RuntimeError(f"execution {held.header.execution_id} is open already")
        self._names.take(held.header)
        self._held[held.header.execution_id] = held

    def _of(self, execution_id: str) -> _Held:
        held = self._held.get(execution_id)
        if held is None:
            raise RuntimeError(f"execution {execution_id} is not open")
        return held
