"""Suspended executions: their questions and answers, and that nothing acts twice meanwhile."""

from typing import Any

import pytest

from portico.adapters.tools.builtin import ask_person
from portico.capabilities.tools.definition import tool
from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.events import ExecutionResumed, LifecycleTransition, ToolStart
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.orchestration.execution.execution import Execution
from portico.orchestration.runtime.resume import GivenAnswer, select_suspensions
from portico.ports.journal import ExecutionHistory
from portico.ports.tool import ToolContext, ToolError
from tests.support.harness import (
    answer_suspension,
    chat_request,
    make_harness,
    open_suspensions,
    replay_offline,
    response_of,
    scripted_engine,
)
from tests.support.send_tool import SEND, sending
from tests.support.virtual_time import VirtualClock

ASKED = {"tool_calls": [{"name": "ask_person", "arguments": {"question": "really?"}}]}


def starts(record: ExecutionHistory) -> int:
    return sum(isinstance(item.event, ToolStart) for item in record.events)


async def test_a_person_is_asked_and_the_answer_is_the_result_of_the_call(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", ASKED), tools=[ask_person])
    response, record = await here.run(chat_request())
    [suspension] = response.suspensions
    assert (response.state, suspension.kind, suspension.tool_id) == (State.SUSPENDED, "question", "ask_person")
    assert suspension.value == {"question": "really?"}
    assert (response.tool_calls_made[0].status, response.tool_calls_made[0].result) == ("waiting", None)
    assert replay_offline(record) == len(record.steps)

    await clock.sleep(86_400)
    elsewhere = make_harness(clock, scripted_engine(clock, "a", {"text": "then no"}), tools=[ask_person])
    response, after = await elsewhere.resume(record, {"no": [1]})
    assert (response.state, response.content) == (State.COMPLETE, "then no")
    assert (response.tool_calls_made[0].result, response.tool_calls_made[0].attempts) == ('{"no":[1]}', 1)
    assert starts(after) == 1
    assert [item.event.tool_id for item in after.events if isinstance(item.event, ExecutionResumed)] == ["ask_person"]
    assert replay_offline(after) == len(after.steps)


async def test_siblings_run_once_and_all_questions_wait_together(clock: VirtualClock) -> None:
    acts: list[str] = []

    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def look() -> str:
        """Look."""
        acts.append("look")
        return "seen"

    calls = {"tool_calls": [ASKED["tool_calls"][0], {"name": "look"}, ASKED["tool_calls"][0]]}
    here = make_harness(clock, scripted_engine(clock, "a", calls), tools=[ask_person, look])
    response, record = await here.run(chat_request())
    first, second = response.suspensions
    assert [(call.status, call.result) for call in response.tool_calls_made] == [
        ("waiting", None),
        ("done", "seen"),
        ("waiting", None),
    ]
    with pytest.raises(RequestFailure) as ambiguous:
        select_suspensions(open_suspensions(record), [GivenAnswer(payload="", tool_id="ask_person")])
    assert ambiguous.value.code is Code.REQUEST_RESUME_MISMATCH

    half = answer_suspension(clock, record, "b", second.suspension_id)
    assert [each.suspension_id for each in open_suspensions(half)] == [first.suspension_id]
    elsewhere = make_harness(clock, scripted_engine(clock, "a", {"text": "done"}), tools=[ask_person, look])
    response, after = await elsewhere.resume(half, "a")
    assert response.content == "done"
    assert [call.result for call in response.tool_calls_made] == ["a", "seen", "b"]
    assert acts == ["look"]
    assert open_suspensions(after) == []
    assert replay_offline(after) == len(after.steps)


@pytest.mark.parametrize(
    ("side_effects", "idempotent"), [(SideEffects.READ, True), (SideEffects.WRITE, False)], ids=["safe", "unsafe"]
)
async def test_a_call_goes_on_with_the_answers_and_the_state_of_its_questions(
    clock: VirtualClock, side_effects: SideEffects, idempotent: bool
) -> None:
    """Each question is asked once, in any process, and all of it is one attempt at the call."""
    seen: list[tuple[str, Any] | None] = []

    @tool(side_effects=side_effects, idempotent=idempotent)
    async def order(context: ToolContext) -> str:
        """Order."""
        given = context.continuation
        seen.append(None if given is None else (given.state, given.answer))
        if len(seen) < 3:
            raise ToolError.suspend(f"question {len(seen)}", f"state {len(seen)}")
        return "ordered"

    here = make_harness(clock, scripted_engine(clock, "a", {"tool_calls": [{"name": "order"}]}), tools=[order])
    response, record = await here.run(chat_request())
    assert [each.value for each in response.suspensions] == ["question 1"]
    response, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[order]).resume(record, "large")
    assert [each.value for each in response.suspensions] == ["question 2"]
    assert replay_offline(record) == len(record.steps)
    elsewhere = make_harness(clock, scripted_engine(clock, "a", {"text": "done"}), tools=[order])
    response, after = await elsewhere.resume(record, {"colour": "red"})
    assert (response.state, seen) == (State.COMPLETE, [None, ("state 1", "large"), ("state 2", {"colour": "red"})])
    assert (response.tool_calls_made[0].result, response.tool_calls_made[0].attempts) == ("ordered", 1)
    assert replay_offline(after) == len(after.steps)


@pytest.mark.parametrize(
    ("payload", "result", "acted", "status"),
    [
        ({"decision": "approve"}, "sent to bob", ["bob"], "done"),
        ({"decision": "deny"}, "not approved", [], "not_run"),
        ({"decision": "deny", "reason": "not him"}, "not approved: not him", [], "not_run"),
    ],
)
async def test_an_external_call_waits_for_approval(
    clock: VirtualClock, payload: Any, result: str, acted: list[str], status: str
) -> None:
    acts: list[str] = []
    here = make_harness(clock, scripted_engine(clock, "a", SEND), tools=[sending(acts)])
    response, record = await here.run(chat_request())
    [suspension] = response.suspensions
    assert (suspension.kind, acts, starts(record)) == ("approval", [], 0)
    assert [(call.status, call.result) for call in response.tool_calls_made] == [("waiting", None)]
    assert suspension.arguments_digest
    elsewhere = make_harness(clock, scripted_engine(clock, "a", {"text": "done"}), tools=[sending(acts)])
    response, after = await elsewhere.resume(record, payload)
    [call] = response.tool_calls_made
    assert (call.result, call.status, acts) == (result, status, acted)
    assert replay_offline(after) == len(after.steps)


@pytest.mark.parametrize("payload", [None, {}, {"decision": "yes"}, {"decision": "approve", "more": 1}, "approve"])
async def test_an_answer_of_another_form_is_refused_by_name_and_changes_nothing(
    clock: VirtualClock, payload: Any
) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", SEND), tools=[sending([])])
    _, record = await here.run(chat_request())
    with pytest.raises(RequestFailure) as refused:
        answer_suspension(clock, record, payload)
    assert refused.value.code is Code.REQUEST_INVALID
    assert refused.value.details["errors"][0]["field"].startswith("payload")
    assert len(open_suspensions(record)) == 1


async def test_an_unsafe_call_that_failed_waits_for_approval_when_it_is_asked_for_again(clock: VirtualClock) -> None:
    acts: list[str] = []

    @tool(side_effects=SideEffects.WRITE, idempotent=False)
    async def write(to: str) -> str:
        """Write."""
        acts.append(to)
        raise ToolError("full")

    def writes(to: str) -> dict[str, Any]:
        return {"tool_calls": [{"name": "write", "arguments": {"to": to}}]}

    here = make_harness(clock, scripted_engine(clock, "a", writes("x"), writes("y"), writes("x")), tools=[write])
    response, record = await here.run(chat_request())
    assert (acts, [each.kind for each in response.suspensions]) == (["x", "y"], ["approval"])
    assert replay_offline(record) == len(record.steps)


async def test_what_may_have_happened_is_decided_by_a_person_and_used_once(clock: VirtualClock) -> None:
    acts: list[str] = []
    run, happened = {"decision": "run"}, {"decision": "happened", "result": "ok"}
    _, record = await make_harness(clock, scripted_engine(clock, "a", SEND), tools=[sending(acts)]).run(chat_request())
    for payload in ({"decision": "approve"}, run, run):
        slow = sending(acts, seconds=100, clock=clock)
        response, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[slow]).resume(record, payload)
        assert [each.kind for each in response.suspensions] == ["unknown_outcome"]
        assert replay_offline(record) == len(record.steps)
    last = make_harness(clock, scripted_engine(clock, "a", {"text": "done"}), tools=[sending(acts)])
    response, record = await last.resume(record, happened)
    assert (response.content, response.tool_calls_made[0].result) == ("done", "ok")
    assert (len(acts), starts(record)) == (3, 1)
    assert replay_offline(record) == len(record.steps)


async def test_giving_up_tells_the_model_that_the_outcome_is_unknown(clock: VirtualClock) -> None:
    slow = sending([], seconds=100, clock=clock)
    _, record = await make_harness(clock, scripted_engine(clock, "a", SEND), tools=[slow]).run(chat_request())
    _, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[slow]).resume(
        record, {"decision": "approve"}
    )
    last = make_harness(clock, scripted_engine(clock, "a", {"text": "pity"}), tools=[slow])
    response, record = await last.resume(record, {"decision": "give_up"})
    assert (response.content, response.tool_calls_made[0].status) == ("pity", "failed")
    assert replay_offline(record) == len(record.steps)


async def test_a_suspended_execution_can_be_cancelled(clock: VirtualClock) -> None:
    _, record = await make_harness(clock, scripted_engine(clock, "a", ASKED), tools=[ask_person]).run(chat_request())
    here = make_harness(clock, scripted_engine(clock, "a"), tools=[ask_person])
    here.journal.attach(record)
    execution = Execution(record.header, environment=here.environment, journal=here.journal, history=record)
    execution.stop(Code.CANCELLED_TIMEOUT, "no answer came in time")
    await here.drive(execution)
    assert (response_of(execution).state, response_of(execution).suspensions) == (State.CANCELLED, [])
    after = here.record(execution)
    moves = [item.event for item in after.events if isinstance(item.event, LifecycleTransition)]
    assert (moves[-1].from_state, moves[-1].to_state) == (State.SUSPENDED, State.CANCELLED)
    assert replay_offline(after) == len(after.steps)


@pytest.mark.parametrize(
    ("asked", "statuses"),
    [
        (SEND, [("not_run", "not run: the execution ended")]),
        (ASKED, [("failed", "cancelled while it ran")]),
        (
            {"tool_calls": [*ASKED["tool_calls"], {"name": "look"}]},
            [("failed", "cancelled while it ran"), ("done", "seen")],
        ),
    ],
    ids=["approval", "question", "sibling"],
)
async def test_no_call_of_an_ended_execution_waits(
    clock: VirtualClock, asked: dict[str, Any], statuses: list[tuple[str, str]]
) -> None:
    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def look() -> str:
        """Look."""
        return "seen"

    tools = [ask_person, sending([]), look]
    _, record = await make_harness(clock, scripted_engine(clock, "a", asked), tools=tools).run(chat_request())
    here = make_harness(clock, scripted_engine(clock, "a"), tools=tools)
    here.journal.attach(record)
    execution = Execution(record.header, environment=here.environment, journal=here.journal, history=record)
    execution.stop(Code.CANCELLED_SIGNAL, "cancelled by the client")
    await here.drive(execution)
    assert [(call.status, call.result) for call in response_of(execution).tool_calls_made] == statuses
    assert all(call.is_error is (call.status != "done") for call in response_of(execution).tool_calls_made)


async def test_an_unknown_tool_and_a_call_beyond_the_limit_of_a_reply_are_not_run(clock: VirtualClock) -> None:
    unknown = {"tool_calls": [{"name": "look"}, {"name": "look"}]}
    here = make_harness(clock, scripted_engine(clock, "a", unknown, {"text": "done"}), calls_per_reply=1)
    response, _ = await here.run(chat_request())
    assert [(call.status, call.result) for call in response.tool_calls_made] == [
        ("not_run", "no such tool"),
        ("not_run", "not run: only 1 calls of one reply run"),
    ]


async def test_the_time_of_waiting_is_no_running_time(clock: VirtualClock) -> None:
    slow = scripted_engine(clock, "a", {**ASKED, "delay": 50})
    _, record = await make_harness(clock, slow, tools=[ask_person], timeout=100).run(chat_request())
    await clock.sleep(1_000)
    late = scripted_engine(clock, "a", {"text": "never", "delay": 60})
    response, after = await make_harness(clock, late, tools=[ask_person], timeout=100).resume(record, "yes")
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_TIMEOUT
    assert after.events[-1].at - record.events[-1].at == pytest.approx(1_050, abs=1)
