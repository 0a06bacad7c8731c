"""Conformance of erasure on every database: what is erased is in no table, and what holds a copy of it is found."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from portico.adapters.stores import erasure
from portico.adapters.stores.database import Statement, execute
from portico.adapters.stores.erasure import erase_rows
from portico.adapters.stores.executions import retention
from portico.adapters.stores.executions.retention import RetentionLimits
from portico.adapters.stores.schema import metadata
from portico.domain.access.principal import LOCAL
from portico.domain.contract.messages import Message
from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.events import ExecutionSuspended
from portico.domain.journal.fork import Fork
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep, SuspensionAnswer
from portico.domain.lifecycle import State
from portico.ports.journal import IdempotencyClaim
from portico.ports.runtime import Clock
from tests.support.examples import COMPLETED, MOVED, SUSPENSION, header, response, unnumbered
from tests.support.stored_executions import EVER, all_suspensions, journaled, moved, refused, suspended
from tests.support.stores import StoreReplica

CANARY = "canary-5f1c"
EVERYTHING: Mapping[str, Statement] = {
    name: Statement(lambda _, table=table: select(table)) for name, table in metadata.tables.items()
}


async def tables_with(here: StoreReplica, text: str) -> set[str]:
    """Return the tables in which the text occurs."""
    found = set()
    for name, statement in EVERYTHING.items():
        rows: Sequence[Any] = await here.database.read(lambda statement=statement: execute(statement, {}))
        if text in repr([tuple(row) for row in rows]):
            found.add(name)
    return found


def secret(
    execution_id: str, *, fork_of: str = "", session_id: str | None = None, store: bool = True
) -> ExecutionHeader:
    """Return the header of a request with the canary in it; `fork_of` are its ancestors, one letter each."""
    plain = journaled(execution_id, f"r-{execution_id}", session_id=session_id)
    said = {"messages": [Message(role="user", content=CANARY)], "metadata": {"note": CANARY}, "store": store}
    fork = Fork(f"r-{fork_of[-1]}", 0) if fork_of else None
    return replace(plain, request=plain.request.model_copy(update=said), fork=fork, ancestors=tuple(fork_of))


def in_memory(opened: ExecutionHeader) -> ExecutionHeader:
    return replace(opened, durability="memory")


def step(key: str, said: str) -> RecordedStep:
    return RecordedStep(key, "f" * 32, SuspensionAnswer(said), 1.0)


async def answered(here: StoreReplica, opened: ExecutionHeader, said: str = CANARY) -> None:
    """End and close an execution that has read and answered this."""
    name = opened.execution_id
    here.journal.put(name, [step("0", said)], unnumbered(MOVED))
    last = replace(COMPLETED, response=COMPLETED.response.model_copy(update={"content": said}))
    messages = [Message(role="user", content=said), Message(role="assistant", content=said)]
    here.journal.put(name, (), unnumbered(moved(State.COMPLETE), last), messages)
    await here.journal.durable(name)
    here.journal.close(name)


async def run(here: StoreReplica, execution_id: str, *, fork_of: str = "", session_id: str | None = None) -> None:
    opened = secret(execution_id, fork_of=fork_of, session_id=session_id)
    await here.journal.open(opened, IdempotencyClaim(f"key {CANARY} {execution_id}", "digest"))
    await answered(here, opened)


async def erase(here: StoreReplica, execution_id: str, *, with_forks: bool = False) -> list[str]:
    return list(await here.records.erase_execution("local", execution_id, with_forks=with_forks))


async def purged(here: StoreReplica, *, events: float, answers: float) -> int:
    return await retention.purge(here.database, RetentionLimits(events, answers), limit=10, now=0.0)


async def test_an_ended_execution_is_erased_from_every_table_and_its_names_are_free(here: StoreReplica) -> None:
    await run(here, "a")
    assert await tables_with(here, CANARY) >= {"executions", "commits", "idempotency_keys"}
    assert await here.records.erase_execution("other", "a", with_forks=True) == []
    assert await erase(here, "a") == []
    assert await tables_with(here, CANARY) == await tables_with(here, "'a'") == set()
    assert await here.store.find(LOCAL.own, "r-a") is None
    assert await here.store.events("local", "a", limit=EVER) is None
    await run(here, "a")
    assert await here.store.find(LOCAL.own, "r-a") is not None


async def test_a_live_execution_is_erased_by_the_commit_that_ends_it(here: StoreReplica) -> None:
    opened = secret("a", session_id="s")
    await here.journal.open(opened)
    assert await erase(here, "a") == ["r-a"]
    assert await here.store.find(LOCAL.own, "r-a") is not None
    await here.journal.open(journaled("b", "r-b", session_id="s", busy="enqueue"))
    await answered(here, opened)
    assert await tables_with(here, CANARY) == await tables_with(here, "'a'") == set()
    assert here.sink.sequence_numbers("a") == [1, 2, 3]
    assert here.losses.lost == {}
    history = await here.conversations.acquire_turn(LOCAL.own, "s", "b", limit=9, on_wait=lambda: None)
    assert history.message_count == 0


@pytest.mark.parametrize("suspends", [False, True])
async def test_an_execution_that_is_not_to_be_stored_leaves_nothing(here: StoreReplica, *, suspends: bool) -> None:
    opened = in_memory(secret("a", store=False))
    await here.journal.open(opened)
    if suspends:
        here.journal.put("a", (), unnumbered(ExecutionSuspended((SUSPENSION,), response(State.SUSPENDED))))
        await here.journal.durable("a")
        assert "commits" in await tables_with(here, CANARY)
    await answered(here, opened)
    await here.journal.flushed()
    assert await tables_with(here, CANARY) == await tables_with(here, "'a'") == set()
    await here.journal.open(in_memory(header("b", "r-a")))


async def test_an_execution_in_memory_that_is_deleted_is_never_stored(here: StoreReplica) -> None:
    opened = in_memory(secret("a"))
    await here.journal.open(opened)
    assert here.journal.discard("a")
    await answered(here, opened)
    await here.journal.flushed()
    assert await here.store.find(LOCAL.own, "r-a") is None
    await here.journal.open(journaled("b", "r-b"))
    assert not here.journal.discard("b")


async def test_forks_are_named_or_erased_also_if_one_between_them_is_gone(here: StoreReplica) -> None:
    await run(here, "a")
    await run(here, "b", fork_of="a")
    await run(here, "c", fork_of="ab")
    await run(here, "d", fork_of="a")
    with pytest.raises(RequestFailure) as named:
        await erase(here, "b")
    assert (named.value.code, named.value.details) == (Code.REQUEST_HAS_FORKS, {"forks": ["r-c"]})
    await here.database.write(lambda: erase_rows(["b"]))
    with pytest.raises(RequestFailure) as named:
        await erase(here, "a")
    assert named.value.details == {"forks": ["r-c", "r-d"]}
    assert await here.store.load("local", "a") is not None
    assert await erase(here, "a", with_forks=True) == []
    assert await tables_with(here, CANARY) == await tables_with(here, "r-") == set()


async def test_a_live_fork_is_erased_at_its_end(here: StoreReplica) -> None:
    await run(here, "a")
    live = secret("b", fork_of="a")
    await here.journal.open(live)
    assert await erase(here, "a", with_forks=True) == ["r-b"]
    await answered(here, live)
    assert await tables_with(here, CANARY) == set()


async def test_nothing_goes_on_from_an_execution_that_was_erased(here: StoreReplica) -> None:
    await run(here, "a")
    await erase(here, "a")
    await refused(Code.REQUEST_NOT_FOUND, here.journal.open(secret("b", fork_of="a")))
    late = in_memory(secret("c", fork_of="a"))
    await here.journal.open(late)
    here.journal.put("c", (), unnumbered(moved(State.COMPLETE), COMPLETED))
    here.journal.close("c")
    await here.journal.flushed()
    assert await tables_with(here, CANARY) == set()
    assert here.losses.dropped == 1


async def test_a_turn_is_removed_from_its_session_and_from_the_histories_of_later_turns(here: StoreReplica) -> None:
    first, last, next_turn = (journaled(name, f"r-{name}", session_id="s") for name in "acd")
    await here.journal.open(first)
    await answered(here, first, "before")
    await run(here, "b", session_id="s")
    await here.journal.open(last)
    here.journal.put("c", [step("prepare", f"history with {CANARY}")], ())
    await answered(here, last, "after")
    assert await erase(here, "b") == []
    assert await tables_with(here, CANARY) == set()
    messages = await here.conversations.messages(LOCAL.own, "s", limit=EVER)
    assert [each.content for each in messages] == ["before", "before", "after", "after"]
    assert [each.content for each in await here.conversations.messages(LOCAL.own, "s", after=3, limit=1)] == ["after"]
    history = await here.conversations.history(LOCAL.own, "s", limit=3)
    assert (history.message_count, len(history.recent_messages)) == (4, 3)
    found = await here.store.find(LOCAL.own, "r-c")
    assert found is not None
    assert found.status.response is not None
    assert await here.store.load("local", "c") is None
    await here.journal.open(next_turn)
    await answered(here, next_turn, "again")
    assert len(await here.conversations.messages(LOCAL.own, "s", limit=EVER)) == 6


@pytest.mark.parametrize("suspends", [False, True])
async def test_a_live_later_turn_refuses_the_removal_of_what_it_has_read(here: StoreReplica, *, suspends: bool) -> None:
    await run(here, "a", session_id="s")
    await here.journal.open(journaled("b", "r-b", session_id="s"))
    if suspends:
        last = ExecutionSuspended((SUSPENSION,), response(State.SUSPENDED))
        here.journal.put("b", (), unnumbered(moved(State.SUSPENDED), last))
        await here.journal.durable("b")
    code = Code.REQUEST_RESUME_REQUIRED if suspends else Code.REQUEST_SESSION_BUSY
    await refused(code, here.records.erase_execution("local", "a", with_forks=True))
    assert await here.store.load("local", "a") is not None
    assert len(await here.conversations.messages(LOCAL.own, "s", limit=EVER)) == 2


async def test_a_session_is_deleted_with_the_forks_of_its_turns_or_names_them(here: StoreReplica) -> None:
    await run(here, "a", session_id="s")
    await run(here, "inside", fork_of="a", session_id="s")
    await run(here, "outside", fork_of="a", session_id="t")
    assert await here.records.forks_of_session(LOCAL.own, "s") == ["r-outside"]
    with pytest.raises(RequestFailure) as named:
        await here.records.erase_session(LOCAL.own, "s", with_forks=False)
    assert named.value.details == {"forks": ["r-outside"]}
    assert await here.conversations.session(LOCAL.own, "s") is not None
    assert await here.records.erase_session(LOCAL.own, "s", with_forks=True) == []
    assert await tables_with(here, CANARY) == set()
    remaining = await here.conversations.session(LOCAL.own, "t")
    assert remaining is not None
    assert remaining.message_count == 0


async def test_a_suspended_execution_stays_until_it_ends(here: StoreReplica) -> None:
    await suspended(here, "a")
    assert await erase(here, "a") == ["r-a"]
    assert len(await all_suspensions(here)) == 1
    claimed = await here.store.claim("a", 1)
    assert claimed is not None
    here.journal.attach(claimed)
    here.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED))
    await here.journal.durable("a")
    assert await tables_with(here, "'a'") == set()


async def test_steps_go_first_then_the_execution_and_its_idle_session(here: StoreReplica, clock: Clock) -> None:
    await run(here, "a", session_id="s")
    await run(here, "b", fork_of="a")
    later = clock.now() + 1
    assert await purged(here, events=later, answers=0.0) == 2
    assert await here.store.load("local", "a") is None
    found = await here.store.find(LOCAL.own, "r-a")
    assert found is not None
    assert found.status.response is not None
    assert await tables_with(here, CANARY) == {"executions", "idempotency_keys", "messages"}
    assert await purged(here, events=later, answers=later - 2) == 0
    assert await purged(here, events=0.0, answers=later) == 2
    assert await tables_with(here, CANARY) == set()
    assert await here.conversations.session(LOCAL.own, "s") is None


async def test_a_session_in_use_has_the_messages_of_an_execution_that_is_gone(here: StoreReplica, clock: Clock) -> None:
    await run(here, "a", session_id="s")
    between = clock.now() + 1
    await clock.sleep(10)
    await run(here, "b", session_id="s")
    await purged(here, events=between, answers=between)
    assert await here.store.find(LOCAL.own, "r-a") is None
    assert await here.store.find(LOCAL.own, "r-b") is not None
    assert len(await here.conversations.messages(LOCAL.own, "s", limit=EVER)) == 4


def test_every_query_of_an_erasure_carries_the_tenant_unless_it_names_an_execution() -> None:
    for name, statement in vars(erasure).items():
        if isinstance(statement, Statement):
            sql = statement.compiled("sqlite").sql
            assert "tenant = ?" in sql or "execution_id = ?" in sql, name
