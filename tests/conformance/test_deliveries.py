"""Conformance of deliveries on both databases: who gets a place, two replicas, what one dead endpoint costs others."""

from collections import Counter
from typing import Any

import anyio
from sqlalchemy import select

from portico.adapters.runners.timers import TimerReports, TimerRunner
from portico.adapters.stores.database import Statement, execute, execute_each
from portico.adapters.stores.outbox import DatabaseOutbox, delivery_row, insert_deliveries, purge_deliveries
from portico.adapters.stores.schema import webhook_deliveries
from portico.adapters.stores.timers import DatabaseTimerQueue, DatabaseTimers
from portico.domain.ids import TenantId
from portico.domain.time_zones import DAY_S
from portico.domain.webhooks import DeliveryAttempt, WebhookEndpoint
from portico.orchestration.announcements import Announcements
from portico.orchestration.deliveries import AT_ONCE, Deliveries, DeliveryParts, EndpointCatalogue
from portico.ports.outbox import Delivery, DueDelivery
from portico.ports.timers import TimerJob, TimerKind
from tests.support.entropy import SeededEntropy
from tests.support.stores import StoreReplica
from tests.support.virtual_time import VirtualClock

_STATES = Statement(lambda _: select(webhook_deliveries.c.timer_id, webhook_deliveries.c.state))


def endpoint(name: str) -> WebhookEndpoint:
    return WebhookEndpoint(name, f"https://{name}.example", None, is_from_file=True)


class Receivers:
    """Receivers that take a delivery a moment, or that hang until they are given up; `most` were at one at once."""

    def __init__(self, clock: VirtualClock, seconds: dict[str, float]) -> None:
        self.delivered: list[str] = []
        self.at: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._clock = clock
        self._seconds = seconds

    async def send(self, to: WebhookEndpoint, due: DueDelivery, secrets: Any) -> DeliveryAttempt:
        assert secrets
        for place in (to.name, due.tenant, "all"):
            self.at[place] += 1
            self.most[place] = max(self.most[place], self.at[place])
        await self._clock.sleep(self._seconds[to.name])
        for place in (to.name, due.tenant, "all"):
            self.at[place] -= 1
        if to.name.startswith("dead"):
            return DeliveryAttempt(error="Timed out while waiting for an answer.")
        self.delivered.append(due.delivery_id)
        return DeliveryAttempt(204)


class Replica:
    """One replica that delivers; `run` is its task."""

    def __init__(self, here: StoreReplica, clock: VirtualClock, receivers: Receivers, names: list[str]) -> None:
        outbox, announcements = DatabaseOutbox(here.database, here.name), Announcements(map(endpoint, names), None)
        secrets = {name: lambda: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLSwx" for name in names}
        self.catalogue = EndpointCatalogue(outbox, announcements, None, secrets, allow_private=False)
        self.faults: list[Exception] = []
        queue = DatabaseTimerQueue(here.database, TimerKind.DELIVERY, here.name)
        sender: Any = receivers
        entropy = SeededEntropy(1)
        parts = DeliveryParts(outbox, queue, sender, self.catalogue, clock, entropy, (300.0,), lambda _: None)
        self.deliveries = Deliveries(parts)
        self.timers = TimerRunner(
            DatabaseTimers(here.database, here.name),
            clock,
            alive=lambda: {"replica", "other"},
            is_leaving=lambda: False,
            polls=True,
            reports=TimerReports(self.faults.append, self.faults.append),
        )
        self.timers.add(TimerJob(TimerKind.DELIVERY, self.deliveries, self.deliveries.run, AT_ONCE))

    async def run(self) -> None:
        await self.catalogue.refresh()
        await self.timers.run()


async def add(here: StoreReplica, counts: dict[tuple[str, str], int], at: float = 0.0) -> None:
    """Add so many deliveries of each tenant to each endpoint, all due."""
    rows = [
        delivery_row(
            Delivery(f"{tenant}/{name}/{number}", TenantId(tenant), endpoint(name), "webhook.test", at, b"{}"),
            due_at=at,
        )
        for (tenant, name), count in counts.items()
        for number in range(count)
    ]
    await here.database.write(lambda: insert_deliveries(rows))


async def seconds_to_deliver(here: StoreReplica, clock: VirtualClock, receivers: Receivers, count: int) -> float:
    """Return how long one replica takes until so many deliveries are delivered."""
    began, replica = clock.now(), Replica(here, clock, receivers, ["dead", "live"])
    async with anyio.create_task_group() as group:
        group.start_soon(replica.run)
        while len(receivers.delivered) < count:
            await clock.sleep(0.05)
        group.cancel_scope.cancel()
    assert replica.faults == []
    return clock.now() - began


async def test_places_are_sixty_four_of_them_eight_for_a_tenant_and_four_for_an_endpoint(
    here: StoreReplica, clock: VirtualClock
) -> None:
    names = [f"e{number}" for number in range(3)]
    receivers = Receivers(clock, dict.fromkeys(names, 1.0))
    crowd = {(f"t{tenant:02}", f"e{tenant % 3}"): 5 for tenant in range(40)}
    await add(here, {("greedy", name): 20 for name in names} | crowd)
    replica = Replica(here, clock, receivers, names)
    async with anyio.create_task_group() as group:
        group.start_soon(replica.run)
        while len(receivers.delivered) < 260:
            await clock.sleep(1)
        group.cancel_scope.cancel()
    assert (receivers.most["greedy"], {receivers.most[name] for name in names}) == (8, {4})
    assert receivers.most["all"] <= AT_ONCE


async def test_no_more_than_sixty_four_are_sent_at_once(here: StoreReplica, clock: VirtualClock) -> None:
    names = [f"e{number}" for number in range(20)]
    receivers = Receivers(clock, dict.fromkeys(names, 1.0))
    await add(here, {(f"t{number}", name): 5 for number, name in enumerate(names)})
    replica = Replica(here, clock, receivers, names)
    async with anyio.create_task_group() as group:
        group.start_soon(replica.run)
        while len(receivers.delivered) < 100:
            await clock.sleep(1)
        group.cancel_scope.cancel()
    assert receivers.most["all"] == AT_ONCE


async def test_a_thousand_that_wait_for_a_dead_endpoint_slow_another_by_less_than_a_tenth(
    here: StoreReplica, clock: VirtualClock
) -> None:
    seconds = {"live": 0.5, "dead": 20.0}
    await add(here, {("alone", "live"): 40})
    alone = await seconds_to_deliver(here, clock, Receivers(clock, seconds), 40)
    await add(here, {("beside", "dead"): 1_000, ("beside", "live"): 40})
    beside = await seconds_to_deliver(here, clock, Receivers(clock, seconds), 40)
    assert alone >= 5.0
    assert beside < 1.1 * alone


async def test_two_replicas_deliver_each_once_and_one_takes_over_what_the_dead_one_claimed(
    here: StoreReplica, there: StoreReplica, clock: VirtualClock
) -> None:
    await add(here, {("red", "live"): 6, ("blue", "live"): 6})
    gone = Replica(there, clock, Receivers(clock, {"live": 1.0}), ["live"])
    lost = await gone.deliveries.claim(0.0, 3)
    assert len(lost) == 3
    receivers = Receivers(clock, {"live": 0.5})
    one, two = (Replica(each, clock, receivers, ["live"]) for each in (here, there))
    await DatabaseTimers(here.database, here.name).release({here.name}, ())
    async with anyio.create_task_group() as group:
        group.start_soon(one.run)
        group.start_soon(two.run)
        while len(receivers.delivered) < 12:
            await clock.sleep(1)
        await clock.sleep(30)
        group.cancel_scope.cancel()
    assert Counter(receivers.delivered) == Counter(
        f"{tenant}/live/{number}" for tenant in ("red", "blue") for number in range(6)
    )
    rows = await here.database.read(lambda: execute(_STATES, {}))
    assert {state for _, state in rows} == {"delivered"}


async def test_delivered_ones_stay_a_week_and_dead_ones_ninety_days(here: StoreReplica) -> None:
    await add(here, {("red", "live"): 4})
    days = {"red/live/0": ("delivered", 8), "red/live/1": ("delivered", 6), "red/live/2": ("dead", 91)}
    now = 100 * DAY_S
    for name, (state, age) in (days | {"red/live/3": ("dead", 89)}).items():
        end = Statement(
            lambda _, name=name, state=state, age=age: (
                webhook_deliveries.update()
                .where(webhook_deliveries.c.timer_id == name)
                .values(state=state, due_at=None, ended_at=now - age * DAY_S)
            )
        )
        await here.database.write(lambda end=end: execute_each(end, [{}]))
    assert await purge_deliveries(here.database, now - 7 * DAY_S, now - 90 * DAY_S, limit=10) == 2
    rows = await here.database.read(lambda: execute(_STATES, {}))
    assert {name for name, _ in rows} == {"red/live/1", "red/live/3"}
