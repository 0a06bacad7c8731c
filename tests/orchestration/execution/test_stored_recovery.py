"""Recovery from the database: at any instant that a process dies, another goes on from the database."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from portico.adapters.stores.database import Database
from portico.adapters.stores.journal.writer import WriterLimits
from portico.domain.access.principal import LOCAL
from portico.domain.journal.header import ExecutionHeader
from portico.domain.lifecycle import TERMINAL, State
from portico.orchestration.execution.execution import Execution
from tests.support.broken_database import DyingDatabase
from tests.support.chaos import CHAOS_TOOLS, ToolActions, agents_harness, chaos_harness
from tests.support.harness import Harness, chat_request, replay_offline, response_of
from tests.support.recovery import is_complete_log, open_starts
from tests.support.seeds import seeds
from tests.support.stores import StoreReplica, database_opener, in_own_task, open_replica
from tests.support.virtual_time import VirtualClock


class Crash(BaseException):
    """End of the process."""


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with in_own_task(database_opener(request, tmp_path)()) as opened:
        yield opened


def on(journal_of: StoreReplica, clock: VirtualClock, name: str, acts: ToolActions, later: int = 0) -> Harness:
    """Return the same random harness on the journal of that replica; executions named `agents` call agents."""
    make = agents_harness if name.endswith("agents") else chaos_harness
    here = make(clock, seed_of(name) + later, acts, tool_rounds=3)
    here.environment = replace(here.environment, journal=journal_of.journal)
    return here


async def run(here: Harness, execution: Execution) -> None:
    await here.drive(execution)


def seed_of(name: str) -> int:
    """Return the seed of an execution; those of one seed do the same until they crash."""
    return int(name.partition(".")[0])


def header_of(here: Harness, name: str) -> ExecutionHeader:
    """Return the header of a journaled execution of that name."""
    drawn = here.execution(chat_request(tools=CHAOS_TOOLS)).header
    return replace(drawn, execution_id=f"e-{name}", request_id=name, durability="journaled")


async def until_death(database: DyingDatabase, clock: VirtualClock, name: str, acts: ToolActions) -> bool:
    """Run until the database is gone, or to the end; return True if it was gone. Every commit is a group of its own."""
    died = False
    async with open_replica(database, clock, "first", limits=WriterLimits(group_items=1), closing_seconds=0.0) as first:
        here = on(first, clock, name, acts)
        header = header_of(here, name)

        async def whole() -> None:
            await first.journal.open(header)
            await run(here, Execution(header, environment=here.environment, journal=first.journal))
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(whole)
            await database.dead.wait()
            died = True
            group.cancel_scope.cancel()
    return died


async def check_recovery(database: Database, clock: VirtualClock, name: str, acts: ToolActions) -> State:
    """Continue what is stored; check that no non-idempotent call happens twice and that no event is missing."""
    async with open_replica(database, clock, "second") as second:
        found = await second.store.find(LOCAL.own, name)
        assert found is not None
        before = await second.store.load("local", found.execution_id)
        assert before is not None
        if not found.status.ended and found.status.state is not State.SUSPENDED:
            record = await second.store.claim(found.execution_id, found.epoch)
            assert record is not None
            second.journal.attach(record)
            here = on(second, clock, name, acts, later=1_000)
            execution = Execution(record.header, environment=here.environment, journal=second.journal, history=record)
            await run(here, execution)
            assert response_of(execution).state in {*TERMINAL, State.SUSPENDED}
        after = await second.store.load("local", found.execution_id)
        stands = await second.store.find(LOCAL.own, name)
    assert after is not None
    assert stands is not None
    assert tuple(after.events[: len(before.events)]) == tuple(before.events)
    assert acts.repeated_writes == []
    replay_offline(after)
    if stands.status.state is not State.SUSPENDED:
        assert is_complete_log(after)
        assert open_starts(after.events) == []
    return stands.status.state


@pytest.mark.parametrize("committed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("kind", ["tools", "agents"])
async def test_a_crash_around_any_commit_loses_nothing_and_repeats_nothing_unsafe(
    database: Database, clock: VirtualClock, kind: str, seed: int, committed: bool
) -> None:
    died, commit = True, 0
    while died:
        acts, name = ToolActions(), f"{seed}.{commit}.{kind}"
        # The opening is the first commit: without it there is no execution.
        died = await until_death(
            DyingDatabase(database, commit + (not committed), committed=committed), clock, name, acts
        )
        await check_recovery(database, clock, name, acts)
        commit += 1
    assert commit > 4


async def test_an_unsafe_call_waits_for_its_intent_to_be_durable(database: Database, clock: VirtualClock) -> None:
    """An execution in memory is stored with its earlier steps before a non-idempotent call runs."""
    promoted = 0
    async with open_replica(database, clock) as first:
        for seed in range(12):
            acts = ToolActions()
            here = on(first, clock, f"{seed}.0", acts)
            header = replace(header_of(here, f"{seed}.0"), durability="memory")
            await first.journal.open(header)
            execution = Execution(header, environment=here.environment, journal=first.journal)
            await run(here, execution)
            stored = await first.store.load("local", header.execution_id)
            wrote = any(act == "write" for act, _ in acts.performed)
            assert (stored is not None) >= wrote
            promoted += wrote
            if stored is not None:
                assert replay_offline(stored) == len(stored.steps)
            first.journal.close(header.execution_id)
    assert promoted > 2
