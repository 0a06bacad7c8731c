"""Pages of events over a log that is read in pieces."""

from collections.abc import Sequence

import pytest

from portico.domain.journal.events import GuardEnd, StoredEvent, ToolEnd
from portico.orchestration.runtime.event_page import MAX_READ, EventSelection, event_page
from tests.support.examples import EVENTS, stored_events

RARE = next(event for event in EVENTS if isinstance(event, ToolEnd))
COMMON = next(event for event in EVENTS if isinstance(event, GuardEnd))
LAST = 2 * MAX_READ + 500
LOG = stored_events(*[RARE if number in {1, 15_000, LAST} else COMMON for number in range(1, LAST + 1)])


async def read(after: int, limit: int) -> Sequence[StoredEvent]:
    """Return more than is wanted, as a store does that does not divide its commits."""
    return LOG[after : after + limit + 7]


@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_page_with_types_is_short_after_so_many_events_and_the_next_goes_on_there(newest_first: bool) -> None:
    after: int | None = None
    found, looked_at = [], []
    while True:
        selected = EventSelection(2, frozenset({ToolEnd.type}), after, newest_first=newest_first)
        page = await event_page(read, LAST, selected)
        found += [event.sequence_number for event in page.events]
        looked_at.append(page.next)
        if page.next is None:
            break
        after = page.next
    assert found == ([LAST, 15_000, 1] if newest_first else [1, 15_000, LAST])
    assert len(looked_at) == 3


async def test_a_log_whose_events_were_deleted_is_one_empty_page() -> None:
    async def nothing(after: int, limit: int) -> Sequence[StoredEvent]:
        return ()

    for newest_first in (False, True):
        page = await event_page(nothing, LAST, EventSelection(10, newest_first=newest_first))
        assert (page.events, page.next) == ([], None)
