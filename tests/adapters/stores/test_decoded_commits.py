"""Large commits are decoded once for a reading, and given up after it."""

import anyio

from portico.adapters.stores import codec
from portico.adapters.stores.executions.decoded_commits import MAX_BYTES, SECONDS, DecodedCommits
from portico.adapters.stores.history import THREAD_BYTES
from tests.support.examples import EVENTS, stored_events
from tests.support.virtual_time import VirtualClock

SMALL = codec.encode_events(stored_events(*EVENTS[:3]))
LARGE = codec.encode_events(stored_events(*EVENTS * (THREAD_BYTES // 2_000)))


async def test_a_large_commit_is_decoded_once_while_it_is_read_and_a_small_one_each_time(clock: VirtualClock) -> None:
    assert len(SMALL) < THREAD_BYTES <= len(LARGE)
    decoded = DecodedCommits(clock)
    first, again = [await decoded.events("e", [(1, LARGE), (9_000, SMALL)]) for _ in range(2)]
    assert first == again == [*codec.decode_events(LARGE), *codec.decode_events(SMALL)]
    assert first[0] is again[0]
    assert first[-1] is not again[-1]
    assert (await decoded.events("other", [(1, LARGE)]))[0] is not first[0]


async def test_a_commit_is_given_up_after_a_time_and_for_others_that_need_its_room(clock: VirtualClock) -> None:
    decoded = DecodedCommits(clock)
    first = await decoded.events("e", [(1, LARGE)])
    await anyio.sleep(SECONDS - 1)
    assert (await decoded.events("e", [(1, LARGE)]))[0] is first[0]
    await anyio.sleep(SECONDS + 1)
    later = await decoded.events("e", [(1, LARGE)])
    assert later[0] is not first[0]
    for number in range(MAX_BYTES // len(LARGE)):
        await decoded.events(f"e-{number}", [(1, LARGE)])
    assert (await decoded.events("e", [(1, LARGE)]))[0] is not later[0]
