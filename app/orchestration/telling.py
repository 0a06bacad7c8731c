"""What is told of an execution: matched against its record first, and put into its journal in order."""

from collections.abc import Sequence

from app.domain.effects import Header, Row
from app.domain.events import Anchored, CorrelationContext, Event, InferenceRetracted, InferenceStart
from app.domain.messages import Message
from app.orchestration.leaf import Leaf
from app.orchestration.record import Recollection, diverged
from app.ports import Journal, Record


class Telling:
    """The record of what was told before, and what is told now.

    Events are held until the next put, which nothing can come before. Without a journal nothing new can be told: that
    is a divergence.
    """

    def __init__(self, header: Header, journal: Journal | None, record: Record | None) -> None:
        self.before = Recollection(record)
        self._execution_id = header.execution_id
        self._journal = journal
        self._held: list[Anchored] = []

    @property
    def is_over(self) -> bool:
        """Whether nothing new can be told."""
        return self._journal is None

    def step(self, key: str, fingerprint: str) -> Row | None:
        """The recorded step under that key.

        Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) when it is the record of something else.
        """
        row = self.before.row(key)
        if row is not None and row.fingerprint != fingerprint:
            raise diverged(key, recorded=row.fingerprint, replayed=fingerprint)
        return row

    def say(self, anchor: str, context: CorrelationContext, events: Sequence[Event]) -> None:
        """Holds those of the events that the record does not have yet."""
        self.hold(anchor, context, self.before.unmatched(anchor, events))

    def hold(self, anchor: str, context: CorrelationContext, events: Sequence[Event]) -> None:
        """Holds new events. Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) when nothing new can be."""
        if events and self._journal is None:
            raise diverged(anchor, recorded=None, replayed=events[0])
        self._held += [(anchor, context, event) for event in events]

    def remember(self, leaf: Leaf, row: Row) -> None:
        """Tells again what was told of that step, from its last start on."""
        self.before.from_last_start(leaf.key)
        events = [leaf.start] if leaf.start else []
        self.say(leaf.key, leaf.correlation, [*events, *leaf.end(row.outcome)])

    def begin(self, leaf: Leaf, *, began: bool) -> None:
        """Tells that it begins; that it begins once more where it `began` in a life that was cut short."""
        if leaf.start is None:
            return
        if not began:
            self.hold(leaf.key, leaf.correlation, (leaf.start,))
            return
        self.before.skip(leaf.key)
        if isinstance(leaf.start, InferenceStart):
            self.hold(leaf.key, leaf.correlation, (InferenceRetracted(leaf.start.segment), leaf.start))

    def put(self, row: Row | None = None, turn: Sequence[Message] = ()) -> None:
        """One commit: the step, all events held so far, and with the last ones the turn."""
        if self._journal is not None and (self._held or row is not None):
            held, self._held = self._held, []
            self._journal.put(self._execution_id, row, held, turn)
