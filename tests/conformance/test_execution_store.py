"""Conformance of the execution store on every database."""

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest
from sqlalchemy import bindparam, update

from portico.adapters.stores import sessions
from portico.adapters.stores.database import Statement, execute
from portico.adapters.stores.executions import queries, retention
from portico.adapters.stores.executions.retention import RetentionLimits
from portico.adapters.stores.schema import commits
from portico.domain.access.principal import LOCAL, AccessScope
from portico.domain.contract.messages import Message, ModelMessage
from portico.domain.failures import Code, RequestFailure, StorageFailure
from portico.domain.journal.events import ExecutionResumed, ExecutionSuspended, ToolEnd
from portico.domain.journal.fork import Fork
from portico.domain.lifecycle import Mode, State
from portico.ports.journal import IdempotencyClaim
from portico.ports.runtime import Clock
from portico.ports.storage import ExecutionFilter, SessionHistory, SuspensionAnswers
from tests.support.examples import (
    COMPLETED,
    ENDED,
    FAILED,
    MOVED,
    STARTED,
    SUSPENDED,
    SUSPENSION,
    header,
    recorded_step,
    response,
    unnumbered,
)
from tests.support.stored_executions import EVER, all_suspensions, answered, begun, journaled, moved, refused, suspended
from tests.support.stores import StoreReplica


async def test_an_execution_is_found_with_its_status(here: StoreReplica, clock: Clock) -> None:
    await here.journal.open(journaled("a", "r-a", session_id="s-1"))
    new = await here.store.find(LOCAL.own, "r-a")
    assert new is not None
    assert (new.execution_id, new.session_id, new.mode, new.owner, new.epoch) == ("a", "s-1", Mode.CHAT, "replica", 1)
    assert (new.status.state, new.status.total_steps, new.status.response) == (State.INIT, 0, None)
    here.journal.put("a", [recorded_step("0")], unnumbered(STARTED))
    here.journal.put("a", [recorded_step("0/0")], unnumbered(moved(State.VALIDATE)))
    here.journal.put("a", (), unnumbered(ToolEnd("t", "c", 1.0, success=False, error_code=Code.TOOL_TIMEOUT)))
    await here.journal.durable("a")
    live = await here.store.find(LOCAL.own, "r-a")
    assert live is not None
    assert (live.status.state, live.status.attempt, live.status.total_steps) == (State.VALIDATE, 1, 1)
    assert (live.status.last_step, live.status.last_error) == ("round 1", Code.TOOL_TIMEOUT)
    assert live.status.entered_at == pytest.approx(clock.now(), abs=1)
    assert live.last_sequence_number == 3
    here.journal.put("a", (), unnumbered(moved(State.ERROR), FAILED))
    await here.journal.durable("a")
    over = await here.store.find(LOCAL.own, "r-a")
    assert over is not None
    assert (over.status.state, over.status.ended, over.owner) == (State.ERROR, True, None)
    assert over.status.last_error is Code.INFERENCE_MODEL_UNAVAILABLE
    assert over.status.response == FAILED.response


def test_every_query_carries_the_tenant() -> None:
    over_all = {
        "CLAIM",
        "COMMITS",
        "RELEASE",
        "ORPHANED",
        "CANCEL_REQUESTED",
        "COUNT_WAITING",
        "EXPIRED",
        "WITH_HISTORY",
        "WITHOUT_HISTORY",
        "IDLE_SESSIONS",
        "DELETE_OLD_IDEMPOTENCY_KEYS",
    }
    pages = {
        f"page {form}": queries.page(form)
        for form in (queries.PageForm(), queries.PageForm(1, 1, by_prefix=True, by_origin=True, for_user=True))
    }
    for statements in (vars(queries), vars(sessions), pages):
        for name, statement in statements.items():
            if isinstance(statement, Statement) and name not in over_all:
                sql = statement.compiled("sqlite").sql
                assert "tenant = ?" in sql or sql.startswith("INSERT INTO sessions (tenant, "), name


async def test_executions_are_listed_newest_first_in_pages_and_filtered(here: StoreReplica) -> None:
    for number in range(7):
        await begun(here, f"e-{number}", f"r-{number}", moved(State.COMPLETE if number % 2 else State.VALIDATE))
    pages: list[Sequence[str]] = []
    after: str | None = None
    while True:
        page = await here.store.executions(LOCAL.own, ExecutionFilter(), after=after, limit=3)
        pages.append([each.request_id for each in page.items])
        after = page.next
        if after is None:
            break
    assert pages == [["r-6", "r-5", "r-4"], ["r-3", "r-2", "r-1"], ["r-0"]]

    async def listed(selection: ExecutionFilter) -> list[str]:
        return [each.request_id for each in (await here.store.executions(LOCAL.own, selection, limit=EVER)).items]

    assert await listed(ExecutionFilter((State.COMPLETE,))) == ["r-5", "r-3", "r-1"]
    assert len(await listed(ExecutionFilter((State.COMPLETE, State.VALIDATE)))) == 7
    assert await listed(ExecutionFilter((State.ERROR, State.SUSPENDED))) == []
    assert await listed(ExecutionFilter(mode=Mode.PLAN)) == []
    assert await listed(ExecutionFilter((State.VALIDATE,), Mode.CHAT)) == ["r-6", "r-4", "r-2", "r-0"]
    await here.journal.open(journaled("e-9", "r-9", session_id="s"))
    assert await listed(ExecutionFilter(session_id="s")) == ["r-9"]
    assert await listed(ExecutionFilter(prefix="r-")) == ["r-9", *(f"r-{number}" for number in range(6, -1, -1))]
    assert await listed(ExecutionFilter(prefix="s")) == ["r-9"]
    assert await listed(ExecutionFilter((State.COMPLETE,), prefix="r-5", oldest_first=True)) == ["r-5"]
    forked = replace(journaled("e-f", "r-f"), fork=Fork("r-1", 2))
    await here.journal.open(forked)
    (found,) = (await here.store.executions(LOCAL.own, ExecutionFilter(origin="r-1"), limit=9)).items
    assert (found.request_id, found.origin, found.origin_step) == ("r-f", "r-1", 2)
    assert await listed(ExecutionFilter(origin="r-2")) == []


@pytest.mark.parametrize("hostile", ["' OR 1=1 --", "state", "\ud7ff", "\U0010ffff", '"; DROP TABLE commits; --'])
async def test_client_input_is_only_used_as_a_value(here: StoreReplica, hostile: str) -> None:
    await begun(here, "a", "r-a", MOVED)
    assert await here.store.find(LOCAL.own, hostile) is None
    assert (await here.store.executions(LOCAL.own, ExecutionFilter(session_id=hostile), limit=9)).items == []
    assert (await here.store.executions(LOCAL.own, ExecutionFilter(prefix=hostile), limit=9)).items == []
    assert (await here.store.executions(LOCAL.own, ExecutionFilter(origin=hostile), limit=9)).items == []
    await here.store.executions(LOCAL.own, ExecutionFilter(), after=hostile, limit=9)
    assert await here.store.find(AccessScope(hostile), "r-a") is None
    assert await here.store.find(AccessScope("local", hostile), "r-a") is None
    assert (await here.store.executions(AccessScope("local", hostile), ExecutionFilter(), limit=9)).items == []
    assert await here.store.find(LOCAL.own, "r-a") is not None


async def test_events_are_read_in_pages_after_any_number(here: StoreReplica) -> None:
    await here.journal.open(journaled("a"))
    for _ in range(5):
        here.journal.put("a", (), unnumbered(MOVED, STARTED, ENDED))
    await here.journal.durable("a")
    whole = await here.store.events("local", "a", limit=EVER)
    assert [each.sequence_number for each in whole] == list(range(1, 16))
    assert [each.event for each in whole[:3]] == [MOVED, STARTED, ENDED]
    for after in range(17):
        assert list(await here.store.events("local", "a", after=after, limit=4)) == list(
            whole[after : -(-(after + 4) // 3) * 3]
        )


async def test_a_commit_is_decoded_once_however_many_pages_its_events_would_be(here: StoreReplica) -> None:
    await here.journal.open(journaled("a"))
    here.journal.put("a", (), unnumbered(*[MOVED, STARTED, ENDED] * 100))
    await here.journal.durable("a")
    pages, last = [], 0
    while page := await here.store.events("local", "a", after=last, limit=10):
        pages.append([each.sequence_number for each in page])
        last = pages[-1][-1]
    assert pages == [list(range(1, 301))]
    assert [each.sequence_number for each in await here.store.events("local", "a", after=295, limit=2)] == [
        *range(296, 301)
    ]


async def test_a_history_is_loaded_whole_by_any_replica(here: StoreReplica, there: StoreReplica) -> None:
    opened = journaled("a")
    await here.journal.open(opened)
    here.journal.put("a", [recorded_step("prepare")], unnumbered(MOVED))
    here.journal.put("a", [recorded_step("0")], unnumbered(STARTED, ENDED))
    await here.journal.durable("a")
    record = await there.store.load("local", "a")
    assert record is not None
    assert record.header == opened
    assert list(record.steps) == ["prepare", "0"]
    assert [each.sequence_number for each in record.events] == [1, 2, 3]
    assert (record.commit_count, record.epoch) == (2, 1)
    assert [item for _, item in here.sink.published] == list(record.events)


async def test_only_suspended_executions_have_open_suspensions(here: StoreReplica) -> None:
    await suspended(here, "a", "1", "2/0")
    await suspended(here, "b")
    pending = await all_suspensions(here)
    assert [(each.execution_id, each.request_id, each.suspension.suspension_id) for each in pending] == [
        ("a", "r-a", "1"),
        ("a", "r-a", "2/0"),
        ("b", "r-b", "1"),
    ]
    assert pending[2].suspension == SUSPENSION.model_copy(update={"suspension_id": "1"})
    found = await here.store.find(LOCAL.own, "r-a")
    assert found is not None
    assert [each.suspension_id for each in found.suspensions] == ["1", "2/0"]
    assert (found.status.state, found.owner) == (State.SUSPENDED, None)


async def test_an_execution_suspended_in_memory_is_stored_and_answered_like_others(
    here: StoreReplica,
) -> None:
    await here.journal.open(header("a", "r-a"))
    here.journal.put("a", [recorded_step("0")], unnumbered(MOVED))
    asked = tuple(SUSPENSION.model_copy(update={"suspension_id": each}) for each in ("1", "2"))
    last = ExecutionSuspended(asked, response(State.SUSPENDED))
    here.journal.put("a", (), unnumbered(moved(State.SUSPENDED), last))
    await here.journal.durable("a")
    here.journal.close("a")
    found = await here.store.find(LOCAL.own, "r-a")
    assert found is not None
    assert list(found.suspensions) == list(asked)
    assert (found.status.state, found.owner) == (State.SUSPENDED, None)
    assert [
        (await here.store.answer("local", "a", SuspensionAnswers([answered(each)]))).open_suspensions for each in "21"
    ] == [
        1,
        0,
    ]
    record = await here.store.load("local", "a")
    assert record is not None
    assert list(record.steps) == ["0", "2", "1"]


async def test_events_of_an_answer_are_published_after_its_commit(here: StoreReplica) -> None:
    await suspended(here, "a", "1", "2")
    resumed = ExecutionResumed("1", SUSPENSION.kind, SUSPENSION.tool_id, "client")
    await here.store.answer("local", "a", SuspensionAnswers([answered("1")], unnumbered(resumed)))
    with pytest.raises(RequestFailure):
        await here.store.answer("local", "a", SuspensionAnswers([answered("1")], unnumbered(resumed)))
    assert [item for _, item in here.sink.published] == list(await here.store.events("local", "a", limit=EVER))
    assert here.sink.sequence_numbers("a") == [1, 2, 3]


async def test_answers_are_recorded_steps_and_accepted_once_in_any_order(here: StoreReplica) -> None:
    await suspended(here, "a", "1", "2")
    first = await here.store.answer("local", "a", SuspensionAnswers([answered("2")]))
    assert (first.open_suspensions, first.epoch) == (1, 1)
    await refused(Code.REQUEST_RESUME_MISMATCH, here.store.answer("local", "a", SuspensionAnswers([answered("2")])))
    await refused(Code.REQUEST_RESUME_MISMATCH, here.store.answer("local", "a", SuspensionAnswers([answered("3")])))
    second = await here.store.answer("local", "a", SuspensionAnswers([answered("1")], unnumbered(MOVED)))
    assert second.open_suspensions == 0
    record = await here.store.load("local", "a")
    assert record is not None
    assert record.steps == {"2": answered("2"), "1": answered("1")}
    assert [each.sequence_number for each in record.events] == [1, 2, 3]
    assert record.commit_count == 3
    assert await all_suspensions(here) == []


async def test_answers_that_come_together_are_recorded_in_one_transaction_or_not_at_all(here: StoreReplica) -> None:
    await suspended(here, "a", "1", "2", "3")
    before = await here.store.load("local", "a")
    resumed = unnumbered(*(ExecutionResumed(each, SUSPENSION.kind, SUSPENSION.tool_id, "client") for each in "13"))
    for other in ("4", "1"):  # one that is not open, and one that is answered twice
        steps = [answered("1"), answered(other)]
        await refused(
            Code.REQUEST_RESUME_MISMATCH, here.store.answer("local", "a", SuspensionAnswers(steps, resumed), claim=True)
        )
    assert await here.store.load("local", "a") == before
    assert len(await all_suspensions(here)) == 3

    first = await here.store.answer(
        "local", "a", SuspensionAnswers([answered("1"), answered("3")], resumed), claim=True
    )
    assert (first.open_suspensions, first.epoch, first.commit_count) == (1, 1, 3)
    last = await here.store.answer("local", "a", SuspensionAnswers([answered("2")]), claim=True)
    assert (last.open_suspensions, last.epoch, last.commit_count) == (0, 2, 4)
    record = await here.store.load("local", "a")
    assert record is not None
    assert list(record.steps) == ["1", "3", "2"]
    assert [each.event for each in first.events] == [event for _, _, event in resumed]
    assert [each.sequence_number for each in record.events] == [1, 2, 3, 4]
    assert record.commit_count == 4


async def test_a_suspended_execution_is_read_with_its_open_suspensions_and_continues_with_the_last_answer(
    here: StoreReplica,
) -> None:
    await suspended(here, "a", "1", "2")
    states = []
    for answer in (None, "2", "1"):
        if answer is not None:
            await here.store.answer("local", "a", SuspensionAnswers([answered(answer)]), claim=True)
        found = await here.store.find(LOCAL.own, "r-a")
        page = await here.store.executions(LOCAL.own, ExecutionFilter(), limit=EVER)
        assert list(page.items) == [found]
        is_answerable = found.status.response is not None
        states.append((found.status.state, [each.suspension_id for each in found.suspensions], is_answerable))
    assert states == [
        (State.SUSPENDED, ["1", "2"], True),
        (State.SUSPENDED, ["1"], True),
        (State.EXECUTE, [], False),
    ]


async def test_one_of_two_concurrent_answers_is_accepted(here: StoreReplica) -> None:
    for execution_id in map(str, range(8)):
        await suspended(here, execution_id)
        taken: list[object] = []

        async def answer(execution_id: str = execution_id, taken: list[object] = taken) -> None:
            try:
                taken.append(await here.store.answer("local", execution_id, SuspensionAnswers([answered()])))
            except RequestFailure as failure:
                taken.append(failure.code)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(answer)
        assert sorted(isinstance(each, Code) for each in taken) == [False, True, True]
        record = await here.store.load("local", execution_id)
        assert record is not None
        assert record.commit_count == 2


async def test_a_running_execution_refuses_answers(here: StoreReplica) -> None:
    await begun(here, "a", "r-a", MOVED)
    await refused(Code.REQUEST_RESUME_UNEXPECTED, here.store.answer("local", "a", SuspensionAnswers([answered()])))
    await refused(
        Code.REQUEST_RESUME_UNEXPECTED, here.store.answer("local", "unknown", SuspensionAnswers([answered()]))
    )
    record = await here.store.load("local", "a")
    assert record is not None
    assert record.commit_count == 1


async def test_a_claimed_execution_refuses_answers_and_further_claims(here: StoreReplica, there: StoreReplica) -> None:
    await suspended(here, "a")
    claims = [await each.store.claim("a", 1) for each in (here, there)]
    assert claims[0] is not None
    assert (claims[0].epoch, claims[1]) == (2, None)
    await refused(Code.REQUEST_RESUME_UNEXPECTED, there.store.answer("local", "a", SuspensionAnswers([answered()])))
    assert await all_suspensions(here) == []


async def test_the_last_answer_claims_the_execution_in_the_same_transaction(
    here: StoreReplica, there: StoreReplica
) -> None:
    await suspended(here, "a")
    before = await here.store.load("local", "a")
    receipt = await here.store.answer("local", "a", SuspensionAnswers([answered()]), claim=True)
    found = await there.store.find(LOCAL.own, "r-a")
    after = await there.store.load("local", "a")
    assert before is not None
    assert found is not None
    assert after is not None
    assert (receipt.open_suspensions, receipt.epoch) == (0, 2)
    assert (found.owner, found.epoch, found.status.state) == (here.name, 2, State.EXECUTE)
    assert receipt.commit_count == after.commit_count == before.commit_count + 1
    assert await there.store.claim("a", 1) is None


async def test_a_suspended_execution_that_is_being_ended_refuses_answers(here: StoreReplica) -> None:
    await suspended(here, "a")
    record = await here.store.claim("a", 1)
    assert record is not None
    here.journal.attach(record)
    here.journal.put("a", [recorded_step("stop")], [])
    await here.journal.durable("a")
    found = await here.store.find(LOCAL.own, "r-a")
    assert found is not None
    assert (found.status.state, found.owner) == (State.SUSPENDED, here.name)
    await refused(Code.REQUEST_RESUME_UNEXPECTED, here.store.answer("local", "a", SuspensionAnswers([answered()])))
    here.journal.put("a", (), unnumbered(moved(State.CANCELLED), COMPLETED))
    await here.journal.durable("a")
    assert here.losses.lost == {}


async def test_an_expired_question_refuses_answers(here: StoreReplica, clock: Clock) -> None:
    past = SUSPENSION.model_copy(update={"expires_at": SUSPENSION.expires_at.replace(year=2020)})
    await begun(here, "a", "r-a", moved(State.SUSPENDED), ExecutionSuspended((past,), response(State.SUSPENDED)))
    await suspended(here, "b")
    await refused(Code.REQUEST_RESUME_MISMATCH, here.store.answer("local", "a", SuspensionAnswers([answered()])))
    assert [each.execution_id for each in await here.store.expired()] == ["a"]


async def test_an_ended_execution_is_not_claimed(here: StoreReplica) -> None:
    await begun(here, "a", "r-a", moved(State.COMPLETE), COMPLETED)
    assert await here.store.claim("a", 1) is None
    assert await here.store.claim("unknown", 1) is None


async def test_a_claimed_execution_continues_where_it_was(here: StoreReplica, there: StoreReplica) -> None:
    await begun(here, "a", "r-a", MOVED)
    record = await there.store.claim("a", 1)
    assert record is not None
    there.journal.attach(record)
    there.journal.put("a", [recorded_step("0")], unnumbered(STARTED))
    there.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED))
    await there.journal.durable("a")
    after = await here.store.load("local", "a")
    assert after is not None
    assert [each.sequence_number for each in after.events] == [1, 2, 3, 4]
    assert there.sink.sequence_numbers("a") == [2, 3, 4]
    found = await here.store.find(LOCAL.own, "r-a")
    assert found is not None
    assert (found.status.total_steps, found.status.state) == (1, State.COMPLETE)


async def test_writes_of_an_earlier_owner_are_refused_and_affect_no_other_execution(
    here: StoreReplica, there: StoreReplica
) -> None:
    await begun(here, "a", "r-a", MOVED)
    await begun(here, "b", "r-b", MOVED)
    assert await there.store.claim("a", 1) is not None
    here.journal.put("a", [recorded_step("0")], unnumbered(STARTED))
    here.journal.put("b", [recorded_step("0")], unnumbered(STARTED))
    await here.journal.durable("b")
    with pytest.raises(StorageFailure):
        await here.journal.durable("a")
    assert list(here.losses.lost) == ["a"]
    assert here.sink.sequence_numbers("a") == [1]
    assert here.sink.sequence_numbers("b") == [1, 2]
    here.journal.put("a", [recorded_step("1")], unnumbered(ENDED))
    here.journal.put("b", [recorded_step("1")], unnumbered(ENDED))
    await here.journal.durable("b")
    record = await here.store.load("local", "a")
    assert record is not None
    assert (len(record.events), record.steps) == (1, {})


async def test_orphaned_executions_are_found(here: StoreReplica) -> None:
    await begun(here, "running", "r-1", MOVED)
    await suspended(here, "waiting")
    await suspended(here, "answered")
    await begun(here, "over", "r-2", moved(State.COMPLETE), COMPLETED)
    await here.store.answer("local", "answered", SuspensionAnswers([answered()]))
    assert [each.execution_id for each in await here.store.orphaned({"replica"})] == ["answered"]
    assert [each.execution_id for each in await here.store.orphaned({"other"})] == ["answered", "running"]


async def purge(here: StoreReplica, ended_before: float, *, limit: int) -> int:
    return await retention.purge(here.database, RetentionLimits(ended_before, 0.0), limit=limit, now=ended_before)


async def test_old_histories_are_purged_and_responses_stay(here: StoreReplica, clock: Clock) -> None:
    for number in range(3):
        await begun(here, f"over-{number}", f"r-{number}", moved(State.COMPLETE), COMPLETED)
    await begun(here, "live", "r-9", MOVED)
    assert await purge(here, clock.now() - 60, limit=10) == 0
    assert await purge(here, clock.now() + 1, limit=2) == 2
    assert await purge(here, clock.now() + 1, limit=2) == 1
    assert await purge(here, clock.now() + 1, limit=2) == 0
    assert await here.store.load("local", "over-0") is None
    assert await here.store.events("local", "over-0", limit=EVER) == []
    found = await here.store.find(LOCAL.own, "r-0")
    assert found is not None
    assert found.status.response == COMPLETED.response
    assert await here.store.load("local", "live") is not None


async def test_an_idempotency_key_belongs_to_its_first_request(here: StoreReplica, there: StoreReplica) -> None:
    claim = IdempotencyClaim("key", "digest")
    assert await here.journal.open(journaled("a", "r-a"), claim) is None
    earlier = await there.journal.open(journaled("b", "r-b"), claim)
    assert earlier is not None
    assert (earlier.execution_id, earlier.request_id, earlier.state, earlier.same_body) == (
        "a",
        "r-a",
        State.INIT,
        True,
    )
    here.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED))
    await here.journal.durable("a")
    again = await here.journal.open(journaled("c", "r-a"), IdempotencyClaim("key", "another"))
    assert again is not None
    assert (again.state, again.same_body) == (State.COMPLETE, False)
    assert await here.journal.open(journaled("d", "r-d", tenant="other"), claim) is None
    assert await here.store.find(LOCAL.own, "r-b") is None


async def test_a_refused_execution_leaves_its_key_and_its_session_free(here: StoreReplica) -> None:
    await here.journal.open(journaled("a", "same"))
    await refused(
        Code.REQUEST_ID_CONFLICT,
        here.journal.open(journaled("b", "same", session_id="s"), IdempotencyClaim("key", "digest")),
    )
    assert await here.conversations.session(LOCAL.own, "s") is None
    assert await here.journal.open(journaled("c", "r-c", session_id="s"), IdempotencyClaim("key", "digest")) is None


async def test_a_session_has_one_turn_at_a_time(here: StoreReplica, there: StoreReplica) -> None:
    await here.journal.open(journaled("a", "r-a", session_id="s"))
    await refused(Code.REQUEST_SESSION_BUSY, there.journal.open(journaled("b", "r-b", session_id="s")))
    await there.journal.open(journaled("c", "r-c", tenant="other", session_id="s"))
    here.journal.put("a", (), unnumbered(moved(State.SUSPENDED), SUSPENDED))
    await here.journal.durable("a")
    await refused(Code.REQUEST_RESUME_REQUIRED, there.journal.open(journaled("b", "r-b", session_id="s")))
    here.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED))
    await here.journal.durable("a")
    assert await there.journal.open(journaled("b", "r-b", session_id="s")) is None


async def test_one_of_many_concurrent_turns_begins(here: StoreReplica, there: StoreReplica) -> None:
    outcomes: list[object] = []

    async def open_(number: int) -> None:
        try:
            outcomes.append(
                await (here, there)[number % 2].journal.open(journaled(f"{number}", f"r-{number}", session_id="s"))
            )
        except RequestFailure as failure:
            outcomes.append(failure.code)

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(open_, number)
    assert outcomes.count(None) == 1
    assert outcomes.count(Code.REQUEST_SESSION_BUSY) == 9


async def test_messages_are_appended_in_the_last_commit_of_the_turn(here: StoreReplica, clock: Clock) -> None:
    messages = [
        Message(role="user", content="hello"),
        ModelMessage(role="assistant", content="hi", provider="p", kept=[{}]),
    ]
    for number in range(2):
        await here.journal.open(journaled(f"{number}", f"r-{number}", session_id="s"))
        here.journal.put(f"{number}", (), unnumbered(MOVED))
        await here.journal.durable(f"{number}")
        assert len(await here.conversations.messages(LOCAL.own, "s", limit=EVER)) == 2 * number
        here.journal.put(f"{number}", (), unnumbered(moved(State.COMPLETE), COMPLETED), messages)
        await here.journal.durable(f"{number}")
    assert list(await here.conversations.messages(LOCAL.own, "s", limit=EVER)) == messages * 2
    assert list(await here.conversations.messages(LOCAL.own, "s", after=1, limit=2)) == [messages[1], messages[0]]
    past = await here.conversations.history(LOCAL.own, "s", limit=3)
    assert (past.message_count, list(past.recent_messages), past.system_messages) == (4, [messages[1], *messages], ())
    assert await here.conversations.history(AccessScope("other"), "s", limit=3) == SessionHistory(0, [], ())
    assert await here.conversations.messages(AccessScope("other"), "s", limit=EVER) == []
    assert await here.conversations.authors(LOCAL.own, "s", limit=EVER) == ["0", "1"]
    assert await here.conversations.authors(LOCAL.own, "s", after=1, limit=1) == ["0"]
    assert await here.conversations.authors(AccessScope("other"), "s", limit=EVER) == []
    session = await here.conversations.session(LOCAL.own, "s")
    assert session is not None
    assert (session.message_count, session.busy, session.details) == (4, False, {})


async def test_sessions_are_listed_by_last_use_with_their_details(here: StoreReplica, clock: Clock) -> None:
    for number in range(5):
        opened = replace(
            journaled(f"{number}", f"r-{number}", session_id=f"s-{number}"), created_at=1000.0 + number // 2
        )
        await here.journal.open(opened)
    first = await here.conversations.sessions(LOCAL.own, limit=3)
    assert [each.session_id for each in first.items] == ["s-4", "s-3", "s-2"]
    second = await here.conversations.sessions(LOCAL.own, after=first.next, limit=3)
    assert ([each.session_id for each in second.items], second.next) == (["s-1", "s-0"], None)
    await here.conversations.update(LOCAL.own, "s-1", {"model": "m", "state": {"step": 1}})
    described = await here.conversations.update(LOCAL.own, "s-1", {"model": None, "preferences": [True]})
    assert described is not None
    assert (described.details, described.busy) == ({"state": {"step": 1}, "preferences": [True]}, True)
    assert await here.conversations.session(LOCAL.own, "s-1") == described
    assert await here.conversations.update(AccessScope("other"), "s-1", {}) is None
    assert await here.conversations.sessions(AccessScope("other"), limit=3) == await here.conversations.sessions(
        AccessScope("unknown"), limit=3
    )
    with pytest.raises(RequestFailure):
        await here.conversations.sessions(LOCAL.own, after="yesterday", limit=3)


async def test_a_deleted_session_leaves_nothing_and_its_running_execution_is_lost(here: StoreReplica) -> None:
    await here.journal.open(journaled("a", "r-a", session_id="s"), IdempotencyClaim("key", "digest"))
    here.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED), [Message(role="user", content="hello")])
    await here.journal.durable("a")
    here.journal.close("a")
    await here.journal.open(journaled("b", "r-b", session_id="s"))
    await begun(here, "other", "r-other", MOVED)
    assert await here.records.erase_session(AccessScope("other"), "s", with_forks=False) is None
    assert await here.records.erase_session(LOCAL.own, "s", with_forks=False) == []
    assert await here.records.erase_session(LOCAL.own, "s", with_forks=False) is None
    assert await here.conversations.session(LOCAL.own, "s") is None
    assert await here.conversations.messages(LOCAL.own, "s", limit=EVER) == []
    assert [each.request_id for each in (await here.store.executions(LOCAL.own, ExecutionFilter(), limit=9)).items] == [
        "r-other"
    ]
    assert await here.store.load("local", "a") is None
    here.journal.put("b", [recorded_step("0")], unnumbered(STARTED))
    with pytest.raises(StorageFailure):
        await here.journal.durable("b")
    assert await here.journal.open(journaled("c", "r-a", session_id="s"), IdempotencyClaim("key", "digest")) is None


async def test_a_foreign_record_is_refused(here: StoreReplica) -> None:
    await begun(here, "a", "r-a", MOVED)
    for forged in (b"\x80\x04\x95", b"[99,{}]", b'[1,{"execution_id":"b"}]'):
        await here.database.write(lambda forged=forged: execute(_FORGE, {"forged": forged}))
        with pytest.raises(StorageFailure) as caught:
            await here.store.load("local", "a")
        assert caught.value.code is Code.STORAGE_SNAPSHOT_INVALID


_FORGE = Statement(lambda _: update(commits).where(commits.c.number == 0).values(outcome=bindparam("forged")))
