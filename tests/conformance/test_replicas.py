"""Conformance of replicas that share a database: liveness, queued executions and cancels."""

from portico.adapters.stores.executions.retention import count_waiting
from portico.adapters.stores.replicas import DatabaseReplicas
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Code
from portico.domain.lifecycle import State
from portico.ports.runtime import Clock
from portico.ports.storage import RecoveryTicket, SuspensionAnswers
from tests.support.examples import FAILED, unnumbered
from tests.support.stored_executions import all_suspensions, answered, begun, journaled, moved, refused, suspended
from tests.support.stores import StoreReplica

PATIENCE = 10.0


def among(here: StoreReplica, clock: Clock, name: str) -> DatabaseReplicas:
    return DatabaseReplicas(here.database, clock, name, PATIENCE)


def ids(found: object) -> list[str]:
    assert isinstance(found, list)
    return [each.execution_id for each in found if isinstance(each, RecoveryTicket)]


async def test_replicas_with_heartbeats_are_alive(here: StoreReplica, clock: Clock) -> None:
    one, other = among(here, clock, "one"), among(here, clock, "other")
    assert await one.heartbeat() == {"one"}
    for _ in range(5):
        assert await other.heartbeat() == {"one", "other"}
        assert await one.heartbeat() == {"one", "other"}
        await clock.sleep(PATIENCE / 2)


async def test_a_replica_without_heartbeats_is_dead_after_the_timeout(here: StoreReplica, clock: Clock) -> None:
    one, other = among(here, clock, "one"), among(here, clock, "other")
    await other.heartbeat()
    assert await one.heartbeat() == {"one", "other"}
    for _ in range(4):
        await clock.sleep(PATIENCE / 5)
        assert await one.heartbeat() == {"one", "other"}
    await clock.sleep(PATIENCE / 4)
    assert await one.heartbeat() == {"one"}


async def test_after_an_outage_no_replica_counts_as_dead_at_once(here: StoreReplica, clock: Clock) -> None:
    one, other = among(here, clock, "one"), among(here, clock, "other")
    await other.heartbeat()
    await one.heartbeat()
    await clock.sleep(3 * PATIENCE)
    assert await one.heartbeat() == {"one", "other"}
    await other.heartbeat()
    await clock.sleep(PATIENCE / 3)
    assert await one.heartbeat() == {"one", "other"}


async def test_a_replica_that_wakes_up_is_alive_and_takes_no_other_for_dead(here: StoreReplica, clock: Clock) -> None:
    one, other = among(here, clock, "one"), among(here, clock, "other")
    await other.heartbeat()
    await one.heartbeat()
    for _ in range(100):
        await clock.sleep(PATIENCE / 5)
        alive = await one.heartbeat()
    assert alive == {"one"}
    assert await other.heartbeat() == {"one", "other"}
    assert await one.heartbeat() == {"one", "other"}


async def test_the_row_of_a_dead_replica_does_not_count_as_alive(here: StoreReplica, clock: Clock) -> None:
    await among(here, clock, "dead").heartbeat()
    young = among(here, clock, "young")
    assert await young.heartbeat() == {"dead", "young"}
    for _ in range(4):
        await clock.sleep(PATIENCE / 4)
        alive = await young.heartbeat()
    assert alive == {"young"}


async def test_a_replica_that_leaves_is_gone_at_once(here: StoreReplica, clock: Clock) -> None:
    one, other = among(here, clock, "one"), among(here, clock, "other")
    await one.heartbeat()
    assert await other.heartbeat() == {"one", "other"}
    await one.leave()
    assert await other.heartbeat() == {"other"}


async def test_a_queued_execution_has_no_owner_and_is_claimed_once(here: StoreReplica, there: StoreReplica) -> None:
    assert await here.journal.open(journaled("a", "r-a"), queued=True) is None
    waiting = await there.store.find(LOCAL.own, "r-a")
    assert waiting is not None
    assert (waiting.owner, waiting.epoch, waiting.last_sequence_number) == (None, 1, 0)
    assert await count_waiting(here.database) == 1
    record = await there.store.claim("a", waiting.epoch)
    assert record is not None
    assert (record.epoch, record.steps, record.events) == (2, {}, ())
    assert await here.store.claim("a", waiting.epoch) is None
    assert await count_waiting(here.database) == 0
    there.journal.attach(record)


async def test_a_suspended_execution_does_not_count_as_queued(here: StoreReplica) -> None:
    await suspended(here, "a")
    assert await count_waiting(here.database) == 0


async def test_a_cancel_reaches_the_owner_from_any_replica(here: StoreReplica, there: StoreReplica) -> None:
    await begun(here, "a", "r-a")
    for _ in range(2):
        await there.store.request_cancel("local", "a")
    assert ids(await there.store.cancel_requested()) == []
    assert ids(await here.store.cancel_requested()) == ["a"]
    here.journal.put("a", (), unnumbered(moved(State.ERROR), FAILED))
    await here.journal.durable("a")
    assert ids(await here.store.cancel_requested()) == []


async def test_a_cancel_of_an_unowned_execution_reaches_all_replicas(here: StoreReplica, there: StoreReplica) -> None:
    await begun(here, "a", "r-a")
    await there.store.request_cancel("local", "a")
    here.journal.close("a")
    await suspended(here, "b")
    await there.store.request_cancel("local", "b")
    assert ids(await there.store.cancel_requested()) == ["b"]
    assert ids(await here.store.cancel_requested()) == ["a", "b"]


async def test_whichever_replica_claims_a_cancelled_execution_learns_that_it_is(
    here: StoreReplica, there: StoreReplica
) -> None:
    """One whose owner died after the cancel was answered, and one whose canceller died after its claim."""
    await begun(here, "a", "r-a")
    await begun(here, "b", "r-b")
    await there.store.request_cancel("local", "a")
    first = [await there.store.claim("a", 1), await there.store.claim("b", 1)]
    again = [await here.store.claim("b", 2, cancel=True), await there.store.claim("b", 3)]
    assert [each and each.cancel_requested for each in first] == [True, False]
    assert [each and each.cancel_requested for each in again] == [True, True]
    assert ids(await there.store.cancel_requested()) == ["a", "b"]


async def test_a_suspension_of_a_cancelled_execution_takes_no_answer(here: StoreReplica) -> None:
    await suspended(here, "a")
    await here.store.request_cancel("local", "a")
    await refused(
        Code.REQUEST_RESUME_UNEXPECTED, here.store.answer("local", "a", SuspensionAnswers([answered()]), claim=True)
    )
    assert [each.execution_id for each in await all_suspensions(here)] == ["a"]


async def test_an_execution_of_another_tenant_is_not_cancelled(here: StoreReplica) -> None:
    await begun(here, "a", "r-a")
    await here.store.request_cancel("other", "a")
    assert ids(await here.store.cancel_requested()) == []
