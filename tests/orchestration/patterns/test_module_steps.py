"""Steps of a module's types: their record, and what they may never do."""

import json
from random import Random
from typing import Any

import pytest

from portico.capabilities.tools.step_function import StepFunction, step
from portico.domain.access.principal import Permissions
from portico.domain.access.tool_policy import PolicyRule, PolicyRules
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.outcomes import PlanningInputs
from portico.domain.lifecycle import Mode, State
from portico.domain.tools import SideEffects
from portico.orchestration.patterns.plan_executor import plan_executor
from portico.orchestration.planning.planner import make_plan
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import Clock
from portico.ports.tool import ToolContext, ToolError
from tests.support.chaos import RandomEngine, ToolActions
from tests.support.harness import (
    Harness,
    answer_suspension,
    chat_request,
    make_harness,
    replay_offline,
    response_of,
    scripted_engine,
    watch_commits,
)
from tests.support.plans import NATIVE, plan_request
from tests.support.recovery import check_recovery_after_every_commit, open_starts
from tests.support.seeds import seeds
from tests.support.virtual_time import VirtualClock


def acting(clock: Clock, *outcomes: object, **changes: Any) -> tuple[StepFunction, list[int]]:
    """Return a step type with these outcomes in turn: an error is raised, a number of seconds is waited."""
    left, done = list(outcomes), list[int]()

    @step(**{"side_effects": SideEffects.WRITE, "idempotent": False} | changes)
    async def act(number: int, *, times: int = 1) -> int:
        """Act."""
        done.append(number * times)
        outcome = left.pop(0) if left else number * times
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, float):
            await clock.sleep(outcome)
        return number * times

    return act, done


def acted(clock: Clock, *functions: StepFunction, **changes: Any) -> Harness:
    return make_harness(clock, scripted_engine(clock, "a"), step_functions=functions, **changes)


async def run(here: Harness, request: SystemRequest) -> tuple[SystemResponse, ExecutionHistory]:
    """Return the response and the history, which replays without any step type."""
    response, record = await here.run(request, plan_executor, make_plan)
    assert replay_offline(record, plan_executor, make_plan) == len(record.steps)
    return response, record


ACT = {"type": "act", "input": 3, "times": 2}


async def test_a_step_is_one_call_with_its_own_events(clock: VirtualClock) -> None:
    act, done = acting(clock)
    response, record = await run(acted(clock, act), plan_request(ACT, {"type": "act"}))
    assert (response.structured_output, done) == (6, [6, 6])
    assert [each.name for each in response.tool_calls_made] == ["step:act", "step:act"]
    shown = [(item.event.type, item.correlation.step_name) for item in record.events if item.correlation.step_name]
    assert shown[:4] == [("step.start", "s0"), ("tool.start", "s0"), ("tool.end", "s0"), ("step.end", "s0")]


@pytest.mark.parametrize(("idempotent", "runs"), [(True, 2), (False, 1)])
async def test_only_an_idempotent_step_that_failed_runs_once_more(
    clock: VirtualClock, idempotent: bool, runs: int
) -> None:
    act, done = acting(clock, ToolError("no luck"), ToolError("no luck"), idempotent=idempotent)
    response, _ = await run(acted(clock, act), plan_request(ACT))
    assert response.error is not None
    assert (response.error.code, len(done)) == (Code.TOOL_EXECUTION_FAILED, runs)
    assert response.error.retryable is idempotent


async def test_an_unsafe_step_beyond_its_time_waits_for_a_person_and_is_not_run_again(clock: VirtualClock) -> None:
    act, done = acting(clock, 100.0, timeout=1)
    response, record = await run(acted(clock, act), plan_request(ACT))
    [waiting] = response.suspensions
    assert (waiting.kind, waiting.tool_id) == ("unknown_outcome", "step:act")
    again, done_again = acting(clock)
    response, _ = await acted(clock, again).recover(record, plan_executor, make_plan)
    assert (response.state, done, done_again) == (State.SUSPENDED, [6], [])


async def test_an_unsafe_step_that_had_begun_before_a_crash_is_in_doubt(clock: VirtualClock) -> None:
    act, _ = acting(clock)
    here = watch_commits(acted(clock, act))
    await here.run(plan_request(ACT), plan_executor, make_plan)
    crashed = next(record for record, _ in here.journal.commits if open_starts(record.events))
    again, done = acting(clock)
    response, after = await acted(clock, again).recover(crashed, plan_executor, make_plan)
    assert (response.state, done) == (State.SUSPENDED, [])
    assert len(open_starts(after.events)) == 1


@pytest.mark.parametrize("seed", seeds(16))
async def test_a_crash_after_any_commit_never_acts_twice(clock: VirtualClock, seed: int) -> None:
    dice = Random(seed)
    kinds = [f"{dice.choice(['look', 'flaky', 'write'])}_step" for _ in range(dice.randrange(1, 6))]
    steps: list[dict[str, Any]] = [{"type": kind, "input": f"{number}"} for number, kind in enumerate(kinds)]
    for number, each in enumerate(steps[1:], start=1):
        each["depends_on"] = [f"s{number - 1}"] if dice.random() < 0.6 else []
    request = plan_request(*steps)
    await check_recovery_after_every_commit(clock, seed, request, plan_executor, make_plan, steps_harness)


async def test_an_external_step_waits_for_a_person(clock: VirtualClock) -> None:
    act, done = acting(clock, side_effects=SideEffects.EXTERNAL)
    response, record = await run(acted(clock, act), plan_request(ACT))
    [waiting] = response.suspensions
    assert (waiting.kind, waiting.tool_id, waiting.step_name, done) == ("approval", "step:act", "s0", [])
    answered = answer_suspension(clock, record, {"decision": "approve"})
    response, after = await acted(clock, act).recover(answered, plan_executor, make_plan)
    assert (response.structured_output, done) == (6, [6])
    assert replay_offline(after, plan_executor, make_plan) == len(after.steps)


@pytest.mark.parametrize(("rule", "code"), [("step:act", Code.TOOL_EXECUTION_FAILED), ("step:other", None)])
async def test_policy_names_a_step_by_its_type(clock: VirtualClock, rule: str, code: Code | None) -> None:
    act, done = acting(clock)
    arguments = {"properties": {"input": {"minimum": 3}}}
    response, _ = await run(
        acted(clock, act, rules=PolicyRules(deny=(PolicyRule(rule, arguments),))), plan_request(ACT)
    )
    assert (response.error.code if response.error else None, done) == (code, [] if code else [6])


async def test_rights_to_tools_limit_the_steps(clock: VirtualClock) -> None:
    act, done = acting(clock)
    here = acted(clock, act)
    execution = here.execution(plan_request(ACT), permissions=Permissions.of(["tool:roll_dice"]))
    await here.drive(execution, plan_executor, make_plan)
    response = response_of(execution)
    assert (response.error.code if response.error else None, done) == (Code.ORCHESTRATION_PLAN_REFUSED, [])


async def test_a_type_that_is_gone_or_has_changed_is_unavailable(clock: VirtualClock) -> None:
    act, done = acting(clock)
    here = watch_commits(acted(clock, act))
    await here.run(plan_request(ACT, {"type": "act"}), plan_executor, make_plan)
    acted_once = next(
        record for record, _ in here.journal.commits if "tool.end" in [e.event.type for e in record.events]
    )
    response, after = await acted(clock).recover(acted_once, plan_executor, make_plan)
    assert response.error is not None
    assert (response.error.code, done) == (Code.TOOL_UNAVAILABLE, [6, 6])
    assert replay_offline(after, plan_executor, make_plan) == len(after.steps)


async def test_an_output_that_does_not_fit_the_next_step_fails_that_one(clock: VirtualClock) -> None:
    act, done = acting(clock)
    here = make_harness(clock, scripted_engine(clock, "a", {"text": "three"}), step_functions=[act])
    response, _ = await run(here, plan_request({"input": "Why?"}, {"type": "act"}))
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_STEP_MISMATCH
    assert response.error.details["violations"][0]["path"] == "$.input"
    assert done == []


async def test_a_long_output_fails_its_step_instead_of_being_cut(clock: VirtualClock) -> None:
    @step(side_effects=SideEffects.NONE, idempotent=True)
    def repeat(count: int) -> str:
        """Repeat a letter."""
        return "x" * count

    response, _ = await run(acted(clock, repeat), plan_request({"type": "repeat", "input": 300_000}))
    assert response.error is not None
    assert (response.error.code, response.error.message) == (
        Code.TOOL_EXECUTION_FAILED,
        "the output of the step is longer than limits.tool_result_bytes",
    )


async def test_the_answer_of_a_person_is_the_output_of_a_step_that_asks(clock: VirtualClock) -> None:
    @step(side_effects=SideEffects.NONE, idempotent=True)
    async def ask(text: str) -> str:
        """Ask a person."""
        raise ToolError.suspend(text)

    _, record = await run(acted(clock, ask), plan_request({"type": "ask", "input": "Now?"}))
    for payload in ("yes", "[cut", {"when": [1]}, 7):
        answered = answer_suspension(clock, record, payload)
        response, _ = await acted(clock, ask).recover(answered, plan_executor, make_plan)
        assert response.plan is not None
        assert response.plan.steps[0].output == payload


async def test_a_step_goes_on_with_its_state_after_an_answer(clock: VirtualClock) -> None:
    @step(side_effects=SideEffects.NONE, idempotent=True)
    async def confirm(text: str, context: ToolContext) -> str:
        """Ask a person."""
        if context.continuation is None:
            raise ToolError.suspend({"question": text}, "asked")
        return f"{text} {context.continuation.answer}"

    response, record = await run(acted(clock, confirm), plan_request({"type": "confirm", "input": "Now?"}))
    assert [(each.kind, each.value) for each in response.suspensions] == [("question", {"question": "Now?"})]
    answered = answer_suspension(clock, record, "yes")
    response, after = await acted(clock, confirm).recover(answered, plan_executor, make_plan)
    assert response.content == "Now? yes"
    assert replay_offline(after, plan_executor, make_plan) == len(after.steps)


def steps_harness(clock: Clock, seed: int, acts: ToolActions, **bounds: Any) -> Harness:
    """Return a chaos harness with a step type for each of its tools."""
    dice = Random(seed)
    return make_harness(
        clock,
        *(RandomEngine(name, clock, dice) for name in ("primary", "backup")),
        step_functions=acts.step_functions(dice),
        **bounds,
    )


async def test_a_model_reads_the_types_and_its_plan_is_held_to_their_schemas(clock: VirtualClock) -> None:
    act, done = acting(clock)
    plans = [{"steps": [{"name": "a", "type": "act"} | changes]} for changes in ({"input": "x"}, {"input": 2})]
    engine = scripted_engine(clock, "a", *({"text": json.dumps(each)} for each in plans), capabilities=NATIVE)
    here = make_harness(clock, engine, step_functions=[act], attempts=2)
    response, record = await run(here, chat_request("Act.", mode=Mode.PLAN))
    assert (response.structured_output, done) == (2, [2])
    [inputs] = [each.outcome for each in record.steps.values() if isinstance(each.outcome, PlanningInputs)]
    assert [each["name"] for each in inputs.step_types] == ["act"]
    assert inputs.step_types[0]["description"].startswith('Act. Input: {"type": "integer"}.')


@pytest.mark.parametrize("rights", [["tool:step:act"], ["tool:step:*"], ["tool:roll_dice"]])
async def test_a_model_is_offered_only_the_types_that_the_caller_may_use(
    clock: VirtualClock, rights: list[str]
) -> None:
    act, _ = acting(clock)
    here = make_harness(clock, scripted_engine(clock, "a"), step_functions=[act])
    execution = here.execution(chat_request("Act.", mode=Mode.PLAN), permissions=Permissions.of(rights))
    await here.drive(execution, plan_executor, make_plan)
    steps = here.record(execution).steps.values()
    [inputs] = [each.outcome for each in steps if isinstance(each.outcome, PlanningInputs)]
    assert bool(inputs.step_types) is rights[0].startswith("tool:step:")
