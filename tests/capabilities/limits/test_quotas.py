"""Quotas: admission, reservations, waits, and what is asked of the store."""

from collections.abc import Awaitable

import anyio
import pytest

from portico.capabilities.limits.quotas import LimitObserver, Quota, Quotas, RunSlot
from portico.domain.access.limits import AccessLimits, LimitKind, Rate
from portico.domain.failures import Code, Failure, OrchestrationFailure, StorageFailure
from tests.support.limits import ExactLimitStore
from tests.support.virtual_time import VirtualClock

KEY = AccessLimits(requests=Rate(4, 4))


@pytest.fixture
def store(clock: VirtualClock) -> ExactLimitStore:
    return ExactLimitStore(clock)


def quota_of(store: ExactLimitStore, clock: VirtualClock, **limits: Rate | int) -> Quota:
    quota = Quotas(store, clock, {"default": AccessLimits(**limits)}).of("acme")
    assert quota is not None
    return quota


async def refused(awaited: Awaitable[object]) -> Failure:
    with pytest.raises(Failure) as caught:
        await awaited
    return caught.value


async def test_a_caller_has_its_own_limits_beside_those_of_its_tenant(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    limits = {"acme": AccessLimits(tokens=Rate(9, 9)), "default": AccessLimits(concurrency=2)}
    quotas = Quotas(store, clock, limits)

    def names(tenant: str, key_id: str | None = None, key_limits: AccessLimits = KEY) -> list[str]:
        quota = quotas.of(tenant, key_id, key_limits)
        return [] if quota is None else [each.name for each in quota.status()]

    assert names("acme", "k1") == ["requests", "tenant-tokens"]
    assert names("acme") == ["tenant-tokens"]
    assert names("other", "k1", AccessLimits(concurrency=1)) == ["concurrency", "tenant-concurrency"]
    assert Quotas(store, clock).of("other", "k1", AccessLimits()) is None


async def test_two_keys_share_the_limit_of_their_tenant_and_not_their_own(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    quotas = Quotas(store, clock, {"acme": AccessLimits(requests=Rate(6, 60))})
    one, other = quotas.of("acme", "k1", KEY), quotas.of("acme", "k2", KEY)
    assert one is not None
    assert other is not None
    for _ in range(4):
        await one.admit()
    refusal = await refused(one.admit())
    assert refusal.details["violated_policies"] == ["requests"]
    for _ in range(2):
        await other.admit()
    refusal = await refused(other.admit())
    assert (refusal.code, refusal.details["violated_policies"]) == (Code.REQUEST_RATE_LIMITED, ["tenant-requests"])
    assert refusal.retry_after == 10


async def test_a_refusal_takes_nothing_of_the_limits_that_would_have_allowed_it(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    quota = quota_of(store, clock, requests=Rate(10, 10_000), concurrency=1)
    slot = await quota.admit()
    for _ in range(5):
        assert (await refused(quota.admit())).details["violated_policies"] == ["tenant-concurrency"]
    assert quota.status()[0].remaining == 9
    slot.release()
    slot.release()
    (await quota.admit()).refund()
    assert [each.remaining for each in quota.status()] == [9, 1]


async def test_most_requests_and_all_refusals_are_answered_from_memory(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    quota = quota_of(store, clock, requests=Rate(4_000, 4_000_000))
    for _ in range(3_000):
        await quota.admit()
    assert store.leases < 60
    for _ in range(1_000):
        await quota.admit()
    asked = store.leases
    for _ in range(1_000):
        await refused(quota.admit())
    assert store.leases - asked <= 1


async def test_a_store_that_does_not_answer_refuses_once_the_lease_is_spent(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    quota = quota_of(store, clock, requests=Rate(400, 400_000))
    await quota.admit()
    store.is_down = True
    for _ in range(9):
        await quota.admit()
    assert isinstance(await refused(quota.admit()), StorageFailure)
    store.is_down = False
    await quota.admit()


async def test_what_fits_never_is_refused_by_name_whether_it_may_wait_or_not(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    quota = quota_of(store, clock, tokens=Rate(1_000, 60), cost=Rate(2_000_000, 60))
    for patience in (None, lambda: 1e9):
        tokens = await refused(quota.reserve(1_001, 0.0, patience))
        cost = await refused(quota.reserve(1_000, 2.5, patience))
        assert isinstance(tokens, OrchestrationFailure)
        assert tokens.details == {"field": "tenant-tokens", "limit": 1000, "needed": 1001}
        assert cost.details == {"field": "tenant-cost", "limit": 2.0, "needed": 2.5}
    assert [each.remaining for each in quota.status()] == [1_000, 2_000_000]


async def test_a_later_reservation_waits_until_enough_has_come_back(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    observer = LimitObserver()
    quota = Quotas(store, clock, {"acme": AccessLimits(tokens=Rate(1_000, 100))}, observer).of("acme")
    assert quota is not None
    await quota.reserve(1_000, 0.0)
    began = clock.monotonic()
    async with anyio.create_task_group() as group:
        group.start_soon(quota.reserve, 300, 0.0, lambda: 40.0)
        await clock.sleep(10)
        assert observer.waiting[LimitKind.TOKENS] == 1
    assert clock.monotonic() - began == pytest.approx(30, abs=0.1)
    assert observer.waiting[LimitKind.TOKENS] == 0


async def test_a_wait_ends_as_soon_as_another_reservation_gives_back_enough(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    quota = quota_of(store, clock, tokens=Rate(1_000, 1_000))
    reserved = await quota.reserve(1_000, 0.0)
    began = clock.monotonic()
    async with anyio.create_task_group() as group:
        group.start_soon(quota.reserve, 500, 0.0, lambda: 600.0)
        await clock.sleep(5)
        reserved.settle(100, 0.0)
    assert clock.monotonic() - began == 5


async def test_a_wait_beyond_the_patience_is_given_up_at_once(store: ExactLimitStore, clock: VirtualClock) -> None:
    quota = quota_of(store, clock, tokens=Rate(1_000, 100))
    await quota.reserve(1_000, 0.0)
    began = clock.monotonic()
    failure = await refused(quota.reserve(300, 0.0, lambda: 29.0))
    assert (failure.code, failure.details["field"]) == (Code.ORCHESTRATION_BUDGET_EXCEEDED, "tenant-tokens")
    assert clock.monotonic() == began


async def test_a_cancelled_wait_takes_nothing(store: ExactLimitStore, clock: VirtualClock) -> None:
    quota = quota_of(store, clock, tokens=Rate(1_000, 1_000), concurrency=1)
    await quota.reserve(900, 0.0)
    slot = await quota.admit()
    async with anyio.create_task_group() as group:
        group.start_soon(quota.reserve, 500, 0.0, lambda: 600.0)
        group.start_soon(quota.wait_for_slot)
        await clock.sleep(1)
        group.cancel_scope.cancel()
    slot.release()
    assert quota.status()[0].remaining == pytest.approx(101, abs=1)
    (await quota.admit()).release()


async def test_slots_are_given_in_the_order_of_the_waits_and_not_to_newcomers(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    quota = quota_of(store, clock, concurrency=2)
    running = [await quota.admit() for _ in range(2)]
    order: list[int] = []

    async def wait(number: int) -> None:
        slot = await quota.wait_for_slot()
        order.append(number)
        await clock.sleep(3)
        slot.release()

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(wait, number)
            await clock.sleep(0.1)
        assert order == []
        for slot in running:
            slot.release()
        for _ in range(8):
            await refused(quota.admit())
            await clock.sleep(0.5)
    assert order == list(range(6))
    await quota.admit()


async def test_a_wait_for_a_slot_outlasts_a_store_that_does_not_answer(
    store: ExactLimitStore, clock: VirtualClock
) -> None:
    quota = quota_of(store, clock, concurrency=2)
    store.is_down = True
    slots: list[RunSlot] = []

    async def wait() -> None:
        slots.append(await quota.wait_for_slot())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await clock.sleep(5)
        assert slots == []
        store.is_down = False
    assert len(slots) == 1


async def test_many_callers_that_use_nothing_are_forgotten(store: ExactLimitStore, clock: VirtualClock) -> None:
    quotas = Quotas(store, clock, {"busy": AccessLimits(concurrency=1)})
    busy = quotas.of("busy")
    assert busy is not None
    await busy.admit()
    for number in range(10_001):
        quota = quotas.of("acme", f"k{number}", KEY)
        assert quota is not None
        await quota.admit()
    await quotas.settle()
    await clock.sleep(10)
    await quotas.settle()
    again = quotas.of("busy")
    assert again is not None
    await refused(again.admit())
    assert quotas.of("acme", "k10000", KEY) is not quota
