"""Step types and planners of modules, over HTTP and by configuration only."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portico.bootstrap.service import open_history_reader
from portico.domain.access.principal import LOCAL
from portico.domain.failures import ConfigurationFailure
from portico.domain.ids import RequestId
from portico.domain.plan.steps import STEP_SPECS
from portico.settings import Settings
from tests.support import shop_steps
from tests.support.portico import QUOTE, chat, portico, resume

MODULES = {"plan": {"modules": ["tests.support.shop_steps"]}}
FIND = {"name": "find", "type": "find_orders", "input": "Ada"}
CHEAP = {"name": "cheap", "type": "keep_cheap", "below": 50}
ORDERS = [{"number": 1, "total": 19.5}, {"number": 2, "total": 300.0}]


@pytest.fixture(autouse=True)
def _nothing_charged() -> Iterator[None]:
    shop_steps.charged.clear()
    yield
    shop_steps.charged.clear()


def plan(*steps: dict[str, Any], text: str = "Ada", **fields: Any) -> bytes:
    """Return a request with these steps, or with a plan to be made."""
    given = {"steps": steps} if steps else {}
    return chat(text, mode="plan", plan=given | fields.pop("plan", {}), **fields)


async def test_steps_of_a_module_run_with_their_options_and_hand_on_what_they_return() -> None:
    async with portico(**MODULES) as (served, _):
        answer = await served.post(plan(FIND, CHEAP, {"name": "pay", "type": "charge"}))
        metrics = (await served.get("/metrics")).body.decode()
    assert (answer.status, answer.json["structured_output"]) == (200, {"charged": [1], "has_key": True})
    assert [(each["type"], each["output"]) for each in answer.json["plan"]["steps"][:2]] == [
        ("find_orders", ORDERS),
        ("keep_cheap", ORDERS[:1]),
    ]
    assert 'portico_steps_total{code="none",status="completed",step_type="keep_cheap"} 1.0' in metrics
    assert 'portico_tool_calls_total{code="none",success="true",tool="step:charge"} 1.0' in metrics


async def test_the_first_step_works_on_the_request() -> None:
    async with portico(**MODULES) as (served, _):
        answer = await served.post(plan({"name": "find", "type": "find_orders"}))
    assert answer.json["structured_output"] == ORDERS


@pytest.mark.parametrize(
    ("steps", "status", "code", "places"),
    [
        ([FIND | {"input": 7}], 422, "REQUEST_INVALID", ["plan.steps.0.input"]),
        ([FIND, CHEAP | {"below": "much"}], 422, "REQUEST_INVALID", ["plan.steps.1.below"]),
        ([FIND | {"colour": "red"}], 422, "REQUEST_INVALID", ["plan.steps.0.colour"]),
        (
            [{"name": "a", "type": "keep_cheap", "input": [{"number": 1}]}],
            422,
            "REQUEST_INVALID",
            ["plan.steps.0.input.0.total"],
        ),
        ([FIND | {"timeout": -1}], 422, "ORCHESTRATION_PLAN_REFUSED", ["steps.0.timeout"]),
        ([FIND | {"type": "find_order"}], 422, "ORCHESTRATION_PLAN_REFUSED", ["steps.0.type"]),
    ],
)
async def test_what_does_not_fit_a_type_is_refused_before_the_first_step(
    steps: list[dict[str, Any]], status: int, code: str, places: list[str]
) -> None:
    async with portico(**MODULES) as (served, _):
        answer = await served.post(plan(*steps))
    refusal = answer.json.get("error") or answer.json
    details = refusal["details"]
    found = [each.get("field") or each.get("path") for each in details.get("errors") or details["violations"]]
    assert (answer.status, refusal["code"], found) == (status, code, places)


PLANNER = {"kind": "module", "name": "by_rules"}
BROKEN = {"kind": "module", "name": "broken"}


@pytest.mark.parametrize("passes", [1, 3])
async def test_a_planner_of_a_module_makes_the_plan_of_every_request_without_one(passes: int) -> None:
    async with portico(**MODULES, planner=PLANNER) as (served, _):
        made = await served.post(plan(plan={"passes": passes}))
        own = await served.post(plan(FIND, plan={"passes": passes}))
    assert made.json["structured_output"] == ORDERS[:1]
    assert [made.json["plan"]["trace"][key] for key in ("planner_id", "step_count")] == ["by_rules", 2]
    assert own.json["plan"]["trace"]["planner_id"] == "authored"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("no list", "steps"),
        ("nan", "steps"),
        ("no name", "steps.0.name"),
        ("unknown type", "steps.0.type"),
        ("bad option", "steps.0.below"),
    ],
)
async def test_a_plan_of_a_planner_is_checked_like_any_other(text: str, path: str) -> None:
    async with portico(**MODULES, planner=BROKEN) as (served, _):
        answers = [await served.post(plan(text=text, plan={"passes": passes})) for passes in (1, 2)]
    for answer in answers:
        error = answer.json["error"]
        assert (error["code"], error["details"]["violations"][0]["path"]) == ("ORCHESTRATION_PLAN_REFUSED", path)


async def test_a_planner_that_fails_is_named_without_what_it_said() -> None:
    async with portico(**MODULES, planner=BROKEN) as (served, _):
        answer = await served.post(plan(text="sk-canary-4711"))
    assert answer.json["error"]["code"] == "ORCHESTRATION_PLAN_REFUSED"
    assert answer.json["error"]["message"] == "the planner broken made no plan: KeyError"


@pytest.mark.parametrize("passes", [1, 2])
async def test_a_replay_needs_no_module(tmp_path: Path, passes: int) -> None:
    storage = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}}
    async with portico(**MODULES, **storage, planner=PLANNER) as (served, _):
        ids = [("made", []), ("given", [FIND, CHEAP, {"name": "pay", "type": "charge"}]), ("unfit", [CHEAP])]
        for request_id, steps in ids:
            await served.post(plan(*steps, request_id=request_id, plan={"passes": passes}))
        shown = (await served.get("/v1/executions/made/steps")).json
    async with open_history_reader(Settings.model_validate(storage)) as reader:
        for request_id, _ in ids:
            assert (await reader.replay(LOCAL.tenant, RequestId(request_id))).identical
    assert "by_rules" in str(shown)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("exit", "TOOL_EXECUTION_FAILED"),
        ("text", "TOOL_EXECUTION_FAILED"),
        ("large", "TOOL_EXECUTION_FAILED"),
        ("raise", "TOOL_EXECUTION_FAILED"),
        ("thread", None),
    ],
)
async def test_a_step_that_misbehaves_fails_with_its_code_and_nothing_else(how: str, code: str | None) -> None:
    async with portico(**MODULES) as (served, _):
        answer = await served.post(plan({"name": "a", "type": "misbehave", "input": how}))
        after = await served.post(plan(FIND))
    assert (answer.json["error"] or {"code": None})["code"] == code
    assert "sk-canary" not in answer.body.decode()
    assert after.status == 200


async def test_an_external_step_is_approved_over_http() -> None:
    async with portico(**MODULES) as (served, _):
        letter = {"name": "letter", "type": "send_letter", "input": "Dear Ada"}
        waiting = await served.post(plan(letter, request_id="q"))
        done = await resume(served, tool_id="step:send_letter", payload={"decision": "approve"})
    assert (waiting.status, waiting.json["suspensions"][0]["kind"]) == (202, "approval")
    assert (done.status, done.json["content"]) == (200, "sent Dear Ada")


async def test_the_step_types_are_listed_with_their_schemas_and_their_safety() -> None:
    async with portico(**MODULES) as (served, _):
        views = {each["name"]: each for each in (await served.get("/v1/step-types")).json["data"]}
        tools = [each["name"] for each in (await served.get("/v1/tools")).json["data"]]
    assert [each["source"] for each in views.values()].count("built-in") == len(STEP_SPECS)
    own = views["keep_cheap"]
    assert own["options_schema"] == {"type": "object", "properties": {"below": {"default": 100, "type": "number"}}}
    assert own["input_schema"]["items"] == {"$ref": "#/$defs/Order"}
    assert (views["charge"]["at_most_once"], views["send_letter"]["approval"]) == (True, True)
    assert not any("step" in name for name in tools)


async def test_no_request_can_call_the_function_of_a_step_type_as_a_tool() -> None:
    async with portico(**MODULES) as (served, _):
        offered = await served.post(chat("Hello", tools=["step:charge"]))
        planned = await served.post(
            plan({"name": "a", "type": "tool", "input": {"name": "step:charge", "arguments": {"input": []}}})
        )
    assert (offered.status, planned.status, shop_steps.charged) == (422, 422, [])


async def test_a_policy_of_the_request_limits_a_plan_to_the_types_that_it_names() -> None:
    async with portico(**MODULES) as (served, _):
        allowed = await served.post(plan(FIND, plan={"policy": {"allowed_step_types": ["find_orders"]}}))
        refused = await served.post(plan(FIND, CHEAP, plan={"policy": {"allowed_step_types": ["find_orders"]}}))
        unknown = await served.post(plan(FIND, plan={"policy": {"allowed_step_types": ["find_order"]}}))
    assert (allowed.status, refused.json["error"]["code"]) == (200, "ORCHESTRATION_PLAN_REFUSED")
    assert (unknown.status, unknown.json["code"]) == (422, "REQUEST_INVALID")


async def test_the_quote_of_a_plan_counts_the_steps_of_modules() -> None:
    async with portico(**MODULES) as (served, _):
        quote = await served.post(plan(FIND, CHEAP, {"name": "pay", "type": "charge"}), path=QUOTE)
    assert quote.json["tool_calls"] == 2 + 2 + 1


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (
            {"planner": PLANNER},
            "planner.name: no module of plan.modules defines the planner 'by_rules'; there is none",
        ),
        (
            {"plan": {"modules": ["acme_missing"]}},
            "plan.modules: acme_missing cannot be imported: ModuleNotFoundError",
        ),
        (
            MODULES | {"planner": {"kind": "static", "steps": [CHEAP | {"below": "much"}]}},
            "planner.steps.0.below: ",
        ),
        (
            MODULES | {"planner": {"kind": "static", "steps": [CHEAP | {"type": "zork"}]}},
            "planner.steps.0.type: must",
        ),
    ],
)
async def test_what_cannot_be_used_stops_the_start(tables: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationFailure, match=re.escape(problem)):
        async with portico(**tables):
            pass


async def test_a_static_plan_may_have_steps_of_modules() -> None:
    async with portico(**MODULES, planner={"kind": "static", "steps": [FIND, CHEAP]}) as (served, _):
        answer = await served.post(plan())
    assert (answer.json["structured_output"], answer.json["plan"]["trace"]["planner_id"]) == (ORDERS[:1], "static")
