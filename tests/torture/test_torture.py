"""A replica is killed around everything it commits and everything it does; another goes on from the database."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from signal import SIGKILL
from typing import IO, get_args

import pytest

from app.adapters.stores.executions.store import DatabaseExecutionStore
from app.domain.contract.response import Durability
from app.domain.lifecycle import TERMINAL, Mode, State
from app.ports.journal import ExecutionHistory
from app.ports.storage import StoredExecution
from tests.support.harness import EventLog, replay_offline
from tests.support.recovery import is_complete_log, open_starts
from tests.support.virtual_time import VirtualClock
from tests.torture.replica_run import (
    ALL_PATTERNS,
    Instant,
    InstantCounts,
    KillPoint,
    ReplicaRun,
    open_database,
    published,
    read_counts,
    recorded_acts,
    repeated_writes,
)

INSTANTS: tuple[Instant, ...] = get_args(Instant)
LOT: tuple[tuple[Mode, Durability, int], ...] = (
    (Mode.CHAT, "journaled", 9),
    (Mode.CHAT, "memory", 6),
    (Mode.STRUCTURED, "journaled", 2),
    (Mode.REDUNDANT, "journaled", 3),
    (Mode.PLAN, "journaled", 5),
)
"""What is run, how it is kept, and what its dice are random_plan_request with."""
ALL_LOTS = tuple((mode, durability, seed) for seed in range(20, 26) for mode, durability, _ in LOT)


class ReplicaProcess:
    """Lives lives, one after the other, in processes of their own."""

    def __init__(self, commands: IO[str], ends: IO[str]) -> None:
        self._commands = commands
        self._ends = ends

    def live(self, life: ReplicaRun) -> int:
        """How the process ended: zero, or less the signal that killed it."""
        self._commands.write(life.as_line())
        self._commands.flush()
        return int(self._ends.readline())


@contextmanager
def process() -> Iterator[ReplicaProcess]:
    """The process that forks for each life."""
    command = [sys.executable, "-m", "tests.torture"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        yield ReplicaProcess(started.stdin, started.stdout)
        started.stdin.close()
        assert started.wait(timeout=10) == 0


@pytest.fixture(scope="module")
def lives() -> Iterator[ReplicaProcess]:
    with process() as started:
        yield started


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What there is of an execution after all that happened to it."""

    stored: StoredExecution
    record: ExecutionHistory


async def left(life: ReplicaRun, clock: VirtualClock) -> StoredResult | None:
    """What the store has of it; None when it never was durable."""
    async with open_database(life.database, clock) as database:
        store = DatabaseExecutionStore(database, clock, "reader", EventLog())
        stored = await store.find("local", life.name)
        record = None if stored is None else await store.load("local", stored.execution_id)
    return None if stored is None or record is None else StoredResult(stored, record)


def check(life: ReplicaRun, found: StoredResult | None) -> None:
    """It ended or waits for a person, nothing unsafe was done twice, and no event is missing, doubled or changed."""
    folder = Path(life.folder)
    assert repeated_writes(folder) == []
    if found is None:
        assert life.durability == "memory" or died_at_the_opening(life)
        assert "write" not in {act for act, _ in recorded_acts(folder)}
        return
    record, state = found.record, found.stored.status.state
    assert state in {*TERMINAL, State.SUSPENDED}
    events = [(item.sequence_number, item.event.type) for item in record.events]
    assert [number for number, _ in events] == list(range(1, len(events) + 1))
    seen = [(number, kind) for execution_id, number, kind in published(folder) if execution_id == f"e-{life.name}"]
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(events)
    pattern = ALL_PATTERNS[life.mode]
    assert replay_offline(record, pattern.run, pattern.plan) > 0
    if state is not State.SUSPENDED:
        assert is_complete_log(record)
        assert open_starts(record.events) == []


def died_at_the_opening(life: ReplicaRun) -> bool:
    """Without its first commit there is no execution."""
    return life.death is not None and (life.death.kind, life.death.number) == ("commit", 1)


def deaths(counted: InstantCounts, *, every_instant: bool) -> Sequence[KillPoint]:
    """Around every commit and every effect: at all instants, or at one of them in turn."""
    points = [("commit", number) for number in range(1, counted.commits + 1)]
    points += [("effect", number) for number in range(1, counted.effects + 1)]
    turns = cycle(INSTANTS)
    return [
        KillPoint("commit" if at == "commit" else "effect", number, instant)
        for at, number in points
        for instant in (INSTANTS if every_instant else [next(turns)])
    ]


async def torture(lives: ReplicaProcess, life: ReplicaRun, clock: VirtualClock, *, every_instant: bool) -> int:
    """Lives it once to its end, then dies around everything in it. How often it died.

    Where a database takes its time, branches may run in another order and an instant not come.
    """
    assert lives.live(life) == 0
    check(life, await left(life, clock))
    died, all_deaths = 0, deaths(read_counts(Path(life.folder)), every_instant=every_instant)
    for number, death in enumerate(all_deaths):
        folder = Path(life.folder) / f"{number}"
        folder.mkdir()
        dying = replace(life, name=f"{life.name}-{number}", folder=str(folder), death=death)
        ended = [lives.live(dying)]
        again = replace(dying, begins=False, death=KillPoint("commit", 1 + number % 4, INSTANTS[number % 3]))
        ended += [lives.live(again), lives.live(replace(again, death=None))]
        assert set(ended) <= {0, -SIGKILL}
        assert ended[-1] == 0
        died += ended[0] == -SIGKILL
        check(dying, await left(dying, clock))
    assert died > 0.8 * len(all_deaths)
    return died


def first(database: str, folder: Path, lot: tuple[Mode, Durability, int]) -> ReplicaRun:
    """The life that counts the instants there are."""
    mode, durability, seed = lot
    folder.mkdir(exist_ok=True)
    return ReplicaRun(database, str(folder), f"{mode}-{durability}-{seed}", seed, mode, durability, begins=True)


@pytest.mark.parametrize("lot", LOT, ids=str)
async def test_b5_94_a_kill_around_any_commit_or_effect_loses_nothing_and_repeats_nothing_unsafe(
    lives: ReplicaProcess, clock: VirtualClock, tmp_path: Path, lot: tuple[Mode, Durability, int]
) -> None:
    life = first(str(tmp_path / "portico.db"), tmp_path, lot)
    assert await torture(lives, life, clock, every_instant=False) > 2


@pytest.mark.torture
@pytest.mark.parametrize("lot", ALL_LOTS, ids=str)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_every_kill_at_every_instant_on_both_databases(
    lives: ReplicaProcess,
    clock: VirtualClock,
    tmp_path: Path,
    lot: tuple[Mode, Durability, int],
    kind: str,
    postgres_url: str,
) -> None:
    database = postgres_url if kind == "postgres" else str(tmp_path / "portico.db")
    assert await torture(lives, first(database, tmp_path, lot), clock, every_instant=True) > 2
