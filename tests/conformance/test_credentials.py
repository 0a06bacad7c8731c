"""Values of credentials are stored by owner and name, rejected only as they are, and end with their execution."""

from dataclasses import replace

from portico.adapters.stores.credentials import DatabaseCredentials
from portico.domain.ids import ExecutionId, TenantId, UserId
from portico.ports.credentials import THE_TENANT, StoredValue
from tests.support.stored_executions import suspended
from tests.support.stores import StoreReplica

RED, ADA, RUN = TenantId("local"), UserId("ada"), ExecutionId("a")
OWN = StoredValue(RED, ADA, "tracker", b"sealed", 10.0)
OTHERS = (
    replace(OWN, tenant=TenantId("blue")),
    replace(OWN, user=UserId("eve")),
    replace(OWN, name="other"),
)


async def test_a_value_is_found_for_its_owner_and_replaced_by_the_next(here: StoreReplica) -> None:
    store = DatabaseCredentials(here.database)
    ours = replace(OWN, user=THE_TENANT)
    for each in (OWN, ours, *OTHERS):
        await store.put(each)
    found = await store.find(RED, ADA, "tracker", None)
    assert sorted(found, key=lambda each: each.user) == [ours, OWN]
    await store.put(replace(OWN, sealed=b"newer", set_at=11.0))
    assert {each.sealed for each in await store.all_of(RED, ADA)} == {b"newer", b"sealed"}
    assert await store.delete(RED, ADA, "tracker") is True
    assert await store.delete(RED, ADA, "tracker") is False
    assert list(await store.find(RED, ADA, "tracker", None)) == [ours]


async def test_only_the_value_that_was_refused_is_rejected(here: StoreReplica) -> None:
    store = DatabaseCredentials(here.database)
    await store.put(OWN)
    assert await store.reject(replace(OWN, sealed=b"older")) is False
    assert await store.reject(OWN) is True
    assert list(await store.find(RED, ADA, "tracker", None)) == [replace(OWN, rejected=True)]
    await store.put(replace(OWN, sealed=b"newer"))
    assert [each.rejected for each in await store.find(RED, ADA, "tracker", None)] == [False]


async def test_the_value_of_a_request_ends_with_its_execution(here: StoreReplica) -> None:
    store = DatabaseCredentials(here.database)
    await suspended(here, "a", "1")
    await store.put(replace(OWN, execution_id=RUN))
    await store.put(replace(OWN, execution_id=ExecutionId("gone")))
    assert [each.execution_id for each in await store.find(RED, ADA, "tracker", RUN)] == [RUN]
    assert list(await store.find(RED, UserId("eve"), "tracker", RUN)) == []
    assert list(await store.all_of(RED, ADA)) == []
    await store.forget_ended(5.0)
    assert await store.find(RED, ADA, "tracker", ExecutionId("gone"))
    await store.forget_ended(20.0)
    assert not await store.find(RED, ADA, "tracker", ExecutionId("gone"))
    assert await store.find(RED, ADA, "tracker", RUN)
    await store.forget(RUN)
    assert not await store.find(RED, ADA, "tracker", RUN)
