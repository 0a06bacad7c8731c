"""Subplans: steps that are planned and run as steps of their own."""

from typing import Any

import pytest

from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import PlanCreated, StepStart
from portico.domain.lifecycle import State
from portico.ports.journal import ExecutionHistory
from tests.support.harness import chat_request, make_harness
from tests.support.passes import NOT_DONE, PhasesEngine, add, reasoning, refinements, run_passes
from tests.support.plans import error_code_of, step_of
from tests.support.virtual_time import VirtualClock

SUB = {"name": "outer", "type": "subplan", "input": "a task"}
NEST = {"name": "deep", "type": "subplan", "input": "a smaller task"}


def inner(*names: str) -> dict[str, Any]:
    return {"steps": [{"name": name, "type": "infer", "input": f"question of {name}"} for name in names]}


async def run(
    clock: VirtualClock, *steps: dict[str, Any], passes: int = 2, policy: Any = None, tools: Any = None, **scripts: Any
) -> tuple[SystemResponse, ExecutionHistory, PhasesEngine]:
    engine = PhasesEngine(clock, **scripts)
    request = reasoning(passes, steps or [SUB], plan={"policy": policy}, tools=tools)
    response, record = await run_passes(make_harness(clock, engine, attempts=1), request)
    return response, record, engine


def started(record: ExecutionHistory) -> list[str | None]:
    return [item.correlation.step_name for item in record.events if isinstance(item.event, StepStart)]


@pytest.mark.parametrize("passes", [1, 2])
async def test_a_step_is_planned_and_its_output_is_that_of_its_last_step(clock: VirtualClock, passes: int) -> None:
    response, record, engine = await run(clock, passes=passes, plan=inner("a", "b"))
    assert response.state is State.COMPLETE
    assert step_of(response).output == "re: question of b"
    assert started(record) == ["outer", "outer/a", "outer/b"]
    plans = [item.correlation.step_name for item in record.events if isinstance(item.event, PlanCreated)]
    assert plans == [None, "outer"]
    asked = engine.calls[engine.asked.index("plan")].messages[-1].text
    assert "a task" in asked


async def test_a_subplan_knows_the_results_that_its_step_depends_on(clock: VirtualClock) -> None:
    first = {"name": "first", "type": "infer", "input": "find it"}
    _, _, engine = await run(clock, first, SUB, plan=inner("a"))
    assert '"first": "re: find it"' in engine.calls[engine.asked.index("plan")].messages[-1].text


async def test_a_step_that_fails_inside_fails_the_whole_step(clock: VirtualClock) -> None:
    response, _, _ = await run(clock, passes=1, plan=inner("a", "b"), step={"fault": "content_filtered"})
    assert response.state is State.ERROR
    assert error_code_of(step_of(response)) is Code.INFERENCE_CONTENT_FILTERED


async def test_subplans_nest_five_deep_and_no_deeper(clock: VirtualClock) -> None:
    response, record, engine = await run(clock, passes=1, plan={"steps": [NEST]})
    assert started(record)[-1] == "outer" + "/deep" * 4
    assert engine.asked.count("plan") == 5
    assert error_code_of(step_of(response)) is Code.ORCHESTRATION_PLAN_REFUSED
    schema = engine.calls[-1].schema
    assert schema is not None
    assert "subplan" not in schema["$defs"]["PlanStep"]["properties"]["type"]["enum"]


async def test_all_steps_of_all_subplans_and_passes_are_at_most_those_of_the_policy(clock: VirtualClock) -> None:
    two = [SUB | {"name": "x", "depends_on": []}, SUB | {"name": "y", "depends_on": []}]
    response, record, engine = await run(clock, *two, policy={"max_steps": 6}, plan=inner("a", "b"))
    schemas = [call.schema or {} for call, phase in zip(engine.calls, engine.asked, strict=True) if phase == "plan"]
    assert [schema["properties"]["steps"]["maxItems"] for schema in schemas] == [2, 2]
    assert len(started(record)) == 6
    more = refinements(add("one-more"))
    response, record, _ = await run(
        clock, *two, policy={"max_steps": 6}, plan=inner("a", "b"), assess=NOT_DONE, refine=more
    )
    assert len(started(record)) == 6
    response, _, _ = await run(clock, *two, passes=1, policy={"max_steps": 2})
    assert error_code_of(step_of(response)) is Code.ORCHESTRATION_PLAN_REFUSED
    response, _, _ = await run(clock, *two, passes=1, policy={"max_steps": 6}, plan=inner("a", "b", "c"))
    assert error_code_of(step_of(response)) is Code.ORCHESTRATION_PLAN_REFUSED


@pytest.mark.parametrize(
    ("policy", "tools", "step"),
    [
        ({"allowed_step_types": ["subplan", "infer"]}, None, {"name": "t", "type": "validate", "schema": {}}),
        (None, [], {"name": "t", "type": "tool", "input": {"name": "roll_dice", "arguments": {}}}),
        ({"require_linear": True}, None, {"name": "t", "type": "infer", "depends_on": []}),
    ],
)
async def test_policy_and_tools_hold_for_subplans(
    clock: VirtualClock, policy: Any, tools: Any, step: dict[str, Any]
) -> None:
    steps = [*inner("a")["steps"], step]
    response, _, _ = await run(clock, passes=1, policy=policy, tools=tools, plan={"steps": steps})
    assert error_code_of(step_of(response)) is Code.ORCHESTRATION_PLAN_REFUSED


async def test_a_planner_of_one_pass_is_offered_subplans_on_demand_only(clock: VirtualClock) -> None:
    for types, offered in ((None, False), (["infer", "subplan"], True)):
        engine = PhasesEngine(clock, plan=inner("a"))
        plan = {"policy": {"allowed_step_types": types}}
        await run_passes(make_harness(clock, engine), chat_request("Ask", mode="plan", plan=plan))
        assert engine.calls[0].schema is not None
        kinds = engine.calls[0].schema["$defs"]["PlanStep"]["properties"]["type"]["enum"]
        assert ("subplan" in kinds) is offered
