"""One life of a replica: it runs an execution or goes on with it, and may be appointed an instant to die at.

Everything is what the service is made of, the database too; only the engines and tools are thrown by dice, and what a
tool does to the world is a line in a file, which outlives the process as the world does.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

from app.adapters.event_bus import EventBus
from app.adapters.runners.fair_queue import QueueLimits
from app.adapters.runners.local import LocalRunner
from app.adapters.runners.task_pool import open_task_pool
from app.adapters.stores.database import Database, Transaction
from app.adapters.stores.executions.store import DatabaseExecutionStore
from app.adapters.stores.journal.stored_journal import JournalConfig, StoredJournal, open_journal
from app.adapters.stores.journal.writer import WriterCallbacks, WriterLimits
from app.adapters.stores.sqlite import open_sqlite
from app.bootstrap.service import PATTERNS
from app.domain.contract.request import SystemRequest
from app.domain.contract.response import Durability
from app.domain.failures import Failure
from app.domain.journal.events import LiveDelta, StoredEvent
from app.domain.lifecycle import Mode
from app.orchestration.planning.planner import make_plan
from app.orchestration.runtime.launcher import Launcher
from app.orchestration.runtime.recovery import Recovery
from app.ports.journal import ExecutionHistory
from tests.support.chaos import ToolActions, chaos_harness
from tests.support.harness import Harness, chat_request, fail_on_fault
from tests.support.postgres import open_real_time_postgres
from tests.support.random_plans import random_plan_request
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

Instant: TypeAlias = Literal["before", "during", "after"]
LONGEST_LIFE_S = 60
"""Seconds after which a life that hangs is ended."""
SIZE = {"type": "object", "required": ["size"], "properties": {"size": {"enum": ["small", "large"]}}}
ALL_PATTERNS = PATTERNS | {Mode.PLAN: replace(PATTERNS[Mode.PLAN], plan=make_plan)}


@dataclass(frozen=True, slots=True)
class KillPoint:
    """At which commit or effect of a life, counted from 1, the process is killed, and when exactly."""

    kind: Literal["commit", "effect"]
    number: int
    instant: Instant


@dataclass(frozen=True, slots=True)
class ReplicaRun:
    """What a replica does: it begins the execution of that name, or goes on with whatever nobody runs.

    `database` is a file or a URL; `folder` holds what the world and the readers saw.
    """

    database: str
    folder: str
    name: str
    seed: int
    mode: Mode
    durability: Durability
    begins: bool
    death: KillPoint | None = None

    def as_line(self) -> str:
        """The life on one line."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "ReplicaRun":
        """The life that the line tells."""
        values: dict[str, Any] = json.loads(line)
        death = values.pop("death")
        return cls(**values | {"mode": Mode(values["mode"])}, death=None if death is None else KillPoint(**death))


@dataclass(frozen=True, slots=True)
class InstantCounts:
    """How many instants to die at a life had."""

    commits: int
    effects: int


def open_database(database: str, clock: VirtualClock) -> AbstractAsyncContextManager[Database]:
    """The database of that URL or in that file, with what it holds."""
    return open_real_time_postgres(database) if database.startswith("postgres") else open_sqlite(Path(database))


def recorded_acts(folder: Path) -> list[tuple[str, str]]:
    """What was done in the world, or begun."""
    file = folder / "acts"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(line.split()[0], line.split()[1]) for line in lines if line]


def repeated_writes(folder: Path) -> list[tuple[str, str]]:
    """Unsafe acts that were begun more than once."""
    return [act for act, times in Counter(recorded_acts(folder)).items() if act[0] == "write" and times > 1]


def published(folder: Path) -> list[tuple[str, int, str]]:
    """Execution, number and type of every durable event that a live reader could have seen, in that order."""
    file = folder / "seen"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(execution_id, int(number), kind) for execution_id, number, kind in lines]


def run_replica(life: ReplicaRun) -> None:
    """Lives it, in this process, which has no loop yet."""
    signal.alarm(LONGEST_LIFE_S)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        lived = runner.run(_Replica(life).live())
    (Path(life.folder) / "lived").write_text(json.dumps(asdict(lived)))


def read_counts(folder: Path) -> InstantCounts:
    """How many instants the last life had that came to its end."""
    return InstantCounts(**json.loads((folder / "lived").read_text()))


class _Fate:
    """Counts the instants of one kind, and kills the process at the appointed one."""

    def __init__(self, kind: str, death: KillPoint | None) -> None:
        self.count = 0
        self._death = death if death is not None and death.kind == kind else None

    def next(self) -> Instant | None:
        """When to die around what comes now, if it is the one."""
        self.count += 1
        return self._death.instant if self._death is not None and self._death.number == self.count else None


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Dying:
    """A database whose process dies before a transaction, before its COMMIT, or before anybody hears of the COMMIT."""

    def __init__(self, database: Database, fate: _Fate) -> None:
        self._database = database
        self._fate = fate

    async def append(self, work: Callable[[], Transaction[Any]]) -> Any:
        instant = self._begin()
        result = await self._database.append(_cut(work) if instant == "during" else work)
        if instant == "after":
            _die()
        return result

    async def write(self, work: Callable[[], Transaction[Any]], *, idempotent: bool = False) -> Any:
        instant = self._begin()
        work = _cut(work) if instant == "during" else work
        result = await self._database.write(work, idempotent=idempotent)
        if instant == "after":
            _die()
        return result

    async def read(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._database.read(work)

    def _begin(self) -> Instant | None:
        instant = self._fate.next()
        if instant == "before":
            _die()
        return instant


def _cut(work: Callable[[], Transaction[Any]]) -> Callable[[], Transaction[Any]]:
    def cut() -> Transaction[Any]:
        yield from work()
        _die()

    return cut


class _World(list[tuple[str, str]]):
    """Acts, each a line in a file before its doer knows; an act that was cut is there in part."""

    def __init__(self, folder: Path, fate: _Fate) -> None:
        super().__init__()
        self._file = os.open(folder / "acts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._fate = fate

    def append(self, act: tuple[str, str]) -> None:
        instant = self._fate.next()
        if instant == "before":
            _die()
        os.write(self._file, f"\n{act[0]} {act[1]} ".encode())
        if instant == "during":
            _die()
        os.write(self._file, b"done\n")
        if instant == "after":
            _die()


class _Seen:
    """A reader that forgets nothing when its replica dies."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def publish(self, execution_id: str, items: list[StoredEvent | LiveDelta]) -> None:
        for item in items:
            if isinstance(item, StoredEvent):
                os.write(self._file, f"{execution_id} {item.sequence_number} {item.event.type}\n".encode())


class _Replica:
    """A replica with what it needs to run one execution."""

    def __init__(self, life: ReplicaRun) -> None:
        self._life = life
        self._folder = Path(life.folder)
        self._clock = VirtualClock()
        self._commits = _Fate("commit", life.death)
        self._effects = _Fate("effect", life.death)

    async def live(self) -> InstantCounts:
        """Until everything that it runs has ended or waits for somebody."""
        bus = EventBus([_Seen(self._folder)], capacity=10_000, on_fault=fail_on_fault, on_drop=lambda: None)

        def lost(execution_id: str, failure: Failure) -> None:
            launcher.local.fail_unsaved(execution_id, failure)

        async with (
            open_database(self._life.database, self._clock) as database,
            open_journal(
                _Dying(database, self._commits),
                bus,
                self._clock,
                self._keeping(),
                WriterCallbacks(lost, lambda: None, fail_on_fault),
            ) as journal,
            open_task_pool(max_in_flight=100, drain_seconds=10_000, on_bug=_unexpected) as slots,
        ):
            here = self._stage(journal, bus)
            runner = LocalRunner(
                slots, QueueLimits(max_waiting=100, max_running=100, max_running_per_tenant=100), self._clock
            )
            launcher = Launcher(here.environment, runner, ALL_PATTERNS)
            store = DatabaseExecutionStore(_Dying(database, self._commits), self._clock, journal.owner, bus)
            if self._life.begins:
                await self._begin(here, launcher)
            else:
                await self._recover(Recovery(store, launcher), runner)
            await runner.drain(lambda: None)
        return InstantCounts(self._commits.count, self._effects.count)

    async def _recover(self, ownership: Recovery, runner: LocalRunner) -> None:
        async with runner.serving(ownership.run_ticket):
            await ownership.recover(alive=(), gone=None)

    def _keeping(self) -> JournalConfig:
        """Every commit is a group of its own, so that there is an instant around each."""
        return JournalConfig(f"replica-{os.getpid()}", 100, WriterLimits(group_items=1))

    def _stage(self, journal: StoredJournal, bus: EventBus) -> Harness:
        acts = ToolActions()
        acts.performed = _World(self._folder, self._effects)
        seed = self._life.seed if self._life.begins else self._life.seed + 1_000
        here = chaos_harness(self._clock, seed, acts, tool_rounds=3)
        here.environment = replace(here.environment, journal=journal, event_feed=bus)
        return here

    async def _begin(self, here: Harness, launcher: Launcher) -> None:
        request = REQUESTS[self._life.mode](Random(self._life.seed))
        header = replace(
            here.execution(request).header,
            execution_id=f"e-{self._life.name}",
            request_id=self._life.name,
            pattern_version=ALL_PATTERNS[request.mode].version,
            durability=self._life.durability,
        )
        await here.environment.journal.open(header)
        launcher.start(ExecutionHistory(header, {}, ()))


def _unexpected(_: str, bug: Exception) -> None:
    raise bug


REQUESTS: Mapping[Mode, Callable[[Random], SystemRequest]] = {
    Mode.CHAT: lambda _: chat_request(),
    Mode.STRUCTURED: lambda _: chat_request(mode=Mode.STRUCTURED, output={"schema": SIZE}),
    Mode.REDUNDANT: lambda _: chat_request(mode=Mode.REDUNDANT, output={"schema": SIZE}, redundancy={"n": 3}),
    Mode.PLAN: random_plan_request,
}
