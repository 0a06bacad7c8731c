"""Plans over HTTP: refusals before anything runs and in PLAN, and the planners."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest

from portico.bootstrap.service import PATTERNS, open_service
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.lifecycle import Mode, State
from portico.entrypoints.http.app import create_app
from portico.orchestration.execution.context import RunContext
from portico.settings import Settings
from tests.support.http_server import RunningServer, running_server
from tests.support.portico import EVENTS, chat, events

ASK = {"name": "ask", "type": "infer", "input": "Why?"}
ROLL = {"name": "roll", "type": "tool", "input": {"name": "roll_dice", "arguments": {"count": 1, "sides": 6}}}
SECRET = "sk-canary-7d1f"


async def listed(run: RunContext) -> str:
    """List the steps of the plan, as a pattern."""
    plan = run.settings.plan
    assert plan is not None
    run.transition_to(State.VALIDATE, "output_ready")
    return " ".join([plan.planner_id, *(f"{step.name}:{step.type}" for step in plan.steps)])


@asynccontextmanager
async def planning(**tables: Any) -> AsyncIterator[RunningServer]:
    """Run a service that lists plans instead of running them."""
    patterns = {**PATTERNS, Mode.PLAN: replace(PATTERNS[Mode.PLAN], run=listed)}
    settings = Settings.model_validate({"storage": {"url": "sqlite://"}} | tables)
    async with running_server(create_app(settings, partial(open_service, patterns=patterns))) as served:
        yield served


def asking(text: str = "Tell me a story", **fields: Any) -> bytes:
    return chat(text, mode="plan", **fields)


@pytest.mark.parametrize(
    ("fields", "invalid"),
    [
        ({"plan": {"steps": [ASK] * 51}}, ["plan.steps"]),
        ({"plan": {"steps": [{"name": "a", "type": "zork"}] * 10_000}}, ["plan.steps"]),
        ({"plan": {"policy": {"max_steps": 51}}}, ["plan.policy.max_steps"]),
        ({"plan": {"policy": {"timeout_per_step": 601}}}, ["plan.policy.timeout_per_step"]),
        ({"plan": {"policy": {"allowed_step_types": []}}}, ["plan.policy.allowed_step_types"]),
        ({"plan": {"policy": {"allowed_step_types": ["infer", SECRET]}}}, ["plan.policy.allowed_step_types"]),
        ({"plan": {"passes": 21}}, ["plan.passes"]),
        ({"redundancy": {"n": 3}}, ["redundancy"]),
        ({"plan": {"passes": 21, "policy": {"max_steps": 51}}}, ["plan.passes", "plan.policy.max_steps"]),
        ({"plan": {"steps": [{"name": SECRET * 10, "type": "infer"}]}}, ["plan.steps.0.name"]),
        ({"plan": {"steps": [{"type": "infer"}]}}, ["plan.steps.0.name"]),
        ({"plan": {"steps": [ASK | {"depends_on": SECRET}]}}, ["plan.steps.0.depends_on"]),
        ({"plan": {"stpes": []}}, ["plan.stpes"]),
    ],
)
async def test_an_invalid_plan_is_refused_by_field(fields: dict[str, Any], invalid: list[str]) -> None:
    async with planning() as served:
        answer = await served.post(asking(**fields))
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert [error["field"] for error in answer.json["details"]["errors"]] == invalid
    assert SECRET not in answer.body.decode()


@pytest.mark.parametrize("mode", ["chat", "structured", "redundant"])
async def test_other_modes_refuse_a_plan(mode: str) -> None:
    output = {} if mode == "chat" else {"schema": {"type": "object"}}
    async with planning() as served:
        answer = await served.post(chat("Hello", mode=mode, output=output, plan={"steps": [ASK]}))
    assert answer.status == 422
    assert answer.json["details"]["errors"] == [{"field": "plan", "message": f"has no effect in mode {mode}"}]


@pytest.mark.parametrize(
    "step",
    [
        ROLL | {"input": {"name": "zap", "arguments": {}}},
        ASK | {"tools": ["zap", "roll_dice"]},
        ASK | {"input": {"messages": [{"role": "user", "content": "x"}], "tools": ["zap"]}},
    ],
)
async def test_an_unregistered_tool_is_refused_before_the_execution_starts(step: dict[str, Any]) -> None:
    async with planning() as served:
        answer = await served.post(asking(plan={"steps": [ASK | {"name": "first"}, step]}))
    assert (answer.status, answer.json["code"]) == (422, "TOOL_NOT_FOUND")
    assert answer.json["details"] == {"tools": ["zap"]}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"count": SECRET, "sides": 6}, "plan.steps.1.input.arguments.count"),
        ({"count": 1}, "plan.steps.1.input.arguments.sides"),
        ({"count": 1, "sides": 6, "colour": SECRET}, "plan.steps.1.input.arguments.colour"),
    ],
)
async def test_arguments_that_a_tool_can_never_take_are_refused_before_the_execution_starts(
    arguments: dict[str, Any], field: str
) -> None:
    steps = [ASK, ROLL | {"input": {"name": "roll_dice", "arguments": arguments}}]
    async with planning() as served:
        answer = await served.post(asking(plan={"steps": steps}))
        quoted = await served.post(asking(plan={"steps": steps}), path="/v1/quote")
    for refused in (answer, quoted):
        assert (refused.status, refused.json["code"], refused.json["retryable"]) == (422, "REQUEST_INVALID", False)
        assert [error["field"] for error in refused.json["details"]["errors"]] == [field]
        assert SECRET not in refused.body.decode()


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"plan": {"steps": [{"name": "a", "type": "zork"}]}}, "ORCHESTRATION_PLAN_REFUSED", "steps.0.type"),
        (
            {"plan": {"steps": [{"name": "a", "type": "retrieve", "input": [1]}]}},
            "ORCHESTRATION_STEP_MISMATCH",
            "steps.0.input",
        ),
        ({"plan": {"steps": [ASK, ASK]}}, "ORCHESTRATION_PLAN_REFUSED", "steps.1.name"),
        ({"plan": {"steps": [ROLL]}, "tools": []}, "ORCHESTRATION_PLAN_REFUSED", "steps.0.input.name"),
        (
            {"plan": {"steps": [ASK, ROLL | {"depends_on": []}], "policy": {"require_linear": True}}},
            "ORCHESTRATION_PLAN_REFUSED",
            "steps.1.depends_on",
        ),
        (
            {"plan": {"steps": [ASK], "policy": {"allowed_step_types": ["tool"]}}},
            "ORCHESTRATION_PLAN_REFUSED",
            "steps.0.type",
        ),
        (
            {"plan": {"steps": [ROLL | {"input": {"name": f"{SECRET} !", "arguments": {}}}]}},
            "ORCHESTRATION_PLAN_REFUSED",
            "steps.0.input.name",
        ),
        ({"plan": {"steps": [ASK | {"input": [SECRET]}]}}, "ORCHESTRATION_STEP_MISMATCH", "steps.0.input"),
        (
            {"plan": {"steps": [ASK, {"name": "b", "type": "tool"}]}},
            "ORCHESTRATION_STEP_MISMATCH",
            "steps.1.input",
        ),
    ],
)
async def test_a_violation_of_the_policy_ends_it_in_plan(fields: dict[str, Any], code: str, path: str) -> None:
    async with planning() as served:
        answer = await served.post(asking(**fields))
        received = events(await served.post(asking(**fields), EVENTS))
    error: Any = answer.json["error"]
    assert (answer.status, answer.json["state"], error["code"], error["retryable"]) == (422, "ERROR", code, False)
    assert answer.headers["x-should-retry"] == "false"
    assert path in [each["path"] for each in error["details"]["violations"]]
    assert SECRET not in answer.body.decode()
    moves = [event["to_state"] for event in received if event["type"] == "lifecycle.transition"]
    assert moves == ["INIT", "PLAN", "ERROR"]
    assert not {"plan.created", "inference.start", "tool.start"} & {event["type"] for event in received}


async def test_an_authored_plan_is_published_as_an_event() -> None:
    steps = [ASK | {"name": "步骤"}, ROLL | {"depends_on": []}, {"name": "z", "type": "validate", "rules": []}]
    async with planning() as served:
        received = events(await served.post(asking(plan={"steps": steps}), EVENTS))
    (created,) = [event for event in received if event["type"] == "plan.created"]
    assert created["planner_id"] == "authored"
    assert created["steps"] == [
        {"name": "步骤", "type": "infer", "depends_on": []},
        {"name": "roll", "type": "tool", "depends_on": []},
        {"name": "z", "type": "validate", "depends_on": ["roll"]},
    ]
    assert received[-1]["response"]["content"] == "authored 步骤:infer roll:tool z:validate"


async def test_the_rehearsal_engine_plans() -> None:
    async with planning() as served:
        rolled = await served.post(asking("Roll 2 dice with 6 sides"))
        received = await served.post(asking())
        forbidden = await served.post(asking("Roll 2 dice with 6 sides", tools=["calculate"]))
        linear = {"policy": {"require_linear": True, "max_steps": 1}}
        narrow = await served.post(asking("One thing. Another thing", plan=linear))
    assert rolled.json["content"] == "model call:tool answer:infer"
    assert received.json["content"] == "model answer:infer"
    assert forbidden.json["content"] == "model answer:infer"
    assert narrow.json["content"] == "model first:infer"


async def test_a_failure_of_the_planner_ends_the_execution() -> None:
    async with planning() as served:
        answer = await served.post(asking("[[fail:429]] Tell me a story"))
    assert (answer.status, answer.json["state"]) == (503, "ERROR")
    assert answer.json["error"]["code"] == "INFERENCE_MODEL_UNAVAILABLE"


async def test_a_configured_plan_is_run_if_the_request_has_none() -> None:
    planner = {"kind": "static", "steps": [ASK, ROLL]}
    async with planning(planner=planner) as served:
        plain = await served.post(asking())
        own = await served.post(asking(plan={"steps": [ROLL]}))
        refused = await served.post(asking(plan={"policy": {"max_steps": 1}}))
        without = await served.post(asking(tools=[]))
    assert plain.json["content"] == "static ask:infer roll:tool"
    assert own.json["content"] == "authored roll:tool"
    for answer in (refused, without):
        assert (answer.status, answer.json["error"]["code"]) == (422, "ORCHESTRATION_PLAN_REFUSED")


async def test_the_maximum_of_steps_is_configured() -> None:
    async with planning(limits={"plan_steps": 1}) as served:
        assert (await served.post(asking(plan={"steps": [ASK]}))).status == 200
        answer = await served.post(asking(plan={"steps": [ASK, ROLL]}))
        assert (await served.post(asking("One. Two"))).json["content"] == "model first:infer"
    assert answer.json["details"]["errors"] == [{"field": "plan.steps", "message": "must be at most 1"}]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (ROLL | {"input": {"name": "zap", "arguments": {}}}, "planner.steps.0.input.name: must name a tool"),
        (
            ROLL | {"input": {"name": "roll_dice", "arguments": {"count": 1}}},
            "planner.steps.0.input.arguments.sides: is required",
        ),
        (ASK | {"schema": {"type": "zork"}}, "planner.steps.0.schema: the schema cannot be used"),
        (ASK | {"rules": ["unheard-of"]}, "planner.steps.0.rules: rules.0: there is no rule of that name"),
    ],
)
async def test_a_configured_plan_that_cannot_run_here_is_refused_at_start(step: dict[str, Any], message: str) -> None:
    storage = {"url": "sqlite://"}
    settings = Settings.model_validate({"storage": storage, "planner": {"kind": "static", "steps": [step]}})
    with pytest.raises(ConfigurationFailure) as caught:
        async with open_service(settings):
            raise AssertionError("it must not open")
    assert caught.value.code is Code.CONFIG_INVALID
    assert message in caught.value.message


async def test_a_plan_of_a_megabyte_is_accepted_and_one_above_the_body_limit_is_not() -> None:
    large = ASK | {"input": "x" * 1_000_000}
    async with planning() as served:
        assert (await served.post(asking(plan={"steps": [large]}))).status == 200
        answer = await served.post(asking(plan={"steps": [large | {"name": str(number)} for number in range(5)]}))
    assert (answer.status, answer.json["code"]) == (413, "REQUEST_TOO_LARGE")


async def test_a_deep_input_is_refused_with_the_body() -> None:
    deep = b"[" * 70 + b"]" * 70
    body = orjson.dumps({"messages": [{"role": "user", "content": "x"}], "mode": "plan"})[:-1]
    step = b',"plan":{"steps":[{"name":"a","type":"validate","rules":[],"input":' + deep + b"}]}}"
    async with planning() as served:
        answer = await served.post(body + step)
    assert (answer.status, answer.json["code"]) == (400, "REQUEST_INVALID")
