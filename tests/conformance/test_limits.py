"""Conformance of the stores of limits and usage, and of replicas that share limits."""

from collections.abc import Mapping, Sequence

import anyio
import pytest

from portico.adapters.stores.access.limits import SLOT_TTL_S, MemoryLimitStore, SharedLimitStore
from portico.adapters.stores.access.usage import DatabaseUsage
from portico.capabilities.limits.caps import CallSize, CapReservation, Caps
from portico.capabilities.limits.quotas import Quota, Quotas, Reservation
from portico.domain.access.limits import AccessLimits, Rate
from portico.domain.failures import RequestFailure
from portico.domain.journal.events import ExecutionSuspended
from portico.domain.lifecycle import State
from portico.ports.limits import UsageCounts, UsageFilter, UsageKey
from portico.ports.runtime import Clock
from tests.support.examples import COMPLETED, MOVED, SUSPENSION, response, unnumbered
from tests.support.stored_executions import begun, moved
from tests.support.stores import StoreReplica, open_replica

RATE = Rate(quota=1_000, seconds=366 * 86_400)
"""A rate of which next to nothing comes back during a test."""


def shared(replica: StoreReplica, clock: Clock, name: str) -> SharedLimitStore:
    return SharedLimitStore(replica.database, clock, name)


def quota_on(store: SharedLimitStore, clock: Clock, limits: AccessLimits) -> tuple[Quotas, Quota]:
    quotas = Quotas(store, clock, {"default": limits})
    quota = quotas.of("acme")
    assert quota is not None
    return quotas, quota


async def admitted(quota: Quota, times: int) -> int:
    """Return how many of so many requests are admitted."""
    count = 0
    for _ in range(times):
        try:
            (await quota.admit()).release()
        except RequestFailure:
            continue
        count += 1
    return count


async def test_a_lease_is_a_fortieth_of_what_is_left_and_at_least_what_is_needed(
    here: StoreReplica, clock: Clock
) -> None:
    store = shared(here, clock, "one")
    sizes = [(await store.lease_units("a", RATE, needed)).units for needed in (1, 1, 100, 900, 800, 1)]
    assert sizes == [25, 24, 100, 0, 800, 1]


async def test_units_that_are_given_back_can_be_leased_again(here: StoreReplica, clock: Clock) -> None:
    store, other = shared(here, clock, "one"), shared(here, clock, "other")
    await store.lease_units("a", RATE, 1_000)
    assert (await other.lease_units("a", RATE, 1)).units == 0
    await store.settle({("a", RATE): -300}, {})
    await other.settle({("a", RATE): 100}, {})
    assert (await other.lease_units("a", RATE, 200)).units == 200
    assert (await other.lease_units("a", RATE, 1)).units == 0


async def test_two_replicas_together_exceed_a_rate_by_five_percent_at_most(here: StoreReplica, clock: Clock) -> None:
    """All units are taken, then all of them come back, while each replica holds a lease from before."""
    rate, limits = Rate(2_000, 3_600), AccessLimits(requests=Rate(2_000, 3_600))
    pairs = [quota_on(shared(here, clock, name), clock, limits) for name in ("one", "other")]
    taken = await together([quota for _, quota in pairs], 5)
    await clock.sleep(rate.seconds)
    taken += await together([quota for _, quota in pairs], 1_500)
    assert taken - 10 >= rate.quota * 0.99 - 10
    assert taken <= rate.quota * 1.05 + 10


async def together(quotas: Sequence[Quota], times: int) -> int:
    """Return how many requests are admitted when each replica gets so many at the same time."""
    counts: list[int] = []

    async def ask(quota: Quota) -> None:
        counts.append(await admitted(quota, times))

    async with anyio.create_task_group() as group:
        for quota in quotas:
            group.start_soon(ask, quota)
    return sum(counts)


async def test_what_a_replica_does_not_use_another_one_may_after_it_settled(here: StoreReplica, clock: Clock) -> None:
    limits = AccessLimits(requests=RATE)
    (one, first), (_, second) = (quota_on(shared(here, clock, name), clock, limits) for name in ("one", "other"))
    assert await admitted(first, 1) == 1
    assert await admitted(second, 1_000) == 975
    await one.settle()
    assert await admitted(second, 1_000) == 0
    await one.settle()
    await clock.sleep(1.5)
    assert await admitted(second, 1_000) == 24


async def test_a_limit_of_few_is_exact_on_two_replicas(here: StoreReplica, clock: Clock) -> None:
    limits = AccessLimits(requests=Rate(7, 366 * 86_400))
    quotas = [quota_on(shared(here, clock, name), clock, limits)[1] for name in ("one", "other")]
    assert await together(quotas, 20) == 7


@pytest.mark.parametrize("quota", [7, 100])
async def test_caps_of_a_deployment_on_two_replicas_pass_no_more_than_a_twentieth_beyond_them(
    here: StoreReplica, clock: Clock, quota: int
) -> None:
    """Ask 100 attempts of each replica at the same time; what is sent is never given back."""
    limits = {"main/a": {"main/a": AccessLimits(requests=Rate(quota, 86_400))}}
    replicas = [Quotas(shared(here, clock, name), clock, engines=limits).caps["main/a"] for name in ("one", "other")]
    sent: list[CapReservation] = []

    async def attempt(caps: Caps) -> None:
        taken = await caps.take(CallSize(1, 0.0), lambda: None)
        if isinstance(taken, CapReservation):
            sent.append(taken)

    async with anyio.create_task_group() as group:
        for caps in replicas * 100:
            group.start_soon(attempt, caps)
    assert quota * 0.9 <= len(sent) <= quota + max(1, quota // 20)


async def test_slots_are_shared_and_those_of_a_dead_replica_are_free_after_a_while(
    here: StoreReplica, clock: Clock
) -> None:
    limits = AccessLimits(concurrency=3)
    (one, first), (other, second) = (quota_on(shared(here, clock, name), clock, limits) for name in ("one", "other"))
    slots = [await first.admit(), await first.admit(), await second.admit()]
    for quota in (first, second):
        with pytest.raises(RequestFailure, match="tenant-concurrency"):
            await quota.admit()
    slots[0].release()
    await one.settle()
    await clock.sleep(1)
    slots.append(await second.admit())
    for _ in range(4):
        await clock.sleep(SLOT_TTL_S / 3)
        await other.settle()
    await second.admit()
    with pytest.raises(RequestFailure, match="tenant-concurrency"):
        await second.admit()


async def test_the_rates_of_the_only_replica_outlive_it(here: StoreReplica, clock: Clock) -> None:
    store = MemoryLimitStore(here.database, clock)
    await store.lease_units("a", RATE, 600)
    await store.lease_units("b", Rate(1, 1), 1)
    await store.write()
    await clock.sleep(2)
    await store.lease_units("a", RATE, 1)
    await store.write()
    again = MemoryLimitStore(here.database, clock)
    await again.load()
    left = RATE.quota - 600 - (RATE.quota - 600) // 40
    assert (await again.lease_units("a", RATE, left + 1)).units == 0
    assert (await again.lease_units("a", RATE, left)).units == left
    assert (await again.lease_units("b", Rate(1, 1), 1)).units == 1


def counted(hour: int, source: str = "x", **fields: str) -> UsageKey:
    values = {"tenant": "acme", "user": "ada", "key_id": "", "agent": "", "model": ""} | fields
    return UsageKey(source=source, hour=hour, **values)


async def test_usage_is_replaced_by_process_and_never_lowered_by_execution(here: StoreReplica) -> None:
    stored = DatabaseUsage(here.database)
    process, execution = counted(10, "process", model="m"), counted(10, "e-1", model="m")
    await stored.write({process: UsageCounts(5, 50, 5, 0.5)}, {execution: UsageCounts(1, 10, 1, 0.1)})
    await stored.write({process: UsageCounts(4, 40, 4, 0.4)}, {execution: UsageCounts(1, 7, 2, 0.05)})
    ((model, sums),) = await stored.read(UsageFilter("acme"), "model")
    assert (model, sums) == ("m", UsageCounts(5, 50, 6, pytest.approx(0.5)))


async def test_usage_that_became_part_of_the_total_of_a_process_is_deleted(here: StoreReplica) -> None:
    stored = DatabaseUsage(here.database)
    process, first, second = (counted(10, source, model="m") for source in ("process", "e-1", "e-2"))
    await stored.write({}, {first: UsageCounts(1, 10, 1, 0.1), second: UsageCounts(1, 20, 2, 0.2)})
    for _ in range(2):
        await stored.write({process: UsageCounts(1, 10, 1, 0.1)}, {}, {first})
    assert await stored.read(UsageFilter("acme"), "model") == [("m", UsageCounts(2, 30, 3, pytest.approx(0.3)))]


class Taken:
    """Implementation of the `UsageSource` port for one execution."""

    def __init__(self) -> None:
        self.counts = UsageCounts(1, 10, 1, 0.1)
        self.confirmed: list[str] = []

    def counts_of(self, execution_id: str) -> Mapping[UsageKey, UsageCounts]:
        return {counted(10, execution_id, model="m"): self.counts}

    def confirm(self, execution_id: str) -> None:
        self.confirmed.append(execution_id)


async def test_the_commit_of_an_end_or_a_suspension_stores_what_the_execution_has_taken(
    here: StoreReplica, clock: Clock
) -> None:
    taken, stored, sums = Taken(), DatabaseUsage(here.database), []

    async def count() -> None:
        sums.extend(await stored.read(UsageFilter("acme"), "model"))

    async with open_replica(here.database, clock, "other", usage=taken) as there:
        await begun(there, "a", "r-a", MOVED)
        await count()
        asked = ExecutionSuspended((SUSPENSION,), response(State.SUSPENDED))
        there.journal.put("a", (), unnumbered(moved(State.SUSPENDED), asked))
        await there.journal.durable("a")
        await count()
        taken.counts = UsageCounts(1, 30, 3, 0.3)
        there.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED))
        await there.journal.durable("a")
        await count()
        await stored.write({}, taken.counts_of("a"))
        await count()
    assert [each.input_tokens for _, each in sums] == [10, 30, 30]
    assert taken.confirmed == ["a", "a", "a"]


async def test_usage_is_read_by_user_group_and_time(here: StoreReplica) -> None:
    stored, one = DatabaseUsage(here.database), UsageCounts(1, 10, 1, 1.0)
    await stored.write(
        {
            counted(23): UsageCounts(executions=2),
            counted(23, model="a"): one,
            counted(24, model="b"): one,
            counted(24, user="bob", key_id="k1", agent="helper"): UsageCounts(executions=1),
            counted(24, user="bob", key_id="k1", agent="helper", model="b"): one,
            counted(24, tenant="other", model="b"): one,
        },
        {},
    )
    tokens = {
        by: [(name, sums.executions, sums.input_tokens) for name, sums in await stored.read(UsageFilter("acme"), by)]
        for by in ("day", "user", "key", "agent", "model")
    }
    assert tokens == {
        "day": [("1970-01-01", 2, 10), ("1970-01-02", 1, 20)],
        "user": [("ada", 2, 20), ("bob", 1, 10)],
        "key": [("", 2, 20), ("k1", 1, 10)],
        "agent": [("", 2, 20), ("helper", 1, 10)],
        "model": [("a", 1, 10), ("b", 2, 20)],
    }
    own = await stored.read(UsageFilter("acme", user="ada", since=24, until=25), "day")
    assert own == [("1970-01-02", UsageCounts(0, 10, 1, 1.0))]
    await stored.purge(before=24 * 3_600)
    assert [name for name, _ in await stored.read(UsageFilter("acme"), "day")] == ["1970-01-02"]


async def test_a_settled_reservation_gives_back_what_it_did_not_take(here: StoreReplica, clock: Clock) -> None:
    quotas, quota = quota_on(shared(here, clock, "one"), clock, AccessLimits(tokens=RATE))
    reserved: list[Reservation] = [await quota.reserve(450, 0.0) for _ in range(2)]
    with pytest.raises(RequestFailure, match="tenant-tokens"):
        await quota.reserve(450, 0.0)
    reserved[0].settle(20, 0.0)
    reserved.append(await quota.reserve(450, 0.0))
    for each in reserved[1:]:
        each.settle(500, 0.0)
        each.settle(500, 0.0)
    await quotas.settle()
    await quotas.settle()
    assert quota.status()[0].remaining == 0
    with pytest.raises(RequestFailure):
        await shared_quota(here, clock).reserve(1, 0.0)


def shared_quota(replica: StoreReplica, clock: Clock) -> Quota:
    return quota_on(shared(replica, clock, "other"), clock, AccessLimits(tokens=RATE))[1]
