"""Decoded events of large commits, kept for the next page of a reading.

An execution that ran in memory is one commit, however many events it has. A reader of its pages would decode it once
for each of them.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from portico.adapters.stores import codec
from portico.adapters.stores.history import THREAD_BYTES, decode_sized
from portico.domain.ids import ExecutionId
from portico.domain.journal.events import StoredEvent
from portico.ports.runtime import Clock

MAX_BYTES: Final = 16 * 2**20
"""Maximum size of all together, encoded."""
SECONDS: Final = 30.0
"""Seconds after which a commit that was not read again is dropped, at the next reading."""
EncodedCommit: TypeAlias = tuple[int, bytes]
"""The number of the first event, and the encoded events."""


class _Decoded(NamedTuple):
    events: Sequence[StoredEvent]
    size: int
    read_at: float


class DecodedCommits:
    """The events of commits, of which large ones are decoded once for all pages that are read of them in a row."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._commits: OrderedDict[tuple[ExecutionId, int], _Decoded] = OrderedDict()
        self._size = 0

    async def events(self, execution_id: ExecutionId, encoded: Sequence[EncodedCommit]) -> list[StoredEvent]:
        """Return the events of these commits of an execution, in their order. Raises: StorageFailure."""
        self._drop(self._clock.monotonic() - SECONDS)
        missing = [each for each in encoded if (execution_id, each[0]) not in self._commits]
        size = sum(len(data) for _, data in missing)
        decoded = await decode_sized(lambda: {first: codec.decode_events(data) for first, data in missing}, size)
        events: list[StoredEvent] = []
        for first, data in encoded:
            found = decoded.get(first) or self._commits[execution_id, first].events
            events += found
            if THREAD_BYTES <= len(data) <= MAX_BYTES:
                self._keep((execution_id, first), _Decoded(found, len(data), self._clock.monotonic()))
        return events

    def _keep(self, key: tuple[ExecutionId, int], commit: _Decoded) -> None:
        known = self._commits.pop(key, None)
        self._commits[key] = commit
        self._size += commit.size - (0 if known is None else known.size)
        while self._size > MAX_BYTES:
            self._size -= self._commits.popitem(last=False)[1].size

    def _drop(self, before: float) -> None:
        """Drop the commits that were read last before that time; the first was read longest ago."""
        while self._commits and next(iter(self._commits.values())).read_at < before:
            self._size -= self._commits.popitem(last=False)[1].size
