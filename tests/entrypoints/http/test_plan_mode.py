"""Mode plan over HTTP: concurrent steps, their events, and the partial result of a failed plan."""

from typing import Any

import pytest

from tests.support.portico import EVENTS, chat, events, portico

SCHEMA = {"type": "object", "required": ["size"], "properties": {"size": {"enum": ["small", "large"]}}}
ROLL = {"name": "roll", "type": "tool", "input": {"name": "roll_dice", "arguments": {"count": 2, "sides": 6}}}


def asking(*steps: dict[str, Any], **fields: Any) -> bytes:
    return chat("How large is Ulm?", mode="plan", plan={"steps": list(steps), **fields.pop("plan", {})}, **fields)


def named(answer: Any) -> dict[str, tuple[str, Any]]:
    return {step["name"]: (step["status"], step["output"]) for step in answer["plan"]["steps"]}


async def test_a_plan_runs_its_steps_and_reports_each() -> None:
    request = asking(
        ROLL,
        {"name": "size", "type": "infer", "depends_on": [], "schema": SCHEMA},
        {"name": "check", "type": "validate", "depends_on": ["size"], "schema": SCHEMA},
        {"name": "tell", "type": "infer", "depends_on": ["roll", "check"]},
    )
    async with portico() as (served, _):
        answer = await served.post(request)
    assert (answer.status, answer.json["state"], answer.json["mode"]) == (200, "COMPLETE", "plan")
    steps = named(answer.json)
    assert {status for status, _ in steps.values()} == {"completed"}
    assert steps["roll"][1].startswith("Rolled 2d6")
    assert steps["size"][1] == steps["check"][1]
    assert steps["size"][1]["size"] in {"small", "large"}
    assert steps["tell"][1] == answer.json["content"]
    assert answer.json["plan"]["trace"]["planner_id"] == "authored"
    assert answer.json["plan"]["trace"]["step_count"] == 4
    assert [(call["name"], call["step_name"]) for call in answer.json["tool_calls_made"]] == [("roll_dice", "roll")]


async def test_branches_overlap_and_their_events_name_their_step() -> None:
    request = asking(
        {"name": "left", "type": "infer", "input": "[[slow:2]] left"},
        {"name": "right", "type": "infer", "input": "[[slow:3]] right", "depends_on": []},
        {"name": "both", "type": "infer", "depends_on": ["left", "right"]},
    )
    async with portico() as (served, _):
        received = events(await served.post(request, EVENTS))
    steps = [event for event in received if event["type"].startswith("step.")]
    assert [(event["step_name"], event["type"]) for event in steps] == [
        *(("left", "step.start"), ("right", "step.start")),
        *(("left", "step.end"), ("right", "step.end")),
        *(("both", "step.start"), ("both", "step.end")),
    ]
    at = {(event["step_name"], event["type"]): event["timestamp"] for event in steps}
    assert at["right", "step.start"] < at["left", "step.end"] < at["right", "step.end"] <= at["both", "step.start"]
    inside = {event["type"] for event in received if event.get("step_name") == "left"}
    assert inside >= {"step.start", "inference.start", "inference.end", "step.end"}
    assert all("step_name" not in event for event in received if event["type"].startswith(("lifecycle", "execution")))
    states = [event["to_state"] for event in received if event["type"] == "lifecycle.transition"]
    assert states == ["INIT", "PLAN", "PREPARE", "EXECUTE", "VALIDATE", "COMPLETE"]


@pytest.mark.parametrize(
    ("bad", "status", "code", "ended"),
    [
        ({"type": "infer", "input": "[[fail:400]] x"}, 500, "INFERENCE_ENGINE_ERROR", "failed"),
        ({"type": "infer", "input": "[[slow:9]] x", "timeout": 1}, 504, "CANCELLED_TIMEOUT", "cancelled"),
        ({"type": "validate", "input": 1, "schema": SCHEMA}, 502, "CONSTRAINT_SCHEMA_INVALID", "failed"),
        ({"type": "tool", "input": {"name": "calculate", "arguments": {"expression": "1/0"}}}, 502, None, "failed"),
    ],
)
async def test_a_failed_plan_is_answered_with_its_finished_steps(
    bad: dict[str, Any], status: int, code: str | None, ended: str
) -> None:
    steps = ({"name": "bad", **bad}, {"name": "after", "type": "infer", "input": "x"}, {**ROLL, "depends_on": []})
    async with portico() as (served, _):
        answer = await served.post(asking(*steps))
    assert answer.status == status
    assert answer.json["error"]["code"] == (code or "TOOL_EXECUTION_FAILED")
    found = named(answer.json)
    assert (found["bad"], found["after"]) == ((ended, None), ("skipped", None))
    assert found["roll"][0] == "completed"


async def test_an_output_that_does_not_fit_is_reported_with_the_step_and_the_expected_type() -> None:
    steps = ({"name": "size", "type": "infer", "schema": SCHEMA}, {"name": "call", "type": "tool"})
    async with portico() as (served, _):
        answer = await served.post(asking(*steps))
    assert (answer.status, answer.json["error"]["code"]) == (422, "ORCHESTRATION_STEP_MISMATCH")
    assert answer.json["error"]["details"] == {"step": "call", "expected": "an object with name and arguments"}
    assert named(answer.json)["size"][0] == "completed"


async def test_the_time_limit_of_the_policy_applies_to_every_step() -> None:
    step = {"name": "slow", "type": "infer", "input": "[[slow:9]] x"}
    async with portico() as (served, _):
        answer = await served.post(asking(step, plan={"policy": {"timeout_per_step": 0.5}}))
    assert (answer.status, answer.headers["x-should-retry"]) == (504, "false")
    assert named(answer.json) == {"slow": ("cancelled", None)}


async def test_the_result_is_validated_against_the_request() -> None:
    async with portico() as (served, _):
        step = {"name": "size", "type": "infer", "input": "x"}
        kept = await served.post(asking({**step, "schema": SCHEMA}, output={"schema": SCHEMA}))
        broken = await served.post(asking(step, output={"schema": SCHEMA}))
    assert (kept.status, kept.json["confidence"]) == (200, 1.0)
    assert kept.json["structured_output"] == kept.json["plan"]["steps"][0]["output"]
    assert (broken.status, broken.json["error"]["code"]) == (502, "CONSTRAINT_JSON_INVALID")
    assert broken.json["plan"]["steps"][0]["status"] == "completed"


async def test_a_plan_of_a_model_is_run() -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Roll two dice with roll_dice, count 2, sides 6.", mode="plan"))
    assert (answer.status, answer.json["plan"]["trace"]["planner_id"]) == (200, "model")
    assert {step["status"] for step in answer.json["plan"]["steps"]} == {"completed"}
    assert answer.json["tool_calls_made"][0]["name"] == "roll_dice"


async def test_steps_are_counted_by_type_and_status() -> None:
    async with portico() as (served, _):
        await served.post(asking(ROLL, {"name": "bad", "type": "validate", "schema": SCHEMA}))
        page = (await served.get("/metrics")).body.decode()
    assert 'portico_steps_total{code="none",status="completed",step_type="tool"} 1.0' in page
    assert 'portico_steps_total{code="CONSTRAINT_SCHEMA_INVALID",status="failed",step_type="validate"} 1.0' in page
