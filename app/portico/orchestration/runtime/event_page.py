"""Pages of the stored events of one execution, in either direction."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from portico.domain.journal.events import StoredEvent
from portico.domain.value import value

MAX_READ: Final = 10_000
"""Events that one page with types looks through; with none of them among these it is short."""
_EVENTS_PER_READ: Final = 1_000
ReadEvents: TypeAlias = Callable[[int, int], Awaitable[Sequence[StoredEvent]]]
"""Returns events after a number, at least so many of them if there are."""


@value
class EventSelection:
    """Selection of events: those of the `types`, None for all, at most `limit`.

    The first page has no `after`; those that follow have the number of the last event before them.
    """

    limit: int
    types: frozenset[str] | None = None
    after: int | None = None
    newest_first: bool = False


@value
class EventPage:
    """A page of events; `next` is the `after` of the following one, None on the last."""

    events: Sequence[StoredEvent]
    next: int | None


async def event_page(read: ReadEvents, last: int, selected: EventSelection) -> EventPage:
    """Return the selected events of a log that ends with the event of number `last`."""
    step = _EVENTS_PER_READ if selected.types else selected.limit
    position = selected.after if selected.after is not None else last + 1 if selected.newest_first else 0
    found: list[StoredEvent] = []
    looked_at = 0
    while len(found) <= selected.limit and looked_at < MAX_READ:
        start = max(0, position - 1 - step) if selected.newest_first else position
        events = await read(start, position - 1 - start if selected.newest_first else step)
        if selected.newest_first:
            events = [event for event in reversed(events) if event.sequence_number < position]
        found += [event for event in events if selected.types is None or event.event.type in selected.types]
        looked_at += len(events)
        if not events or (position := events[-1].sequence_number) == (1 if selected.newest_first else last):
            return _page(found, selected.limit, None)
    return _page(found, selected.limit, position)


def _page(found: Sequence[StoredEvent], limit: int, position: int | None) -> EventPage:
    """Return the page; at `position` the reading ended, None for the end of the log."""
    if len(found) > limit:
        return EventPage(found[:limit], found[limit - 1].sequence_number)
    return EventPage(found, position)
