"""One run of a replica: it starts an execution or recovers it, and may be killed at a given instant.

The parts are those of the service, the database included. Only engines and tools are random, and each action of a tool
is a line in a file, which outlives the process.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

from portico.adapters.event_bus import EventBus
from portico.adapters.runners.fair_queue import QueueLimits
from portico.adapters.runners.local import LocalRunner
from portico.adapters.runners.task_pool import open_task_pool
from portico.adapters.stores.database import Database, Transaction
from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.journal.stored_journal import JournalConfig, StoredJournal, open_journal
from portico.adapters.stores.journal.writer import WriterCallbacks, WriterLimits
from portico.adapters.stores.sqlite import open_sqlite
from portico.bootstrap.service import PATTERNS
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Durability
from portico.domain.failures import Failure
from portico.domain.journal.events import STORED_EVENT_TYPES, LiveDelta, StoredEvent
from portico.domain.lifecycle import Mode
from portico.orchestration.runtime.launcher import Launcher
from portico.orchestration.runtime.recovery import Recovery
from portico.ports.journal import ExecutionHistory
from tests.support.chaos import ToolActions, chaos_harness
from tests.support.harness import Harness, chat_request, fail_on_fault
from tests.support.postgres import open_real_time_postgres
from tests.support.random_flows import acting_flow_request, acting_pattern
from tests.support.random_passes import random_reasoning, reasoning_harness
from tests.support.random_plans import random_plan_request
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

Instant: TypeAlias = Literal["before", "during", "after"]
MAX_RUN_SECONDS = 60
"""Real time after which a run that hangs is killed."""
SIZE = {"type": "object", "required": ["size"], "properties": {"size": {"enum": ["small", "large"]}}}
ALL_PATTERNS = PATTERNS | {Mode.FLOW: acting_pattern(ToolActions())}


@dataclass(frozen=True, slots=True)
class KillPoint:
    """The commit or effect of a run, counted from 1, and the instant around it at which the process is killed."""

    kind: Literal["commit", "effect"]
    number: int
    instant: Instant


@dataclass(frozen=True, slots=True)
class ReplicaRun:
    """The work of a replica: it starts the execution `name`, or recovers executions without an owner.

    `work` names its request and its engines. `database` is a file or a URL; `folder` contains the actions of tools and
    the published events.
    """

    database: str
    folder: str
    name: str
    seed: int
    work: str
    durability: Durability
    starts_execution: bool
    kill_point: KillPoint | None = None

    def as_line(self) -> str:
        """Return the run as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "ReplicaRun":
        """Parse such a line."""
        values: dict[str, Any] = json.loads(line)
        point = values.pop("kill_point")
        return cls(**values, kill_point=None if point is None else KillPoint(**point))


@dataclass(frozen=True, slots=True)
class InstantCounts:
    """Number of commits and effects of a run."""

    commits: int
    effects: int


def open_database(database: str, clock: VirtualClock) -> AbstractAsyncContextManager[Database]:
    """Open the database of that URL or in that file, with its content."""
    return open_real_time_postgres(database) if database.startswith("postgres") else open_sqlite(Path(database))


def recorded_actions(folder: Path) -> list[tuple[str, str]]:
    """Return the actions of tools that were started."""
    file = folder / "actions"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(line.split()[0], line.split()[1]) for line in lines if line]


def repeated_writes(folder: Path) -> list[tuple[str, str]]:
    """Return the unsafe actions that were started more than once."""
    return [action for action, times in Counter(recorded_actions(folder)).items() if action[0] == "write" and times > 1]


def published(folder: Path) -> list[tuple[str, int, str]]:
    """Return execution, number and type of each stored event that subscribers could have seen, in order."""
    file = folder / "published"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(execution_id, int(number), kind) for execution_id, number, kind in lines]


def run_replica(run: ReplicaRun) -> None:
    """Execute the run in this process, which must not have an event loop yet."""
    signal.alarm(MAX_RUN_SECONDS)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        counts = runner.run(_Replica(run).run())
    (Path(run.folder) / "counts").write_text(json.dumps(asdict(counts)))


def read_counts(folder: Path) -> InstantCounts:
    """Return the counts of the last run that was not killed."""
    return InstantCounts(**json.loads((folder / "counts").read_text()))


class _KillCounter:
    """Counter of commits or effects that knows at which of them the process is killed."""

    def __init__(self, kind: str, point: KillPoint | None) -> None:
        self.count = 0
        self._point = point if point is not None and point.kind == kind else None

    def next(self) -> Instant | None:
        """Count one more and return the instant of the kill if this is the one."""
        self.count += 1
        return self._point.instant if self._point is not None and self._point.number == self.count else None


def _kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _KillingDatabase:
    """A database that kills its process before a transaction, before its COMMIT, or right after it."""

    def __init__(self, database: Database, counter: _KillCounter) -> None:
        self._database = database
        self._counter = counter

    async def append(self, work: Callable[[], Transaction[Any]]) -> Any:
        instant = self._begin()
        result = await self._database.append(_killed_before_commit(work) if instant == "during" else work)
        if instant == "after":
            _kill_this_process()
        return result

    async def write(self, work: Callable[[], Transaction[Any]], *, idempotent: bool = False) -> Any:
        instant = self._begin()
        work = _killed_before_commit(work) if instant == "during" else work
        result = await self._database.write(work, idempotent=idempotent)
        if instant == "after":
            _kill_this_process()
        return result

    async def maintain(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._database.maintain(work)

    async def read(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._database.read(work)

    def _begin(self) -> Instant | None:
        instant = self._counter.next()
        if instant == "before":
            _kill_this_process()
        return instant


def _killed_before_commit(work: Callable[[], Transaction[Any]]) -> Callable[[], Transaction[Any]]:
    def killed() -> Transaction[Any]:
        yield from work()
        _kill_this_process()

    return killed


class _ActionLog(list[tuple[str, str]]):
    """A list that writes each action to a file before it returns; an interrupted action is written in part."""

    def __init__(self, folder: Path, counter: _KillCounter) -> None:
        super().__init__()
        self._file = os.open(folder / "actions", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._counter = counter

    def append(self, action: tuple[str, str]) -> None:
        instant = self._counter.next()
        if instant == "before":
            _kill_this_process()
        os.write(self._file, f"\n{action[0]} {action[1]} ".encode())
        if instant == "during":
            _kill_this_process()
        os.write(self._file, b"done\n")
        if instant == "after":
            _kill_this_process()


class _EventFile:
    """A sink that writes published events to a file, which outlives the process."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "published", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.wanted = STORED_EVENT_TYPES

    def publish(self, execution_id: str, items: list[StoredEvent | LiveDelta]) -> None:
        for item in items:
            if isinstance(item, StoredEvent):
                os.write(self._file, f"{execution_id} {item.sequence_number} {item.event.type}\n".encode())


class _Replica:
    """A replica that executes one run."""

    def __init__(self, run: ReplicaRun) -> None:
        self._run = run
        self._folder = Path(run.folder)
        self._clock = VirtualClock()
        self._commits = _KillCounter("commit", run.kill_point)
        self._effects = _KillCounter("effect", run.kill_point)
        self._actions = ToolActions()
        self._actions.performed = _ActionLog(self._folder, self._effects)

    async def run(self) -> InstantCounts:
        """Start or recover executions, and return when all of them have ended or are suspended."""
        bus = EventBus([_EventFile(self._folder)], capacity=10_000, on_fault=fail_on_fault, on_drop=lambda: None)

        def fail(execution_id: str, failure: Failure) -> None:
            launcher.local.fail_unsaved(execution_id, failure)

        async with (
            open_database(self._run.database, self._clock) as database,
            open_journal(
                _KillingDatabase(database, self._commits),
                bus,
                self._clock,
                self._journal_config(),
                WriterCallbacks(fail, lambda: None, fail_on_fault),
            ) as journal,
            open_task_pool(max_in_flight=100, drain_seconds=10_000, on_bug=_unexpected) as pool,
        ):
            harness = self._make_harness(journal, bus)
            runner = LocalRunner(
                pool, QueueLimits(max_waiting=100, max_running=100, max_running_per_tenant=100), self._clock
            )
            patterns = ALL_PATTERNS | {Mode.FLOW: acting_pattern(self._actions)}
            launcher = Launcher(harness.environment, runner, patterns)
            store = DatabaseExecutionStore(_KillingDatabase(database, self._commits), self._clock, journal.owner, bus)
            if self._run.starts_execution:
                await self._start(harness, launcher)
            else:
                await self._recover(Recovery(store, launcher, self._clock), runner)
            await runner.drain(lambda: None)
        return InstantCounts(self._commits.count, self._effects.count)

    async def _recover(self, recovery: Recovery, runner: LocalRunner) -> None:
        async with runner.serving(recovery.run_ticket):
            await recovery.recover(alive=(), gone=None)

    def _journal_config(self) -> JournalConfig:
        """Configure a journal that commits each item on its own, so that there are instants around each."""
        return JournalConfig(f"replica-{os.getpid()}", 100, WriterLimits(group_items=1))

    def _make_harness(self, journal: StoredJournal, bus: EventBus) -> Harness:
        seed = self._run.seed if self._run.starts_execution else self._run.seed + 1_000
        work = WORKS[self._run.work]
        harness = work.harness(self._clock, seed, self._actions, **{"tool_rounds": 3} | work.bounds)
        harness.environment = replace(harness.environment, journal=journal, event_feed=bus)
        return harness

    async def _start(self, harness: Harness, launcher: Launcher) -> None:
        request = WORKS[self._run.work].request(Random(self._run.seed))
        fingerprint = ALL_PATTERNS[request.mode].fingerprint
        header = replace(
            harness.execution(request).header,
            execution_id=f"e-{self._run.name}",
            request_id=self._run.name,
            pattern_version=ALL_PATTERNS[request.mode].version,
            durability=self._run.durability,
            flow_fingerprint=None if fingerprint is None else fingerprint(request),
        )
        await harness.environment.journal.open(header)
        launcher.start(ExecutionHistory(header, {}, ()))


def _unexpected(_: str, bug: Exception) -> None:
    raise bug


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of execution: its request, its engines and its limits."""

    request: Callable[[Random], SystemRequest]
    harness: Callable[..., Harness] = chaos_harness
    bounds: Mapping[str, Any] = field(default_factory=dict)


def _salvaged_passes(dice: Random) -> SystemRequest:
    return random_reasoning(dice).model_copy(update={"on_limit": "salvage"})


WORKS: Mapping[str, Work] = {
    "chat": Work(lambda _: chat_request()),
    "structured": Work(lambda _: chat_request(mode=Mode.STRUCTURED, output={"schema": SIZE})),
    "redundant": Work(lambda _: chat_request(mode=Mode.REDUNDANT, output={"schema": SIZE}, redundancy={"n": 3})),
    "plan": Work(random_plan_request),
    "flow": Work(acting_flow_request),
    "passes": Work(random_reasoning, reasoning_harness),
    "salvaged chat": Work(lambda _: chat_request(on_limit="salvage"), bounds={"tool_rounds": 1, "timeout": 7.0}),
    "salvaged passes": Work(_salvaged_passes, reasoning_harness, {"timeout": 7.0}),
}
