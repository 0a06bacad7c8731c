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

from app.adapters.durable.inline import InlineRunner
from app.adapters.durable.line import LineLimits
from app.adapters.durable.slots import open_slots
from app.adapters.event_bus import EventBus
from app.adapters.stores.database import Database, Transaction
from app.adapters.stores.journal import Keeping, StoredJournal, open_journal
from app.adapters.stores.sqlite import open_sqlite
from app.adapters.stores.store import DatabaseStore
from app.adapters.stores.writer import Bounds, Loss
from app.bootstrap import PATTERNS
from app.domain.boundary import Durability, SystemRequest
from app.domain.events import Live, Recorded
from app.domain.failures import Failure
from app.domain.lifecycle import Mode
from app.orchestration.execution import Execution
from app.orchestration.ownership import Ownership
from app.orchestration.planning.planner import plan
from app.orchestration.running import Launcher
from tests.orchestration.test_random_plans import thrown
from tests.support.chaos import Acts, chaos
from tests.support.postgres import paced
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop
from tests.support.world import Stage, ask, unexpected

Instant: TypeAlias = Literal["before", "during", "after"]
LONGEST_LIFE_S = 60
"""Seconds after which a life that hangs is ended."""
SIZE = {"type": "object", "required": ["size"], "properties": {"size": {"enum": ["small", "large"]}}}
ALL_PATTERNS = PATTERNS | {Mode.PLAN: replace(PATTERNS[Mode.PLAN], planning=plan)}


@dataclass(frozen=True, slots=True)
class Death:
    """At which commit or effect of a life, counted from 1, the process is killed, and when exactly."""

    at: Literal["commit", "effect"]
    number: int
    instant: Instant


@dataclass(frozen=True, slots=True)
class Life:
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
    death: Death | None = None

    def as_line(self) -> str:
        """The life on one line."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Life":
        """The life that the line tells."""
        values: dict[str, Any] = json.loads(line)
        death = values.pop("death")
        return cls(**values | {"mode": Mode(values["mode"])}, death=None if death is None else Death(**death))


@dataclass(frozen=True, slots=True)
class Lived:
    """How many instants to die at a life had."""

    commits: int
    effects: int


def open_at(database: str, clock: VirtualClock) -> AbstractAsyncContextManager[Database]:
    """The database of that URL or in that file, with what it holds."""
    return paced(database) if database.startswith("postgres") else open_sqlite(Path(database))


def acts_of(folder: Path) -> list[tuple[str, str]]:
    """What was done in the world, or begun."""
    file = folder / "acts"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(line.split()[0], line.split()[1]) for line in lines if line]


def repeated_writes(folder: Path) -> list[tuple[str, str]]:
    """Unsafe acts that were begun more than once."""
    return [act for act, times in Counter(acts_of(folder)).items() if act[0] == "write" and times > 1]


def published(folder: Path) -> list[tuple[str, int, str]]:
    """Execution, number and type of every durable event that a live reader could have seen, in that order."""
    file = folder / "seen"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(execution_id, int(number), kind) for execution_id, number, kind in lines]


def live(life: Life) -> None:
    """Lives it, in this process, which has no loop yet."""
    signal.alarm(LONGEST_LIFE_S)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        lived = runner.run(_Replica(life).live())
    (Path(life.folder) / "lived").write_text(json.dumps(asdict(lived)))


def lived(folder: Path) -> Lived:
    """How many instants the last life had that came to its end."""
    return Lived(**json.loads((folder / "lived").read_text()))


class _Fate:
    """Counts the instants of one kind, and kills the process at the appointed one."""

    def __init__(self, kind: str, death: Death | None) -> None:
        self.count = 0
        self._death = death if death is not None and death.at == kind else None

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

    async def write(self, work: Callable[[], Transaction[Any]], *, recognisable: bool = False) -> Any:
        instant = self._begin()
        work = _cut(work) if instant == "during" else work
        result = await self._database.write(work, recognisable=recognisable)
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

    def publish(self, execution_id: str, items: list[Recorded | Live]) -> None:
        for item in items:
            if isinstance(item, Recorded):
                os.write(self._file, f"{execution_id} {item.sequence_number} {item.event.type}\n".encode())


class _Replica:
    """A replica with what it needs to run one execution."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._folder = Path(life.folder)
        self._clock = VirtualClock()
        self._commits = _Fate("commit", life.death)
        self._effects = _Fate("effect", life.death)

    async def live(self) -> Lived:
        """Until everything that it runs has ended or waits for somebody."""
        bus = EventBus([_Seen(self._folder)], capacity=10_000, on_fault=unexpected, on_drop=lambda: None)

        def lost(execution_id: str, failure: Failure) -> None:
            launcher.lose(execution_id, failure)

        async with (
            open_at(self._life.database, self._clock) as database,
            open_journal(
                _Dying(database, self._commits), bus, self._clock, self._keeping(), Loss(lost, lambda: None, unexpected)
            ) as journal,
            open_slots(max_in_flight=100, drain_seconds=10_000, on_bug=_unexpected) as slots,
        ):
            here = self._stage(journal, bus)
            runner = InlineRunner(slots, LineLimits(waiting=100, at_once=100, per_tenant=100), self._clock)
            launcher = Launcher(here.world, runner, ALL_PATTERNS)
            store = DatabaseStore(_Dying(database, self._commits), self._clock, journal.owner, bus)
            if self._life.begins:
                await self._begin(here, launcher)
            else:
                await self._recover(Ownership(here.world, store, launcher), runner)
            await runner.drain(lambda: None)
        return Lived(self._commits.count, self._effects.count)

    async def _recover(self, ownership: Ownership, runner: InlineRunner) -> None:
        async with runner.attending(ownership.advance):
            await ownership.recover(alive=(), gone=None)

    def _keeping(self) -> Keeping:
        """Every commit is a group of its own, so that there is an instant around each."""
        return Keeping(f"replica-{os.getpid()}", 100, Bounds(group_items=1))

    def _stage(self, journal: StoredJournal, bus: EventBus) -> Stage:
        acts = Acts()
        acts.done = _World(self._folder, self._effects)
        seed = self._life.seed if self._life.begins else self._life.seed + 1_000
        here = chaos(self._clock, seed, acts, tool_rounds=3)
        here.world = replace(here.world, journal=journal, watchers=bus)
        return here

    async def _begin(self, here: Stage, launcher: Launcher) -> None:
        request = REQUESTS[self._life.mode](Random(self._life.seed))
        header = replace(
            here.execution(request).header,
            execution_id=f"e-{self._life.name}",
            request_id=self._life.name,
            pattern_version=ALL_PATTERNS[request.mode].version,
            durability=self._life.durability,
        )
        await here.world.journal.open(header)
        launcher.start(Execution(header, world=here.world, journal=here.world.journal), watch=False)


def _unexpected(_: str, bug: Exception) -> None:
    raise bug


REQUESTS: Mapping[Mode, Callable[[Random], SystemRequest]] = {
    Mode.CHAT: lambda _: ask(),
    Mode.STRUCTURED: lambda _: ask(mode=Mode.STRUCTURED, output={"schema": SIZE}),
    Mode.REDUNDANT: lambda _: ask(mode=Mode.REDUNDANT, output={"schema": SIZE}, redundancy={"n": 3}),
    Mode.PLAN: thrown,
}
