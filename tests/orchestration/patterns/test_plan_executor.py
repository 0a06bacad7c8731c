"""Mode plan: the order of its steps, their inputs, the end of the plan, and its report in the response."""

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import LifecycleTransition, StepEnd, StepStart
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.orchestration.patterns.plan_executor import plan_executor
from portico.orchestration.planning.planner import make_plan
from portico.ports.journal import ExecutionHistory
from portico.ports.tool import ToolContext
from tests.support.harness import make_harness, replay_offline, response_of
from tests.support.plans import SCHEMA, KeywordEngine, plan_request, run_plan
from tests.support.recovery import cancel_after, open_starts, open_steps
from tests.support.tools import FakeTool
from tests.support.virtual_time import EPOCH, VirtualClock

LARGE = {"text": '{"size":"large"}'}


def steps_of(response: SystemResponse) -> dict[str, tuple[str, Any]]:
    """Return status and output of each step, by name and in order."""
    assert response.plan is not None
    return {step.name: (step.status, step.output) for step in response.plan.steps}


def steps_log(record: ExecutionHistory) -> list[tuple[float, str, str]]:
    """Return the start and the end of every step, in seconds from the start of the execution."""
    return [
        (
            round(item.at - EPOCH, 3),
            item.correlation.step_name or "",
            item.event.status if isinstance(item.event, StepEnd) else "start",
        )
        for item in record.events
        if isinstance(item.event, StepStart | StepEnd)
    ]


async def test_steps_run_one_after_the_other_and_each_is_given_the_output_before_it(clock: VirtualClock) -> None:
    response, record = await run_plan(make_harness(clock, KeywordEngine(clock)), plan_request({}, {}, {}))
    assert response.state is State.COMPLETE
    assert steps_of(response) == {
        "s0": ("completed", "re: request"),
        "s1": ("completed", "re: re: request"),
        "s2": ("completed", "re: re: re: request"),
    }
    assert (response.content, response.structured_output) == ("re: re: re: request", None)
    assert [state.to_state for item in record.events if isinstance(state := item.event, LifecycleTransition)] == [
        *("INIT", "PLAN", "PREPARE", "EXECUTE", "VALIDATE", "COMPLETE"),
    ]
    assert open_starts(record.events) == open_steps(record.events) == []


async def test_branches_run_at_once_and_what_comes_after_both_waits_for_both(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, a={"text": "A", "delay": 2}, b={"text": "B", "delay": 3})
    request = plan_request({"input": "a"}, {"input": "b", "depends_on": []}, {"depends_on": ["s1", "s0"]})
    response, record = await run_plan(make_harness(clock, engine), request)
    assert steps_log(record) == [
        *((0, "s0", "start"), (0, "s1", "start")),
        *((2, "s0", "completed"), (3, "s1", "completed")),
        *((3, "s2", "start"), (3, "s2", "completed")),
    ]
    assert response.content == 're: {"s1":"B","s0":"A"}'
    durations = [item.event.duration_ms for item in record.events if isinstance(item.event, StepEnd)]
    assert durations == pytest.approx([2000, 3000, 0])


async def test_a_step_waits_for_what_it_names_and_for_nothing_else(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, slow={"text": "S", "delay": 9}, quick={"text": "Q", "delay": 1}, next={"text": "N"})
    request = plan_request(
        {"name": "late", "input": "next", "depends_on": ["quick"]},
        {"name": "slow", "input": "slow", "depends_on": []},
        {"name": "quick", "input": "quick", "depends_on": []},
    )
    response, record = await run_plan(make_harness(clock, engine), request)
    assert [each for each in steps_log(record) if each[1] == "late"] == [
        (1, "late", "start"),
        (1, "late", "completed"),
    ]
    assert list(steps_of(response)) == ["late", "slow", "quick"]
    assert response.content == "Q"


async def test_the_plan_ends_when_its_longest_way_does(clock: VirtualClock) -> None:
    """a1 and a2 are one way, b1 and b2 the other; each takes three seconds and not five."""
    answers = {name: {"text": name, "delay": delay} for name, delay in {"a1": 1, "a2": 2, "b1": 2, "b2": 1}.items()}
    request = plan_request(
        {"name": "a1", "input": "a1"},
        {"name": "b1", "input": "b1", "depends_on": []},
        {"name": "a2", "input": "a2", "depends_on": ["a1"]},
        {"name": "b2", "input": "b2", "depends_on": ["b1"]},
    )
    began = clock.monotonic()
    await run_plan(make_harness(clock, KeywordEngine(clock, **answers)), request)
    assert clock.monotonic() - began == pytest.approx(3)


async def test_a_value_is_the_result_as_a_value_and_as_text(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, request=LARGE)
    response, _ = await run_plan(make_harness(clock, engine), plan_request({"schema": SCHEMA}))
    assert (response.structured_output, response.content) == ({"size": "large"}, '{"size":"large"}')
    assert response.validation_result is None
    assert response.confidence is None


async def test_what_happens_in_a_step_carries_its_name_and_what_happens_elsewhere_none(clock: VirtualClock) -> None:
    _, record = await run_plan(make_harness(clock, KeywordEngine(clock)), plan_request({"name": "only"}))
    names = {item.event.type: item.correlation.step_name for item in record.events}
    inside = {"step.start", "step.end", "inference.start", "inference.end", "fallback.transition"}
    assert {kind for kind, name in names.items() if name == "only"} == inside
    assert {kind for kind, name in names.items() if name is None} == names.keys() - inside


async def test_a_failed_step_leaves_the_others_finished_and_those_behind_it_skipped(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, bad={"fault": "refused", "delay": 1}, good={"text": "G", "delay": 5})
    request = plan_request(
        {"name": "bad", "input": "bad"},
        {"name": "after", "depends_on": ["bad"]},
        {"name": "good", "input": "good", "depends_on": []},
        {"name": "further", "input": "good", "depends_on": ["after", "good"]},
    )
    response, record = await run_plan(make_harness(clock, engine), request)
    assert response.state is State.ERROR
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_ENGINE_ERROR
    assert steps_of(response) == {
        "bad": ("failed", None),
        "after": ("skipped", None),
        "good": ("completed", "G"),
        "further": ("skipped", None),
    }
    assert response.plan is not None
    assert response.plan.steps[0].error == response.error
    assert [step.error for step in response.plan.steps[1:]] == [None, None, None]
    assert {name for _, name, _ in steps_log(record)} == {"bad", "good"}
    [bad_end] = [
        item.event for item in record.events if item.correlation.step_name == "bad" and item.event.type == "step.end"
    ]
    assert (bad_end.status, bad_end.error_code, bad_end.duration_ms) == ("failed", "INFERENCE_ENGINE_ERROR", 1000)
    assert "VALIDATE" not in {getattr(item.event, "to_state", None) for item in record.events}


async def test_the_first_failure_in_the_order_of_the_plan_is_the_plans_failure(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, one={"fault": "content_filtered", "delay": 9}, two={"fault": "refused", "delay": 1})
    request = plan_request({"input": "one"}, {"input": "two", "depends_on": []})
    response, _ = await run_plan(make_harness(clock, engine), request)
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_CONTENT_FILTERED


async def test_a_step_that_takes_too_long_is_cancelled_and_its_end_recorded(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, slow={"text": "S", "delay": 60}, good={"text": "G", "delay": 5})
    request = plan_request(
        {"name": "slow", "input": "slow", "timeout": 2},
        {"name": "after"},
        {"name": "good", "input": "good", "depends_on": []},
    )
    response, record = await run_plan(make_harness(clock, engine), request)
    assert response.state is State.CANCELLED
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_TIMEOUT
    assert steps_of(response) == {"slow": ("cancelled", None), "after": ("skipped", None), "good": ("completed", "G")}
    assert steps_log(record)[2:] == [(2, "slow", "cancelled"), (5, "good", "completed")]
    [cut] = [item.event for item in record.events if isinstance(item.event, StepEnd) and item.event.error_code]
    assert (cut.error_code, cut.duration_ms) == (Code.CANCELLED_TIMEOUT, 2000)
    assert open_starts(record.events) == open_steps(record.events) == []


@pytest.mark.parametrize(
    ("policy", "own", "seconds"), [(3, None, 3), (None, 4, 4), (3, 4, 3), (4, 3, 3)], ids=["policy", "own", "p", "o"]
)
async def test_the_smaller_of_the_steps_time_and_the_policys_holds(
    clock: VirtualClock, policy: float | None, own: float | None, seconds: float
) -> None:
    engine = KeywordEngine(clock, slow={"text": "S", "delay": 60})
    request = plan_request({"input": "slow", "timeout": own}, policy={"timeout_per_step": policy})
    _, record = await run_plan(make_harness(clock, engine), request)
    assert steps_log(record)[-1] == (seconds, "s0", "cancelled")


async def test_a_steps_time_begins_with_the_step_and_not_with_the_plan(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, slow={"text": "S", "delay": 3})
    request = plan_request({"input": "slow"}, {"input": "slow"}, policy={"timeout_per_step": 4})
    response, _ = await run_plan(make_harness(clock, engine), request)
    assert response.state is State.COMPLETE


async def test_a_cancel_in_the_midst_leaves_the_finished_steps_and_every_start_its_end(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, quick={"text": "Q", "delay": 1}, slow={"text": "S", "delay": 60})
    request = plan_request(
        {"name": "quick", "input": "quick"},
        {"name": "slow", "input": "slow"},
        {"name": "beside", "input": "slow", "depends_on": []},
        {"name": "never"},
    )
    here = make_harness(clock, engine)
    execution = here.execution(request)
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_after, clock, 3, execution)
        await here.drive(execution, plan_executor, make_plan)
    response, record = response_of(execution), here.record(execution)
    assert response.state is State.CANCELLED
    assert steps_of(response) == {
        "quick": ("completed", "Q"),
        "slow": ("cancelled", None),
        "beside": ("cancelled", None),
        "never": ("cancelled", None),
    }
    ends = [item for item in record.events if isinstance(item.event, StepEnd)]
    assert sorted((end.correlation.step_name, end.event.status, end.event.duration_ms) for end in ends) == [
        ("beside", "cancelled", 3000),
        ("quick", "completed", 1000),
        ("slow", "cancelled", 2000),
    ]
    assert {end.event.error_code for end in ends if end.event.status == "cancelled"} == {Code.CANCELLED_SIGNAL}
    assert open_starts(record.events) == open_steps(record.events) == []
    assert replay_offline(record, plan_executor, make_plan) == len(record.steps)


async def test_the_deadline_leaves_the_finished_steps_in_the_response(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, slow={"text": "S", "delay": 60})
    response, record = await run_plan(make_harness(clock, engine, timeout=5), plan_request({}, {"input": "slow"}))
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_TIMEOUT
    assert steps_of(response) == {"s0": ("completed", "re: request"), "s1": ("cancelled", None)}
    assert steps_log(record)[-1] == (5, "s1", "cancelled")


async def test_a_plan_that_never_begins_stands_in_the_response_all_the_same(clock: VirtualClock) -> None:
    here = make_harness(clock, KeywordEngine(clock))
    request = plan_request({"input": "a"}, {"input": "b"}, messages=[{"role": "user", "content": "word " * 200_000}])
    response, _ = await run_plan(here, request)
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_CONTEXT_EXCEEDED
    assert steps_of(response) == {"s0": ("cancelled", None), "s1": ("cancelled", None)}


async def test_the_result_is_held_to_what_the_request_asks_of_it(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, request={"text": 'Here it is: {"size":"LARGE"}'})
    response, record = await run_plan(make_harness(clock, engine), plan_request({}, output={"schema": SCHEMA}))
    assert response.structured_output == {"size": "large"}
    assert response.validation_result is not None
    assert response.validation_result.repairs
    assert (response.confidence, response.confidence_source) == (1.0, "validation")
    assert steps_of(response) == {"s0": ("completed", 'Here it is: {"size":"LARGE"}')}
    [judged] = [item for item in record.events if item.event.type == "validation.end"]
    assert judged.correlation.step_name is None


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ({"schema": SCHEMA}, Code.CONSTRAINT_JSON_INVALID),
        ({"rules": [{"type": "length", "max": 3}]}, Code.VALIDATION_RULE_FAILED),
        ({"grammar": 'root ::= "yes" | "no"'}, Code.CONSTRAINT_GRAMMAR_REJECTED),
    ],
)
async def test_a_result_that_is_not_what_was_asked_for_ends_the_plan_with_its_steps_finished(
    clock: VirtualClock, output: dict[str, Any], code: Code
) -> None:
    response, _ = await run_plan(make_harness(clock, KeywordEngine(clock)), plan_request({}, output=output))
    assert response.state is State.ERROR
    assert response.error is not None
    assert response.error.code is code
    assert (response.content, response.structured_output) == (None, None)
    assert response.validation_result is not None
    assert not response.validation_result.valid
    assert steps_of(response) == {"s0": ("completed", "re: request")}


async def test_rules_about_places_in_a_value_hold_for_a_result_that_is_one(clock: VirtualClock) -> None:
    rules = [{"type": "one_of", "path": "$.size", "values": ["small"]}]
    request = plan_request({"schema": SCHEMA}, output={"rules": rules})
    response, _ = await run_plan(make_harness(clock, KeywordEngine(clock, request=LARGE)), request)
    assert response.error is not None
    assert response.error.code is Code.VALIDATION_RULE_FAILED
    lenient = plan_request({"schema": SCHEMA}, output={"rules": rules, "strict_validation": False})
    response, _ = await run_plan(make_harness(clock, KeywordEngine(clock, request=LARGE)), lenient)
    assert (response.state, response.structured_output) == (State.COMPLETE, {"size": "large"})
    assert (response.confidence, steps_of(response)) == (0.0, {"s0": ("completed", {"size": "large"})})


async def test_the_plan_says_where_it_came_from(clock: VirtualClock) -> None:
    response, record = await run_plan(make_harness(clock, KeywordEngine(clock)), plan_request({}, {}))
    assert response.plan is not None
    trace = response.plan.trace
    assert (trace.planner_id, trace.rationale, trace.step_count) == ("authored", "", 2)
    assert trace.created_at.timestamp() == record.steps["plan"].at


async def test_a_suspended_plan_shows_its_pending_steps(clock: VirtualClock) -> None:
    async def hangs(_arguments: Mapping[str, Any], context: ToolContext) -> str:
        await context.clock.sleep(60)
        return "never asked"

    write = FakeTool("write", hangs, idempotent=False, side_effects=SideEffects.WRITE, timeout=1)
    request = plan_request(
        {"name": "asks", "type": "tool", "input": {"name": "write", "arguments": {}}},
        {"name": "after", "input": "x"},
        {"name": "beside", "input": "x", "depends_on": []},
        {"name": "last", "depends_on": ["after", "beside"]},
    )
    here = make_harness(clock, KeywordEngine(clock), tools=[write])
    response, record = await run_plan(here, request)
    assert response.state is State.SUSPENDED
    assert [question.kind for question in response.suspensions] == ["unknown_outcome"]
    assert steps_of(response) == {
        "asks": ("pending", None),
        "after": ("pending", None),
        "beside": ("completed", "re: x"),
        "last": ("pending", None),
    }
    assert open_steps(record.events) == [("asks", 1)]
