"""A replica is killed around each of its commits and effects; another one continues from the database."""

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

from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.domain.access.principal import LOCAL
from portico.domain.contract.response import Durability
from portico.domain.lifecycle import TERMINAL, State
from portico.ports.journal import ExecutionHistory
from portico.ports.storage import StoredExecution
from tests.support.harness import EventLog, replay_offline
from tests.support.recovery import is_complete_log, open_starts
from tests.support.seeds import new_seeds
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
    recorded_actions,
    repeated_writes,
)

EVERY_FLOW = (0, 1, 3, 7, 12, 13, 14)
"""Seeds that choose each of the flows once."""
INSTANTS: tuple[Instant, ...] = get_args(Instant)
CASES: tuple[tuple[str, Durability, int], ...] = (
    ("chat", "journaled", 9),
    ("chat", "memory", 6),
    ("structured", "journaled", 2),
    ("redundant", "journaled", 3),
    ("plan", "journaled", 5),
    ("flow", "journaled", 12),
    ("flow", "journaled", 13),
    ("passes", "journaled", 10),
    ("salvaged chat", "journaled", 22),
)
"""Work, durability and seed of the executions in every run of the tests."""
ALL_CASES = tuple(
    dict.fromkeys(
        [
            *((work, durability, seed) for seed in (*range(20, 26), *new_seeds()) for work, durability, _ in CASES),
            *(("passes", "journaled", seed) for seed in (4, 31)),
            *(("salvaged passes", "journaled", seed) for seed in (18, 22)),
            *(("flow", durability, seed) for durability in get_args(Durability) for seed in EVERY_FLOW),
        ]
    )
)


class ReplicaRunner:
    """A child process that executes replica runs one after the other, each in a process of its own."""

    def __init__(self, commands: IO[str], exit_codes: IO[str]) -> None:
        self._commands = commands
        self._exit_codes = exit_codes

    def execute(self, run: ReplicaRun) -> int:
        """Execute a run and return its exit code; the negative number of the signal if it was killed."""
        self._commands.write(run.as_line())
        self._commands.flush()
        return int(self._exit_codes.readline())


@contextmanager
def open_process() -> Iterator[ReplicaRunner]:
    """Start the process that forks for each run."""
    command = [sys.executable, "-m", "tests.torture"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        yield ReplicaRunner(started.stdin, started.stdout)
        started.stdin.close()
        assert started.wait(timeout=10) == 0


@pytest.fixture(scope="module")
def replica() -> Iterator[ReplicaRunner]:
    with open_process() as started:
        yield started


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The row and the history of an execution after its last run."""

    stored: StoredExecution
    record: ExecutionHistory


async def stored_result(run: ReplicaRun, clock: VirtualClock) -> StoredResult | None:
    """Return the stored result of the execution; None if it never was durable."""
    async with open_database(run.database, clock) as database:
        store = DatabaseExecutionStore(database, clock, "reader", EventLog())
        stored = await store.find(LOCAL.own, run.name)
        record = None if stored is None else await store.load("local", stored.execution_id)
    return None if stored is None or record is None else StoredResult(stored, record)


def check(run: ReplicaRun, found: StoredResult | None) -> None:
    """Check that it ended or is suspended, ran nothing unsafe twice, and lost, repeated or changed no event."""
    folder = Path(run.folder)
    assert repeated_writes(folder) == []
    if found is None:
        assert run.durability == "memory" or was_killed_at_first_commit(run)
        assert "write" not in {action for action, _ in recorded_actions(folder)}
        return
    record, state = found.record, found.stored.status.state
    assert state in {*TERMINAL, State.SUSPENDED}
    events = [(item.sequence_number, item.event.type) for item in record.events]
    assert [number for number, _ in events] == list(range(1, len(events) + 1))
    own = [(number, kind) for execution_id, number, kind in published(folder) if execution_id == f"e-{run.name}"]
    assert len(own) == len(set(own))
    assert set(own) <= set(events)
    pattern = ALL_PATTERNS[record.header.mode]
    assert replay_offline(record, pattern.run, pattern.plan) > 0
    if state is not State.SUSPENDED:
        assert is_complete_log(record)
        assert open_starts(record.events) == []


def was_killed_at_first_commit(run: ReplicaRun) -> bool:
    """Tell if there may be no execution, because its first commit is missing."""
    return run.kill_point is not None and (run.kill_point.kind, run.kill_point.number) == ("commit", 1)


def kill_points(counted: InstantCounts, *, every_instant: bool) -> Sequence[KillPoint]:
    """Return kill points around each commit and effect: all instants, or one of them in turn."""
    points = [("commit", number) for number in range(1, counted.commits + 1)]
    points += [("effect", number) for number in range(1, counted.effects + 1)]
    turns = cycle(INSTANTS)
    return [
        KillPoint("commit" if at == "commit" else "effect", number, instant)
        for at, number in points
        for instant in (INSTANTS if every_instant else [next(turns)])
    ]


async def torture(replica: ReplicaRunner, run: ReplicaRun, clock: VirtualClock, *, every_instant: bool) -> int:
    """Execute a run to its end, then kill it at each kill point and recover it. Return the number of kills.

    A slow database may run branches in another order, so that some kill points do not occur.
    """
    assert replica.execute(run) == 0
    check(run, await stored_result(run, clock))
    kills, points = 0, kill_points(read_counts(Path(run.folder)), every_instant=every_instant)
    for number, point in enumerate(points):
        folder = Path(run.folder) / f"{number}"
        folder.mkdir()
        first = replace(run, name=f"{run.name}-{number}", folder=str(folder), kill_point=point)
        second = replace(
            first, starts_execution=False, kill_point=KillPoint("commit", 1 + number % 4, INSTANTS[number % 3])
        )
        exit_codes = [replica.execute(each) for each in (first, second, replace(second, kill_point=None))]
        assert set(exit_codes) <= {0, -SIGKILL}
        assert exit_codes[-1] == 0
        kills += exit_codes[0] == -SIGKILL
        check(first, await stored_result(first, clock))
    assert kills > 0.8 * len(points)
    return kills


def first_run(database: str, folder: Path, case: tuple[str, Durability, int]) -> ReplicaRun:
    """Return the run that is not killed and counts the instants."""
    work, durability, seed = case
    return ReplicaRun(
        database,
        str(folder),
        f"{work}-{durability}-{seed}".replace(" ", "-"),
        seed,
        work,
        durability,
        starts_execution=True,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_kill_around_any_commit_or_effect_loses_and_repeats_nothing(
    replica: ReplicaRunner, clock: VirtualClock, tmp_path: Path, case: tuple[str, Durability, int]
) -> None:
    run = first_run(str(tmp_path / "portico.db"), tmp_path, case)
    assert await torture(replica, run, clock, every_instant=False) > 2


@pytest.mark.torture
@pytest.mark.parametrize("case", ALL_CASES, ids=str)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_kills_at_every_instant_on_both_databases(
    replica: ReplicaRunner,
    clock: VirtualClock,
    tmp_path: Path,
    case: tuple[str, Durability, int],
    kind: str,
    postgres_url: str,
) -> None:
    database = postgres_url if kind == "postgres" else str(tmp_path / "portico.db")
    assert await torture(replica, first_run(database, tmp_path, case), clock, every_instant=True) > 2
