"""Conformance of delayed starts on both databases: who may start one, its turn, and what leaves it alone till then."""

from dataclasses import replace

from portico.adapters.stores.database import Statement, execute_each
from portico.adapters.stores.delayed_starts import DatabaseDelayedStarts
from portico.adapters.stores.executions.retention import count_waiting
from portico.adapters.stores.journal.insert_execution import MAX_DELAYED_PER_TENANT
from portico.adapters.stores.schema import delayed_starts
from portico.adapters.stores.timers import DatabaseTimerQueue
from portico.domain.access.principal import LOCAL, Permissions
from portico.domain.failures import Code
from portico.domain.journal.header import Delay, ExecutionHeader
from portico.ports.timers import TimerKind
from tests.support.stored_executions import journaled, refused
from tests.support.stores import StoreReplica

UNTIL = 2_000_000_000.0
RIGHTS = Permissions.of(["can_send_messages"])
_ADD = Statement(lambda _: delayed_starts.insert())


def delayed(name: str, session_id: str | None = None, busy: str = "reject") -> ExecutionHeader:
    plain = journaled(name, f"r-{name}", session_id=session_id, busy=busy)
    request = plain.request.model_copy(update={"run_at": "2033-05-18T03:33:20Z"})
    return replace(plain, request=request, delay=Delay(UNTIL))


async def started(here: StoreReplica, header: ExecutionHeader) -> ExecutionHeader:
    """Start what is due with other rights, and return the header that the next owner reads."""
    found = await DatabaseTimerQueue(here.database, TimerKind.START, here.name).claim(UNTIL, 1)
    assert [each.timer_id for each in found] == [header.execution_id]
    changed = replace(header, permissions=RIGHTS)
    assert await DatabaseDelayedStarts(here.database, here.name).start(changed, Delay(UNTIL, UNTIL + 1)) == 1
    history = await here.store.load("local", header.execution_id)
    assert history is not None
    return history.header


async def test_one_replica_starts_it_with_the_rights_of_then(here: StoreReplica, there: StoreReplica) -> None:
    header = delayed("a")
    await here.journal.open(header, queued=True)
    for replica in (here, there):
        assert await replica.store.orphaned(()) == []
    assert await count_waiting(here.database) == 0
    stored = await there.store.find(LOCAL.own, "r-a")
    assert stored is not None
    assert (stored.run_at, stored.owner) == (UNTIL, None)
    assert await DatabaseTimerQueue(there.database, TimerKind.START, there.name).claim(UNTIL - 1, 1) == []
    after = await started(here, header)
    assert (after.permissions, after.delay) == (RIGHTS, Delay(UNTIL, UNTIL + 1))
    assert await DatabaseDelayedStarts(there.database, there.name).start(header, Delay(UNTIL)) is None
    assert [each.execution_id for each in await there.store.orphaned(())] == ["a"]
    assert await count_waiting(here.database) == 1


async def test_a_claim_before_its_time_is_the_end_of_the_wait(here: StoreReplica, there: StoreReplica) -> None:
    """As that of a cancel; what a replica does meanwhile for the time that it has claimed changes nothing."""
    header = delayed("a")
    await here.journal.open(header, queued=True)
    await DatabaseTimerQueue(there.database, TimerKind.START, there.name).claim(UNTIL, 1)
    history = await here.store.claim("a", 1, cancel=True)
    assert history is not None
    assert history.cancel_requested
    assert await DatabaseDelayedStarts(there.database, there.name).start(header, Delay(UNTIL)) is None


async def test_its_turn_begins_when_it_starts(here: StoreReplica) -> None:
    """A session is free until then, passes its turn to others, and is busy then or not."""
    waits = delayed("a", "s")
    await here.journal.open(waits, queued=True)
    await here.journal.open(journaled("b", "r-b", session_id="s"))
    await refused(Code.REQUEST_SESSION_BUSY, here.journal.open(journaled("c", "r-c", session_id="s")))
    after = await started(here, waits)
    assert after.delay is not None
    assert after.delay.refusal is not None
    assert after.delay.refusal.code is Code.REQUEST_SESSION_BUSY
    patient = delayed("d", "s", busy="enqueue")
    await here.journal.open(patient, queued=True)
    assert (await started(here, patient)).delay == Delay(UNTIL, UNTIL + 1)
    free = delayed("e", "other")
    await here.journal.open(free, queued=True)
    assert (await started(here, free)).delay == Delay(UNTIL, UNTIL + 1)
    await refused(Code.REQUEST_SESSION_BUSY, here.journal.open(journaled("f", "r-f", session_id="other")))


async def test_no_more_than_a_thousand_wait_in_a_tenant(here: StoreReplica) -> None:
    rows = [
        {"timer_id": f"t{number}", "tenant": "local", "due_at": UNTIL, "claimed_by": None}
        for number in range(MAX_DELAYED_PER_TENANT - 1)
    ]
    await here.database.write(lambda: execute_each(_ADD, rows))
    await here.journal.open(delayed("a"), queued=True)
    await refused(Code.REQUEST_RATE_LIMITED, here.journal.open(delayed("b"), queued=True))
    assert await here.store.find(LOCAL.own, "r-b") is None
    other = replace(delayed("c"), tenant="other")
    assert await here.journal.open(other, queued=True) is None
