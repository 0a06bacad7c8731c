"""Forks: the steps that they inherit are the recorded ones, and no effect in them is repeated."""

from dataclasses import replace
from typing import Any

import pytest

from portico.bootstrap.service import PATTERNS
from portico.domain.contract.messages import Message, Origin, TracedMessage
from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.outcomes import Prepared
from portico.domain.journal.step_key import PREPARE_KEY, RETRIEVAL_KEY, StepKey
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.orchestration.execution.execution import Execution
from portico.orchestration.runtime.fork import (
    ForkEdit,
    ForkRequest,
    fork_execution,
    inherited_steps,
    steps_of_fork,
)
from portico.orchestration.runtime.step_list import step_page
from portico.ports.journal import ExecutionHistory
from tests.support.harness import (
    Harness,
    chat_request,
    make_harness,
    replay_offline,
    response_of,
    scripted_engine,
)
from tests.support.memory import FixedMemory
from tests.support.send_tool import SEND, sending
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

ADDED = [{"role": "user", "content": "and now?"}]


async def fork(
    here: Harness, origin: ExecutionHistory, from_step: int, *, name: str = "fork", edits: Any = (), **overrides: Any
) -> tuple[Execution, ExecutionHistory]:
    """Return a fork at that step, once it has ended, and its history."""
    request = ForkRequest.model_validate({"from_step": from_step, "overrides": overrides, "edits": edits})
    header = here.execution(origin.header.request).header
    fresh = replace(header, execution_id=name, request_id=name, durability="journaled")
    header, steps = fork_execution(fresh, origin, from_step, request, tools=request.overrides.tools)
    await here.journal.open(header, steps=steps)
    history = ExecutionHistory(header, {step.key: step for step in steps}, ())
    execution = Execution(header, environment=here.environment, journal=here.journal, history=history)
    await here.drive(execution)
    return execution, here.record(execution)


ACT = {"tool_calls": [{"name": "act", "arguments": {}}]}


def unsafe() -> FakeTool:
    """Return a tool that must not run twice and needs no approval."""
    return FakeTool(side_effects=SideEffects.WRITE, idempotent=False)


async def acted(clock: VirtualClock, tool: FakeTool, *more: dict[str, Any]) -> tuple[Harness, ExecutionHistory]:
    """Return a harness and the history of an execution that ran the tool."""
    here = make_harness(clock, scripted_engine(clock, "a", ACT, {"text": "done"}, *more), tools=[tool])
    return here, (await here.run(chat_request()))[1]


async def test_inherited_steps_equal_the_recorded_ones_and_their_unsafe_calls_are_not_repeated(
    clock: VirtualClock,
) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"})
    await clock.sleep(86_400)
    execution, history = await fork(here, origin, 2, messages=ADDED)
    assert tool.run_count == 1
    assert (response_of(execution).content, response_of(execution).state) == ("again", State.COMPLETE)
    for step in inherited_steps(origin, 2):
        assert replace(history.steps[step.key], at=0.0) == replace(step, at=0.0)
    assert history.steps["2"].fingerprint != origin.steps["2"].fingerprint
    assert replay_offline(history) == len(history.steps)
    assert execution.correlation.caused_by == origin.header.request_id


async def test_an_unsafe_call_after_the_inherited_steps_runs_again(clock: VirtualClock) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"})
    await fork(here, origin, 1)
    assert tool.run_count == 2


async def test_no_step_takes_the_time_between_the_two_executions(clock: VirtualClock) -> None:
    here, origin = await acted(clock, unsafe(), {"text": "again"})
    await clock.sleep(86_400)
    _, history = await fork(here, origin, 2)
    times = [step.at for step in history.steps.values()]
    assert times == sorted(times)
    assert max(times) - history.header.created_at < 60
    last = list(origin.steps.values())[-1].at - origin.header.created_at
    assert last < 60


async def test_inherited_steps_move_with_the_creation_of_the_fork_so_that_the_last_ended_as_it_began(
    clock: VirtualClock,
) -> None:
    async def take_long(_arguments: object, _context: object) -> str:
        await clock.sleep(7)
        return "done"

    here, origin = await acted(clock, FakeTool(body=take_long))
    await clock.sleep(86_400)
    fresh = replace(here.execution(chat_request()).header, durability="journaled")
    request = ForkRequest.model_validate({"from_step": 2})
    header, steps = fork_execution(fresh, origin, 2, request, tools=None)
    before = inherited_steps(origin, 2)
    assert before[-1].at - origin.header.created_at >= 7
    assert [step.at - header.created_at for step in steps] == [
        pytest.approx(step.at - origin.header.created_at) for step in before
    ]
    assert max(step.at for step in steps) == pytest.approx(fresh.created_at)


async def test_an_unfinished_step_is_not_inherited(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", SEND), tools=[sending([])])
    _, origin = await here.run(chat_request())
    with pytest.raises(RequestFailure) as refused:
        inherited_steps(origin, 2)
    assert refused.value.code is Code.REQUEST_INVALID
    assert [step.key for step in inherited_steps(origin, 1)] == [
        PREPARE_KEY,
        *(key for key in origin.steps if key.startswith("0")),
    ]


async def test_a_fork_of_a_fork_inherits_the_inherited_steps(clock: VirtualClock) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"}, {"text": "and again"})
    _, first = await fork(here, origin, 2)
    execution, history = await fork(here, first, 2, name="fork of the fork", messages=ADDED)
    assert response_of(execution).content == "and again"
    assert tool.run_count == 1
    assert replay_offline(history) == len(history.steps)


async def test_a_fork_inherits_what_was_retrieved_and_does_not_search_again(clock: VirtualClock) -> None:
    memory = FixedMemory({"lamp": "The lamp is green."})
    engine = scripted_engine(clock, "a", ACT, {"text": "green"}, {"text": "still green"})
    here = make_harness(clock, engine, tools=[unsafe()])
    here.environment = replace(here.environment, memory=memory)
    _, origin = await here.run(chat_request("Which lamp?", context={"retrieve": True}))
    memory.documents.clear()
    execution, history = await fork(here, origin, 0, messages=ADDED)
    assert [step.key for step in inherited_steps(origin, 0)] == [RETRIEVAL_KEY, PREPARE_KEY]
    assert execution.header.inherited_messages == ()
    assert len(memory.searches) == 1
    assert [source.source for source in response_of(execution).metadata.sources] == ["lamp#1"]
    assert replay_offline(history) == len(history.steps)


async def test_a_fork_in_a_session_inherits_its_history_without_what_was_retrieved(clock: VirtualClock) -> None:
    here, origin = await acted(clock, unsafe())
    history = (Message(role="user", content="earlier"), Message(role="assistant", content="yes"))
    retrieved = TracedMessage(role="user", content="lamps", origin=Origin.RETRIEVED)
    own = Message(role="user", content="hello")
    prepared = origin.steps[PREPARE_KEY]
    assert isinstance(prepared.outcome, Prepared)
    found = replace(prepared.outcome, messages=(*history, retrieved, own), prior_message_count=2)
    steps = {**origin.steps, PREPARE_KEY: replace(prepared, outcome=found)}
    fresh = replace(here.execution(chat_request()).header, durability="journaled")
    request = ForkRequest.model_validate({"from_step": 1})
    header, _ = fork_execution(fresh, replace(origin, steps=steps), 1, request, tools=None)
    assert header.inherited_messages == history


def edits(*given: tuple[str, str]) -> list[ForkEdit]:
    return [ForkEdit(key=key, content=content) for key, content in given]


async def test_an_edited_result_is_read_instead_of_the_recorded_one_and_its_call_does_not_run(
    clock: VirtualClock,
) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"})
    execution, history = await fork(here, origin, 2, edits=[{"key": "1/0/0/0", "content": "refused", "is_error": True}])
    made = response_of(execution).tool_calls_made[0]
    assert tool.run_count == 1
    assert (made.result, made.is_error, made.edited, made.attempts) == ("refused", True, True, 1)
    assert [each.text for each in response_of(execution).messages] == ["", "refused", "again"]
    assert replay_offline(history) == len(history.steps)
    assert [step.key for step in step_page(history, PATTERNS).steps if step.edited] == ["1/0/0/0"]
    assert execution.ledger.has_untrusted_text


async def test_the_fork_of_an_edited_fork_keeps_the_edit(clock: VirtualClock) -> None:
    here, origin = await acted(clock, unsafe(), {"text": "again"}, {"text": "once more"})
    _, first = await fork(here, origin, 2, edits=[{"key": "1/0/0/0", "content": "refused"}])
    execution, history = await fork(here, first, 2, name="second", messages=ADDED)
    assert (response_of(execution).tool_calls_made[0].result, response_of(execution).content) == (
        "refused",
        "once more",
    )
    assert history.header.fork is not None
    assert history.header.fork.edited_keys == {"1/0/0/0"}
    assert replay_offline(history) == len(history.steps)


@pytest.mark.parametrize(
    ("from_step", "given", "refused"),
    [
        (2, ["0/0"], {"edits.0.key": "must be the key of the last attempt at a tool call in step 1"}),
        (2, ["1/0/0/0", "1/0/0/0"], {"edits.1.key": "is given twice"}),
        (1, ["1/0/0/0"], {"edits.0.key": "must be the key of the last attempt at a tool call in step 0"}),
        (0, ["1/0/0/0"], {"edits.0.key": "must be absent with the from_step 0, which inherits no call"}),
        (2, ["nothing", "1/0/0/0"], {"edits.0.key": "must be the key of the last attempt at a tool call in step 1"}),
    ],
)
async def test_an_edit_of_anything_but_a_result_of_the_last_inherited_step_is_refused(
    clock: VirtualClock, from_step: int, given: list[str], refused: dict[str, str]
) -> None:
    _, origin = await acted(clock, unsafe())
    with pytest.raises(RequestFailure) as raised:
        steps_of_fork(origin, from_step, edits(*((key, "x") for key in given)))
    assert {each["field"]: each["message"] for each in raised.value.details["errors"]} == refused


async def test_a_result_that_an_inherited_step_has_read_is_not_edited(clock: VirtualClock) -> None:
    _, origin = await acted(clock, unsafe())
    call = replace(origin.steps["1/0/0/0"], key=StepKey("1/0/1/0/0/0"))
    reader = replace(origin.steps["2/0"], key=StepKey("1/0/2/0"))
    at = list(origin.steps).index("2")
    steps = [*list(origin.steps.values())[:at], call, reader, *list(origin.steps.values())[at:]]
    history = replace(origin, steps={step.key: step for step in steps})
    with pytest.raises(RequestFailure, match="was read by another step"):
        steps_of_fork(history, 2, edits((call.key, "x")))
