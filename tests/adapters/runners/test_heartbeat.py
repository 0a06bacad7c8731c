"""Heartbeats: dead replicas and sweeps."""

from dataclasses import dataclass, field

import pytest

from portico.adapters.runners.heartbeat import SWEEP_INTERVAL_S, Heartbeat
from portico.domain.failures import Code, StorageFailure
from tests.support.virtual_time import VirtualClock

UNAVAILABLE = StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer")


@dataclass
class Others:
    """A registry of replicas that the test sets."""

    alive: frozenset[str] = frozenset({"me"})
    left: bool = False
    has_timers: bool = False

    async def heartbeat(self) -> frozenset[str]:
        return self.alive

    async def leave(self) -> None:
        self.left = True


@dataclass
class Sweeps:
    """Recorded sweeps, which can be made to fail."""

    seen: list[tuple[frozenset[str], frozenset[str]]] = field(default_factory=list)
    fails: bool = False

    async def __call__(self, alive: frozenset[str], gone: frozenset[str]) -> None:
        if self.fails:
            raise UNAVAILABLE
        self.seen.append((alive, gone))


async def test_a_replica_is_alone_until_it_finds_another(clock: VirtualClock) -> None:
    others = Others()
    pulse = Heartbeat(others, clock, "me")
    assert pulse.is_alone
    others.alive = frozenset({"me", "you"})
    await pulse.beat(Sweeps())
    assert not pulse.is_alone


async def test_a_dead_replica_is_swept_at_once(clock: VirtualClock) -> None:
    others, sweeps = Others(frozenset({"me", "you"})), Sweeps()
    pulse = Heartbeat(others, clock, "me")
    await pulse.beat(sweeps)
    assert sweeps.seen == []
    others.alive = frozenset({"me"})
    for _ in range(2):
        await pulse.beat(sweeps)
    assert sweeps.seen == [(frozenset({"me"}), frozenset({"you"}))]


async def test_sweeps_run_periodically(clock: VirtualClock) -> None:
    sweeps = Sweeps()
    pulse = Heartbeat(Others(), clock, "me")
    for _ in range(3):
        await pulse.beat(sweeps)
        await clock.sleep(SWEEP_INTERVAL_S / 2)
    await pulse.beat(sweeps)
    assert sweeps.seen == [(frozenset({"me"}), frozenset())]


async def test_dead_replicas_are_swept_again_after_a_failed_sweep(clock: VirtualClock) -> None:
    others, sweeps = Others(frozenset({"me", "you"})), Sweeps()
    pulse = Heartbeat(others, clock, "me")
    await pulse.beat(sweeps)
    others.alive, sweeps.fails = frozenset({"me"}), True
    with pytest.raises(StorageFailure):
        await pulse.beat(sweeps)
    sweeps.fails = False
    await pulse.beat(sweeps)
    assert sweeps.seen == [(frozenset({"me"}), frozenset({"you"}))]


async def test_leaving_removes_the_replica(clock: VirtualClock) -> None:
    others = Others()
    await Heartbeat(others, clock, "me").leave()
    assert others.left
