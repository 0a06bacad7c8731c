"""Conformance of session turns: one at a time, in order, on any replica."""

from dataclasses import replace
from functools import partial
from random import Random

import anyio
import pytest

from portico.adapters.stores.journal import group_commit
from portico.adapters.stores.journal.group_commit import CommitBatch
from portico.adapters.stores.journal.insert_execution import MAX_WAITING_PER_SESSION
from portico.adapters.stores.journal.rows import new_execution
from portico.adapters.stores.sessions import DatabaseSessions
from portico.domain.access.principal import LOCAL
from portico.domain.contract.messages import Message
from portico.domain.failures import Code, RequestFailure
from portico.domain.lifecycle import State
from portico.ports.storage import SessionHistory
from tests.support.broken_database import UnreachableDatabase
from tests.support.examples import COMPLETED, MOVED, SUSPENDED, recorded_step, unnumbered
from tests.support.stored_executions import journaled, moved, refused
from tests.support.stores import StoreReplica

EVER = 10_000


async def begins(on: StoreReplica, execution_id: str, *, waits: bool = True, session_id: str = "s") -> None:
    busy = "enqueue" if waits else "reject"
    await on.journal.open(journaled(execution_id, f"r-{execution_id}", session_id=session_id, busy=busy))


async def ends(on: StoreReplica, execution_id: str, *texts: str) -> None:
    """End the execution with these messages."""
    turn = [Message(role="user", content=each) for each in texts]
    on.journal.put(execution_id, (), unnumbered(moved(State.COMPLETE), COMPLETED), turn)
    await on.journal.durable(execution_id)
    on.journal.close(execution_id)
    on.conversations.release_turn("local", "s")


async def turn(on: StoreReplica, execution_id: str, waits: list[str] | None = None, limit: int = 50) -> SessionHistory:
    """Return the history at the start of the turn; `on_wait` records that it had to wait."""
    waited = [] if waits is None else waits
    return await on.conversations.acquire_turn(
        LOCAL.own, "s", execution_id, limit=limit, on_wait=lambda: waited.append(execution_id)
    )


def texts(past: SessionHistory) -> list[str]:
    return [message.text for message in past.recent_messages]


async def session_texts(on: StoreReplica) -> list[str]:
    return [message.text for message in await on.conversations.messages(LOCAL.own, "s", limit=EVER)]


async def test_an_execution_with_inherited_steps_takes_a_turn_like_others(
    here: StoreReplica, there: StoreReplica
) -> None:
    await here.journal.open(journaled("a", "r-a", session_id="s"), steps=[recorded_step("0")])
    for steps in ([], [recorded_step("0")]):
        with pytest.raises(RequestFailure) as failure:
            await there.journal.open(journaled("b", "r-b", session_id="s"), steps=steps)
        assert failure.value.code is Code.REQUEST_SESSION_BUSY
    assert await there.store.find(LOCAL.own, "r-b") is None
    assert await turn(here, "a") == SessionHistory(0, [], ())
    await ends(here, "a", "1", "2")
    await there.journal.open(journaled("c", "r-c", session_id="s"), steps=[recorded_step("0")])
    assert texts(await turn(there, "c")) == ["1", "2"]


async def test_the_history_is_there_when_the_turn_begins(here: StoreReplica) -> None:
    waits: list[str] = []
    await begins(here, "a")
    assert await turn(here, "a", waits) == SessionHistory(0, [], ())
    await ends(here, "a", "1", "2", "3")
    await begins(here, "b")
    assert texts(await turn(here, "b", waits)) == ["1", "2", "3"]
    past = await turn(here, "b", waits, limit=2)
    assert (past.message_count, texts(past), past.system_messages) == (3, ["2", "3"], ())
    assert waits == []


async def test_the_first_system_messages_are_always_part_of_the_history(here: StoreReplica) -> None:
    prompt = [Message(role="system", content="Be brief."), Message(role="system", content="Rhyme.")]
    await begins(here, "a")
    words = [*prompt, *(Message(role="user", content=str(number)) for number in range(9))]
    here.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED), words)
    await here.journal.durable("a")
    for limit, last in ((2, ["7", "8"]), (50, [message.text for message in words])):
        past = await here.conversations.history(LOCAL.own, "s", limit=limit)
        assert (past.message_count, list(past.system_messages), texts(past)) == (11, prompt, last)


async def test_waiting_executions_get_the_turn_in_order_on_any_replica(here: StoreReplica, there: StoreReplica) -> None:
    order: list[str] = []
    waits: list[str] = []
    await begins(here, "a", waits=False)

    async def takes(on: StoreReplica, execution_id: str) -> None:
        past = await turn(on, execution_id, waits)
        order.append(execution_id)
        assert texts(past) == ["a", *order[:-1]]
        await ends(on, execution_id, execution_id)

    async with anyio.create_task_group() as group:
        for number, name in enumerate("bcdef"):
            await begins((here, there)[number % 2], name)
            group.start_soon(takes, (here, there)[number % 2], name)
        await anyio.sleep(3)
        assert (order, sorted(waits)) == ([], list("bcdef"))
        await refused(Code.REQUEST_SESSION_BUSY, begins(there, "g", waits=False))
        await ends(here, "a", "a")
    assert order == list("bcdef")
    session = await here.conversations.session(LOCAL.own, "s")
    assert session is not None
    assert (session.busy, session.message_count) == (False, 6)


async def test_the_number_of_waiting_executions_is_limited(here: StoreReplica, there: StoreReplica) -> None:
    outcomes: list[Code | None] = []

    async def one(number: int) -> None:
        try:
            await begins((here, there)[number % 2], f"{number:02}")
        except RequestFailure as failure:
            outcomes.append(failure.code)
        else:
            outcomes.append(None)

    async with anyio.create_task_group() as group:
        for number in range(MAX_WAITING_PER_SESSION + 5):
            group.start_soon(one, number)
    assert outcomes.count(None) == MAX_WAITING_PER_SESSION + 1
    assert outcomes.count(Code.REQUEST_SESSION_BUSY) == 4
    await begins(here, "another", session_id="s-2")


async def test_no_execution_waits_behind_a_suspended_one(here: StoreReplica) -> None:
    await begins(here, "a")
    await begins(here, "b")
    here.journal.put("a", (), unnumbered(moved(State.SUSPENDED), SUSPENDED))
    await here.journal.durable("a")
    await refused(Code.REQUEST_RESUME_REQUIRED, begins(here, "c"))
    with anyio.move_on_after(5) as patience:
        await turn(here, "b")
    assert patience.cancelled_caught
    await ends(here, "a", "a")
    assert texts(await turn(here, "b")) == ["a"]


async def test_an_execution_that_stops_waiting_blocks_no_other_and_adds_no_messages(here: StoreReplica) -> None:
    for name in "abc":
        await begins(here, name)
    await ends(here, "b", "never added")
    await ends(here, "a", "a")
    assert texts(await turn(here, "c")) == ["a"]
    await ends(here, "c", "c")
    assert await session_texts(here) == ["a", "c"]


async def test_a_released_turn_goes_to_the_next_waiting_execution(here: StoreReplica) -> None:
    """The first is refused for its request_id in the transaction in which the second starts waiting behind it."""
    await here.journal.open(journaled("taken", "same"))
    both = [
        new_execution(journaled("a", "same", session_id="s", busy="enqueue"), "replica"),
        new_execution(journaled("b", "r-b", session_id="s", busy="enqueue"), "replica"),
    ]
    verdict = await here.database.append(
        partial(group_commit.apply_batch, CommitBatch(new_executions={each.header.execution_id: each for each in both}))
    )
    assert list(verdict.refused) == ["a"]
    assert (await turn(here, "b")).message_count == 0


async def test_a_waiting_execution_is_inserted_once_despite_a_lost_commit_answer(here: StoreReplica) -> None:
    await begins(here, "00")
    for number in range(MAX_WAITING_PER_SESSION - 1):
        await begins(here, f"{number + 1:02}")
    last = new_execution(journaled("99", "r-99", session_id="s", busy="enqueue"), "replica")
    for _ in range(2):
        verdict = await here.database.append(
            partial(group_commit.apply_batch, CommitBatch(new_executions={"99": last}))
        )
        assert (verdict.refused, verdict.lost) == ({}, frozenset())
    await refused(Code.REQUEST_SESSION_BUSY, begins(here, "a"))


async def test_a_turn_is_waited_for_while_the_database_does_not_answer(here: StoreReplica) -> None:
    """A database that does not answer at the first look, or while another execution has the turn, fails none."""
    database = UnreachableDatabase(here.database)
    waiting = replace(here, database=database, conversations=DatabaseSessions(database))
    waits: list[str] = []
    read: list[str] = []
    await begins(here, "a")
    await begins(here, "b")

    async def wait() -> None:
        read.extend(texts(await turn(waiting, "b", waits)))

    async with anyio.create_task_group() as group:
        database.is_away = True
        group.start_soon(wait)
        await anyio.sleep(60)
        database.is_away = False
        await anyio.sleep(3)
        database.is_away = True
        await anyio.sleep(60)
        await ends(here, "a", "a")
        database.is_away = False
    assert (waits, read) == (["b"], ["a"])
    assert database.failures > 100


async def test_waiting_in_a_deleted_session_fails(here: StoreReplica, there: StoreReplica) -> None:
    await begins(here, "a")
    await begins(here, "b")

    async def waits() -> None:
        await refused(Code.REQUEST_NOT_FOUND, turn(here, "b"))

    async with anyio.create_task_group() as group:
        group.start_soon(waits)
        await anyio.sleep(0.5)
        assert await there.records.erase_session(LOCAL.own, "s", with_forks=False) == []
    await begins(there, "c", waits=False)
    assert await turn(there, "c") == SessionHistory(0, [], ())


async def test_a_turn_outlives_its_owner_until_the_next_owner_ends_it(here: StoreReplica, there: StoreReplica) -> None:
    await begins(here, "a")
    here.journal.put("a", (), unnumbered(MOVED))
    await here.journal.durable("a")
    await begins(there, "b")
    record = await there.store.claim("a", 1)
    assert record is not None
    there.journal.attach(record)
    here.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED), [Message(role="user", content="late")])
    await ends(there, "a", "a")
    assert texts(await turn(there, "b")) == ["a"]


async def test_clock_skew_leaves_no_execution_waiting(here: StoreReplica) -> None:
    await begins(here, "b")
    await begins(here, "a")
    await ends(here, "b", "b")
    assert texts(await turn(here, "a")) == ["b"]


@pytest.mark.parametrize("seed", range(4))
async def test_histories_never_interleave(here: StoreReplica, there: StoreReplica, seed: int) -> None:
    """Every turn, on any replica, adds its messages in one piece and has read all messages before them."""
    chance = Random(seed)
    read_before: dict[str, list[str]] = {}
    lengths = {f"{number:02}": chance.randrange(4) for number in range(14)}
    turned_away: set[Code] = set()

    async def one(name: str) -> None:
        on = chance.choice((here, there))
        await anyio.sleep(chance.choice((0.0, 0.0, 0.01, 0.7)))
        try:
            await begins(on, name, waits=chance.random() < 0.6)
        except RequestFailure as failure:
            turned_away.add(failure.code)
            return
        if chance.random() < 0.2:
            await ends(on, name)
            return
        read_before[name] = texts(await turn(on, name))
        await anyio.sleep(chance.choice((0.0, 0.01, 0.3)))
        await ends(on, name, *(f"{name}.{number}" for number in range(lengths[name])))

    async with anyio.create_task_group() as group:
        for name in lengths:
            group.start_soon(one, name)
    whole = await session_texts(here)
    assert turned_away <= {Code.REQUEST_SESSION_BUSY}
    assert len(read_before) > 3
    assert len(whole) == sum(lengths[name] for name in read_before)
    for name, before in read_before.items():
        own = [f"{name}.{number}" for number in range(lengths[name])]
        assert whole[: len(before) + len(own)] == [*before, *own]
