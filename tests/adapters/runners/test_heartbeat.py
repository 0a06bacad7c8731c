"""The pulse of a replica: whom it takes for dead, and when it looks."""

from dataclasses import dataclass, field

import pytest

from app.adapters.runners.heartbeat import SWEEP_INTERVAL_S, Heartbeat
from app.domain.failures import Code, StorageFailure
from tests.support.virtual_time import VirtualClock

UNAVAILABLE = StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer")


@dataclass
class Others:
    """A database of replicas that live as a test says."""

    alive: frozenset[str] = frozenset({"me"})
    left: bool = False

    async def heartbeat(self) -> frozenset[str]:
        return self.alive

    async def leave(self) -> None:
        self.left = True


@dataclass
class Sweeps:
    """What was swept, unless the database does not answer."""

    seen: list[tuple[frozenset[str], frozenset[str]]] = field(default_factory=list)
    fails: bool = False

    async def __call__(self, alive: frozenset[str], gone: frozenset[str]) -> None:
        if self.fails:
            raise UNAVAILABLE
        self.seen.append((alive, gone))


async def test_it_is_alone_until_it_sees_another(clock: VirtualClock) -> None:
    others = Others()
    pulse = Heartbeat(others, clock, "me")
    assert pulse.is_alone
    others.alive = frozenset({"me", "you"})
    await pulse.beat(Sweeps())
    assert not pulse.is_alone


async def test_whoever_does_not_live_any_more_is_swept_up_at_once(clock: VirtualClock) -> None:
    others, sweeps = Others(frozenset({"me", "you"})), Sweeps()
    pulse = Heartbeat(others, clock, "me")
    await pulse.beat(sweeps)
    assert sweeps.seen == []
    others.alive = frozenset({"me"})
    for _ in range(2):
        await pulse.beat(sweeps)
    assert sweeps.seen == [(frozenset({"me"}), frozenset({"you"}))]


async def test_it_looks_from_time_to_time_anyway(clock: VirtualClock) -> None:
    sweeps = Sweeps()
    pulse = Heartbeat(Others(), clock, "me")
    for _ in range(3):
        await pulse.beat(sweeps)
        await clock.sleep(SWEEP_INTERVAL_S / 2)
    await pulse.beat(sweeps)
    assert sweeps.seen == [(frozenset({"me"}), frozenset())]


async def test_the_dead_are_not_forgotten_when_a_sweep_fails(clock: VirtualClock) -> None:
    others, sweeps = Others(frozenset({"me", "you"})), Sweeps()
    pulse = Heartbeat(others, clock, "me")
    await pulse.beat(sweeps)
    others.alive, sweeps.fails = frozenset({"me"}), True
    with pytest.raises(StorageFailure):
        await pulse.beat(sweeps)
    sweeps.fails = False
    await pulse.beat(sweeps)
    assert sweeps.seen == [(frozenset({"me"}), frozenset({"you"}))]


async def test_at_the_end_it_says_so(clock: VirtualClock) -> None:
    others = Others()
    await Heartbeat(others, clock, "me").leave()
    assert others.left
