"""State PLAN: the planner of a plan, the reasons of a refusal, and replays that do not judge it again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.prompting.prompts.planning import STEP_TYPE_DESCRIPTIONS
from portico.domain.contract.messages import Message
from portico.domain.contract.request import PlanStep, SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import Event, InferenceStart, LifecycleTransition, PlanCreated
from portico.domain.journal.outcomes import AttemptSucceeded, Plan, PlanningInputs, Refused
from portico.domain.journal.step_key import PLAN_KEY
from portico.domain.lifecycle import Mode, State
from portico.domain.model_call import EngineCall, Reply
from portico.domain.plan.steps import STEP_SPECS
from portico.domain.tools import Availability
from portico.orchestration.execution.context import RunContext
from portico.orchestration.planning.plan_check import MAX_SCHEMA_BYTES
from portico.orchestration.planning.planner import make_plan
from portico.ports.journal import ExecutionHistory
from portico.ports.model import Engine, EngineCapabilities, Progress
from portico.ports.tool import Tool
from tests.support.conversations import FixedConversations
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, scripted_engine
from tests.support.memory import FixedMemory
from tests.support.virtual_time import VirtualClock

NATIVE = EngineCapabilities(schema=True, schema_with_tools=True)
ROLL = {"name": "roll", "type": "tool", "input": {"name": "roll_dice", "arguments": {"count": 1, "sides": 6}}}
ASK = {"name": "ask", "type": "infer", "input": "Why?"}
USER = {"role": "user", "content": "x"}
SECRET = "sk-canary-7d1f"


async def carried_out(run: RunContext) -> str:
    """Return which plan the pattern was given, and when it was made."""
    plan = run.settings.plan
    assert plan is not None
    run.transition_to(State.VALIDATE, "output_ready")
    return f"{plan.planner_id} {run.settings.planned_at:g}: {' '.join(step.name for step in plan.steps)}"


def planning(
    steps: Sequence[Mapping[str, Any]] | None = None, text: str = "Roll a die.", **fields: Any
) -> SystemRequest:
    """Return a request to plan, or one with a plan; `policy` is the plan's."""
    given = {key: value for key, value in {"steps": steps, "policy": fields.pop("policy", None)}.items() if value}
    return chat_request(text, mode=Mode.PLAN, **({"plan": given} if given else {}), **fields)


def said(*steps: Mapping[str, Any], **more: Any) -> dict[str, str]:
    """Return a model's reply with such a plan."""
    return {"text": json.dumps({"rationale": "It is short.", "steps": steps} | more)}


def here(clock: VirtualClock, *replies: Mapping[str, Any], **bounds: Any) -> Harness:
    engine = scripted_engine(clock, "primary", *replies, capabilities=NATIVE)
    return make_harness(clock, engine, tools=BUILTIN_TOOLS, **({"attempts": 3} | bounds))


async def run(
    world: Harness, request: SystemRequest, static: Sequence[PlanStep] | None = None
) -> tuple[SystemResponse, ExecutionHistory]:
    """Return the response and the history, which replays identically under another configuration."""
    response, record = await world.run(request, carried_out, partial(make_plan, static_plan=static))
    for other in (None, (PlanStep(name="other", type="infer"),)):
        assert replay_offline(record, carried_out, partial(make_plan, static_plan=other)) == len(record.steps)
    return response, record


def events(record: ExecutionHistory, kind: type[Event]) -> list[Any]:
    return [item.event for item in record.events if isinstance(item.event, kind)]


def states(record: ExecutionHistory) -> list[State]:
    return [event.to_state for event in events(record, LifecycleTransition)]


def violations(response: SystemResponse) -> dict[str, str]:
    assert response.error is not None
    return {each["path"]: each["message"] for each in response.error.details["violations"]}


async def test_an_authored_plan_is_taken_as_it_is_and_announced(clock: VirtualClock) -> None:
    later: dict[str, Any] = {"name": "both", "type": "validate", "rules": [], "depends_on": ["ask", "roll"]}
    response, record = await run(here(clock), planning([ROLL, ASK | {"depends_on": []}, later]))
    assert response.state is State.COMPLETE
    assert response.content == f"authored {record.steps[PLAN_KEY].at:g}: roll ask both"
    assert states(record)[:4] == [State.INIT, State.PLAN, State.PREPARE, State.EXECUTE]
    assert record.steps[PLAN_KEY].outcome == Plan(
        tuple(PlanStep.model_validate(each) for each in (ROLL, ASK | {"depends_on": []}, later)), "authored", ""
    )
    (created,) = events(record, PlanCreated)
    assert created.planner_id == "authored"
    assert created.steps == (
        {"name": "roll", "type": "tool", "depends_on": []},
        {"name": "ask", "type": "infer", "depends_on": []},
        {"name": "both", "type": "validate", "depends_on": ["ask", "roll"]},
    )
    assert not events(record, InferenceStart)


async def test_a_configured_plan_is_taken_where_the_request_has_none(clock: VirtualClock) -> None:
    static = (PlanStep.model_validate(ASK),)
    response, record = await run(here(clock), planning(), static)
    assert (response.content or "").startswith("static ")
    assert record.steps[PLAN_KEY].outcome == Plan(static, "static", "")
    response, _ = await run(here(clock), planning([ROLL]), static)
    assert (response.content or "").startswith("authored ")


async def test_a_model_plans_if_there_is_no_other_plan_and_its_reason_is_recorded(clock: VirtualClock) -> None:
    world = here(clock, said(ROLL, {"name": "tell", "type": "infer"}))
    response, record = await run(world, planning())
    assert response.state is State.COMPLETE
    assert (response.content or "").endswith("roll tell")
    outcome = record.steps[PLAN_KEY].outcome
    assert isinstance(outcome, Plan)
    assert (outcome.planner_id, outcome.rationale) == ("model", "It is short.")
    assert [step.name for step in outcome.steps] == ["roll", "tell"]
    assert response.token_usage.total_tokens > 0
    assert response.metadata.provider is None


class Heard:
    """An engine that remembers its calls and answers like another one."""

    def __init__(self, engine: Engine) -> None:
        self.profile = engine.profile
        self.reach = engine.ping
        self.calls: list[EngineCall] = []
        self._engine = engine

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        self.calls.append(replace(call, messages=list(call.messages)))
        return await self._engine.attempt(call, progress, stream=stream)


def heard(clock: VirtualClock, *replies: Mapping[str, Any]) -> Heard:
    return Heard(scripted_engine(clock, "primary", *replies, capabilities=NATIVE))


async def test_a_planner_reads_what_a_plan_may_consist_of(clock: VirtualClock) -> None:
    engine = heard(clock, said(ASK))
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "I like dice."},
        {"role": "user", "content": "Roll a die."},
        {"role": "assistant", "content": "Which?"},
    ]
    policy = {"max_steps": 4, "allowed_step_types": ["infer", "tool", "retrieve"], "require_linear": True}
    fields = {"mode": "plan", "tools": ["roll_dice"], "plan": {"policy": policy}}
    request = SystemRequest.model_validate({"messages": messages, **fields})
    await run(make_harness(clock, engine, tools=BUILTIN_TOOLS), request)
    (call,) = engine.calls
    system, user = (message.text for message in call.messages)
    assert "- infer: " in system
    assert "- tool: " in system
    assert not any(f"- {name}: " in system for name in ("retrieve", "rerank", "validate", "redundant"))
    assert "at most 4 steps" in system
    assert "one after another" in system
    assert '"name": "roll_dice"' in user
    assert "calculate" not in user
    assert '"text": "Be brief."}, {"role": "user", "text": "I like dice."}, {"role": "assistant", "text": "Wh' in user
    assert user.rstrip().split("\n")[-2] == "Roll a die."
    assert call.schema is not None
    assert call.schema["properties"]["steps"]["maxItems"] == 4
    assert call.schema["$defs"]["PlanStep"]["properties"]["type"] == {"enum": ["infer", "tool"]}
    assert not call.tools


async def test_a_planner_reads_nothing_of_tools_if_there_are_none(clock: VirtualClock) -> None:
    engine = heard(clock, said(ASK))
    await run(make_harness(clock, engine, tools=BUILTIN_TOOLS), planning(tools=[]))
    prompt = engine.calls[0].messages[0].text
    assert [name for name in STEP_TYPE_DESCRIPTIONS if f"- {name}: " in prompt] == [
        name for name in STEP_SPECS if name not in {"tool", "subplan", "retrieve"}
    ]


@pytest.mark.parametrize("has_memory", [False, True])
async def test_searches_are_planned_on_demand_and_where_there_is_a_memory(
    clock: VirtualClock, *, has_memory: bool
) -> None:
    find = {"name": "find", "type": "retrieve", "input": "lamp"}
    engine = heard(clock, said(find))
    here = make_harness(clock, engine, tools=BUILTIN_TOOLS)
    here.environment = replace(here.environment, memory=FixedMemory({"a": "lamp"}) if has_memory else None)
    response, _ = await run(here, planning(policy={"allowed_step_types": ["infer", "retrieve"]}))
    assert ("- retrieve: " in engine.calls[0].messages[0].text) == has_memory
    assert (response.error is None) == has_memory


async def test_a_request_without_a_user_is_planned_by_its_last_message(clock: VirtualClock) -> None:
    engine = heard(clock, said(ASK))
    fields = {"messages": [{"role": "system", "content": "Roll a die."}], "mode": "plan"}
    await run(make_harness(clock, engine, tools=BUILTIN_TOOLS), SystemRequest.model_validate(fields))
    assert engine.calls[0].messages[1].text.rstrip().split("\n")[-2] == "Roll a die."


class Away:
    """A registered tool that cannot run."""

    def __init__(self, tool: Tool) -> None:
        self.info, self.definition, self.execute = tool.info, tool.definition, tool.execute

    def available(self) -> Availability:
        return Availability(available=False, reason="away")


async def test_tools_that_cannot_run_now_are_not_planned_with(clock: VirtualClock) -> None:
    first, *others = BUILTIN_TOOLS
    _, record = await run(make_harness(clock, heard(clock, said(ASK)), tools=[Away(first), *others]), planning())
    outcome = record.steps["0"].outcome
    assert isinstance(outcome, PlanningInputs)
    assert {each["name"] for each in outcome.tools} == {tool.info().name for tool in others}
    assert set(outcome.tools[0]) == {"name", "description", "parameters"}


async def test_a_model_plans_with_what_was_said_in_the_session_before(clock: VirtualClock) -> None:
    engine = heard(clock, said(ASK))
    world = make_harness(clock, engine, tools=BUILTIN_TOOLS)
    before = FixedConversations(
        Message(role="user", content="I live in Ulm."), Message(role="assistant", content="Noted.")
    )
    world.environment = replace(world.environment, conversations=before)
    request = planning().model_copy(update={"session_id": "s"})
    _, record = await run(world, request)
    outcome = record.steps["0"].outcome
    assert isinstance(outcome, PlanningInputs)
    assert outcome.history == (*before.history_value.recent_messages, *request.messages)
    (asked,) = engine.calls
    assert all(text in asked.messages[-1].text for text in ("I live in Ulm.", "Noted.", request.messages[0].text))


@pytest.mark.parametrize("allowed", [["tool"], ["retrieve"], ["retrieve", "tool"]])
async def test_where_nothing_can_be_planned_no_model_is_asked(clock: VirtualClock, allowed: list[str]) -> None:
    response, record = await run(here(clock), planning(tools=[], policy={"allowed_step_types": allowed}))
    assert list(violations(response)) == ["policy.allowed_step_types"]
    assert not events(record, InferenceStart)
    assert isinstance(record.steps[PLAN_KEY].outcome, Refused)


@pytest.mark.parametrize(
    ("steps", "fields", "path"),
    [
        ([{"name": "a", "type": "zork"}], {}, "steps.0.type"),
        ([ASK, ASK], {}, "steps.1.name"),
        ([ASK | {"depends_on": ["ask"]}], {}, "steps.0.depends_on"),
        ([ASK], {"policy": {"allowed_step_types": ["tool"]}}, "steps.0.type"),
        ([ASK, ROLL], {"policy": {"max_steps": 1}}, "steps"),
        ([ASK, ROLL | {"depends_on": []}], {"policy": {"require_linear": True}}, "steps.1.depends_on"),
        ([ROLL], {"tools": ["calculate"]}, "steps.0.input.name"),
        ([ROLL], {"tools": []}, "steps.0.input.name"),
        ([ASK | {"attempts": 4}], {}, "steps.0.attempts"),
        ([ASK | {"schema": {"type": "zork"}}], {}, "steps.0.schema"),
        ([ASK | {"schema": {"$ref": "http://169.254.169.254/x"}}], {}, "steps.0.schema"),
        ([ASK | {"rules": ["unheard-of"]}], {}, "steps.0.rules"),
        ([ASK | {"input": {"messages": [USER], "schema": {"type": 1}}}], {}, "steps.0.schema"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["authored", "static", "model"])
async def test_an_invalid_plan_of_any_planner_ends_before_its_first_step(
    clock: VirtualClock, by: str, steps: list[dict[str, Any]], fields: dict[str, Any], path: str
) -> None:
    world = here(clock, *([said(*steps)] if by == "model" else []), attempts=1)
    static = tuple(PlanStep.model_validate(each) for each in steps) if by == "static" else None
    response, record = await run(world, planning(steps if by == "authored" else None, **fields), static)
    assert response.error is not None
    assert (response.state, response.error.code) == (State.ERROR, Code.ORCHESTRATION_PLAN_REFUSED)
    assert path in violations(response)
    assert states(record) == [State.INIT, State.PLAN, State.ERROR]
    assert not events(record, PlanCreated)
    outcome = record.steps[PLAN_KEY].outcome
    assert isinstance(outcome, Refused)
    assert outcome.details == response.error.details


async def test_authored_steps_may_be_none_at_all_and_are_refused_then(clock: VirtualClock) -> None:
    request = chat_request("x", mode=Mode.PLAN, plan={"steps": []})
    response, _ = await run(here(clock), request)
    assert violations(response) == {"steps": "must be at least 1"}


async def test_types_that_never_meet_are_found_before_the_first_step(clock: VirtualClock) -> None:
    chain = [ASK, {"name": "call", "type": "tool"}]
    response, record = await run(here(clock), planning(chain))
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_STEP_MISMATCH
    assert response.error.details["step"] == "call"
    assert response.error.details["expected"] == "an object with name and arguments"
    assert list(violations(response)) == ["steps.1.input"]
    assert states(record) == [State.INIT, State.PLAN, State.ERROR]


async def test_a_model_learns_why_its_plan_was_refused_and_tries_again(clock: VirtualClock) -> None:
    engine = heard(clock, said(ASK, ASK), said(ASK, {"name": "call", "type": "tool"}), said(ASK, ROLL))
    response, record = await run(make_harness(clock, engine, tools=BUILTIN_TOOLS, attempts=3), planning())
    assert response.state is State.COMPLETE
    first, second, third = (call.messages for call in engine.calls)
    assert (len(first), len(second), len(third)) == (2, 2, 2)
    assert "stands twice in the plan" in second[-1].text
    assert "steps.1.name" in second[-1].text
    assert "must be an object with name and arguments" in third[-1].text
    assert json.dumps(ASK["name"]) in second[-1].text
    (created,) = events(record, PlanCreated)
    assert [step["name"] for step in created.steps] == ["ask", "roll"]


async def test_a_model_learns_that_the_arguments_of_a_tool_do_not_fit(clock: VirtualClock) -> None:
    unfit = ROLL | {"input": {"name": "roll_dice", "arguments": {"count": 1}}}
    engine = heard(clock, said(ASK, unfit), said(ASK, ROLL))
    response, _ = await run(make_harness(clock, engine, tools=BUILTIN_TOOLS, attempts=3), planning())
    assert response.state is State.COMPLETE
    assert "steps.1.input.arguments.sides" in engine.calls[1].messages[-1].text


async def test_a_model_that_never_makes_a_plan_that_will_do_ends_as_its_last_one_was_refused(
    clock: VirtualClock,
) -> None:
    world = here(clock, said(ASK, ASK), said(ASK | {"type": "zork"}), attempts=2)
    response, record = await run(world, planning())
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_PLAN_REFUSED
    assert list(violations(response)) == ["steps.0.type"]
    outcome = record.steps[PLAN_KEY].outcome
    assert isinstance(outcome, Refused)
    assert len(events(record, InferenceStart)) == 2


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({"text": "First roll, then tell."}, Code.CONSTRAINT_JSON_INVALID),
        ({"text": "{}"}, Code.CONSTRAINT_SCHEMA_INVALID),
        ({"text": '{"steps": []}'}, Code.CONSTRAINT_SCHEMA_INVALID),
        ({"text": '{"steps": [{"name": "a"}]}'}, Code.CONSTRAINT_SCHEMA_INVALID),
        ({"text": '{"steps": [{"name": "a", "type": "infer", "input": "\\ud800"}]}'}, Code.CONSTRAINT_JSON_INVALID),
        ({"text": '{"steps": [{"name": "a", "type": "infer", "input": ' + "[" * 100 + "]" * 100 + "}]}"},
         Code.CONSTRAINT_JSON_INVALID),
        ({"fault": "refused"}, Code.INFERENCE_ENGINE_ERROR),
    ],
)  # fmt: skip
async def test_what_is_no_plan_at_all_ends_as_what_it_was(clock: VirtualClock, reply: Any, code: Code) -> None:
    response, record = await run(here(clock, reply, reply, attempts=2), planning())
    assert response.error is not None
    assert response.error.code is code
    assert response.state is State.ERROR
    assert response.content is None
    assert PLAN_KEY not in record.steps


async def test_a_second_answer_that_is_a_plan_makes_good_for_a_first_that_is_none(clock: VirtualClock) -> None:
    response, _ = await run(here(clock, {"text": "Roll!"}, said(ROLL)), planning())
    assert (response.content or "").endswith("roll")


HOSTILE: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "ten thousand steps": [{"name": f"s{number}", "type": "infer"} for number in range(10_000)],
    "one circle of all": [
        {"name": f"s{number}", "type": "infer", "depends_on": [f"s{(number + 1) % 50}"]} for number in range(50)
    ],
    "names of a megabyte": [ASK | {"depends_on": ["x" * 128] * 8_000}],
    "an unknown type of a megabyte": [ASK | {"keys " + "x" * 1_000_000: 1}],
    "many names twice": [ASK] * 50,
    "look-alikes that turn around": [ASK | {"name": "ask\u202e"}],
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_plan_of_a_model_is_refused_in_few_words(clock: VirtualClock, name: str) -> None:
    response, _ = await run(here(clock, said(*HOSTILE[name]), attempts=1), planning())
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_PLAN_REFUSED
    assert len(response.model_dump_json()) < 20_000


async def test_ten_thousand_steps_that_are_none_are_refused_in_few_words(clock: VirtualClock) -> None:
    response, _ = await run(here(clock, said(*[{"name": "a"}] * 10_000), attempts=1), planning())
    assert response.error is not None
    assert response.error.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert len(response.model_dump_json()) < 20_000


async def test_a_megabyte_of_input_is_an_input(clock: VirtualClock) -> None:
    large = {"messages": [{"role": "user", "content": "x" * 1_000_000}]}
    response, _ = await run(here(clock), planning([ASK | {"input": large}]))
    assert response.state is State.COMPLETE
    response, _ = await run(here(clock, said(ASK | {"input": large})), planning())
    assert response.state is State.COMPLETE


async def test_schemas_are_bounded_together_and_large_ones_are_looked_at_elsewhere(clock: VirtualClock) -> None:
    def steps(count: int, size: int) -> list[dict[str, Any]]:
        enum = ["x" * 100 + str(number) for number in range(size // 110)]
        return [{"name": f"s{number}", "type": "infer", "schema": {"enum": [*enum, number]}} for number in range(count)]

    fits = steps(7, MAX_SCHEMA_BYTES // 8)
    response, _ = await run(here(clock), planning(fits))
    assert response.state is State.COMPLETE
    response, _ = await run(here(clock, said(*fits)), planning())
    assert response.state is State.COMPLETE
    response, _ = await run(here(clock), planning(steps(9, MAX_SCHEMA_BYTES // 8)))
    assert list(violations(response)) == ["steps"]


async def test_a_refusal_shows_nothing_of_what_a_plan_holds(clock: VirtualClock) -> None:
    steps: list[dict[str, Any]] = [
        {"name": "a", "type": SECRET, "input": SECRET},
        ASK | {"schema": {"type": SECRET}, "rules": [SECRET]},
        ROLL | {"input": {"name": SECRET, "arguments": {SECRET: SECRET}}},
    ]
    response, _ = await run(here(clock), planning(steps))
    assert response.error is not None
    assert SECRET not in response.model_dump_json()


async def test_a_plan_is_made_within_the_deadline(clock: VirtualClock) -> None:
    world = here(clock, said(ASK) | {"delay": 100}, timeout=5)
    response, record = await run(world, planning())
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_TIMEOUT
    assert states(record) == [State.INIT, State.PLAN, State.CANCELLED]


@pytest.mark.parametrize("by", ["authored", "static", "model"])
async def test_a_recovery_after_any_step_of_planning_comes_to_the_same(clock: VirtualClock, by: str) -> None:
    static = (PlanStep.model_validate(ASK),) if by == "static" else None
    request = planning([ASK] if by == "authored" else None)
    replies = [said(ASK, ASK), said(ASK)] if by == "model" else []
    response, record = await run(here(clock, *replies), request, static)
    rows = list(record.steps.items())
    for count in range(len(rows)):
        kept = dict(rows[:count])
        events_kept = [item for item in record.events if item.anchor == "init" or item.anchor in kept]
        heard_before = sum(isinstance(row.outcome, AttemptSucceeded) for row in kept.values())
        world = here(clock, *replies[heard_before:])
        again, _ = await world.recover(
            replace(record, steps=kept, events=events_kept), carried_out, partial(make_plan, static_plan=static)
        )
        assert (again.state, (again.content or "").split(":")[1]) == (response.state, " ask")
