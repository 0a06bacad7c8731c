"""Rules and judges over HTTP: refusals before anything runs, and answers that are validated."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.portico import EVENTS, chat, events, portico

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO = {"text": '{"valid": false, "score": 0.2, "issues": ["It is no city."]}'}
YES = {"text": '{"valid": true, "score": 0.8, "issues": []}'}


def scripted(directory: Path, **scripts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the configuration of engines that answer from scripts."""
    for name, script in scripts.items():
        (directory / f"{name}.json").write_bytes(orjson.dumps(script))
    return {name: {"model": f"scripted://{directory}/{name}.json"} for name in scripts}


async def test_a_text_is_validated_by_rules_and_by_the_rehearsal_engine_as_judge() -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Hello", output={"rules": ["not_empty"], "semantic": "Greets back."}))
    assert (answer.status, answer.json["state"], answer.json["confidence"]) == (200, "COMPLETE", 1.0)
    assert answer.json["validation_result"] == {
        "valid": True,
        "errors": [],
        "warnings": [],
        "repairs": [],
        "attempts": 1,
    }
    assert answer.json["structured_output"] is None
    assert "rehearsal engine" in answer.json["content"]


async def test_a_text_that_breaks_its_rules_is_retried_with_all_tools_and_then_fails() -> None:
    output = {"rules": [{"type": "length", "max": 3}]}
    async with portico() as (served, _):
        answer = await served.post(chat("How large is Ulm?", output=output))
        lenient = await served.post(chat("How large is Ulm?", output=output | {"strict_validation": False}))
    assert (answer.status, answer.json["error"]["code"]) == (502, "VALIDATION_RULE_FAILED")
    assert (answer.json["validation_result"]["attempts"], answer.json["tool_calls_made"]) == (3, [])
    assert answer.json["content"] is None
    assert (lenient.status, lenient.json["state"], lenient.json["confidence"]) == (200, "COMPLETE", 0.0)
    assert "Ulm" in lenient.json["content"]
    assert lenient.json["validation_result"]["errors"] == answer.json["validation_result"]["errors"]


async def test_an_answer_that_is_valid_at_the_third_attempt_is_shown_with_every_attempt(tmp_path: Path) -> None:
    replies = [{"text": "It is Ulm."}, {"text": '{"city": 7}'}, {"text": "Here:\n```json\n{'city': 'Ulm',}\n```"}]
    async with portico(engines=scripted(tmp_path, model=replies)) as (served, _):
        received = events(await served.post(chat("Which city?", mode="structured", output={"schema": CITY}), EVENTS))
    response = received[-1]["response"]
    assert (response["state"], response["structured_output"]) == ("COMPLETE", {"city": "Ulm"})
    judged = [event for event in received if event["type"] == "validation.end"]
    assert [event["valid"] for event in judged] == [False, False, True]
    (repaired,) = [event for event in received if event["type"] == "constraint.repaired"]
    assert repaired["sequence_number"] < judged[2]["sequence_number"]
    assert response["validation_result"]["attempts"] == 3
    assert response["validation_result"]["repairs"]


async def test_the_rehearsal_engine_can_refuse_as_a_judge() -> None:
    async with portico() as (served, _):
        received = events(await served.post(chat("Hello [[refuse]]", tools=[], output={"semantic": True}), EVENTS))
    response = received[-1]["response"]
    assert (response["state"], response["error"]["code"]) == ("ERROR", "VALIDATION_SEMANTIC_FAILED")
    assert response["validation_result"]["attempts"] == 3
    assert response["error"]["details"]["violations"][0]["rule"] == "semantic"
    judged = [event for event in received if event["type"] == "validation.end"]
    assert [event["attempt"] for event in judged] == [1, 2, 3]
    assert all("replica" not in event for event in judged)
    moved = [(event["from_state"], event["to_state"]) for event in received if event["type"] == "lifecycle.transition"]
    assert moved[3:] == [*[("EXECUTE", "VALIDATE"), ("VALIDATE", "EXECUTE")] * 2, *moved[-2:]]
    assert moved[-2:] == [("EXECUTE", "VALIDATE"), ("VALIDATE", "ERROR")]


@pytest.mark.parametrize("mode", ["structured", "redundant"])
async def test_other_modes_are_validated_as_well(mode: str) -> None:
    async with portico() as (served, _):
        output = {"schema": CITY, "semantic": True}
        good = await served.post(chat("Which city?", mode=mode, output=output))
        bad = await served.post(chat("Which city? [[refuse]]", mode=mode, output=output))
    assert (good.status, good.json["state"]) == (200, "COMPLETE")
    assert (bad.status, bad.json["error"]["code"]) == (502, "VALIDATION_SEMANTIC_FAILED")
    assert bad.headers["x-should-retry"] == "true"


async def test_after_a_refused_answer_a_route_may_switch_to_its_next_engine(tmp_path: Path) -> None:
    engines = scripted(tmp_path, a=[{"text": '{"city": "x"}'}, NO, YES], b=[{"text": '{"city": "Ulm"}'}])
    route = {"engines": ["a", "b"], "on_content_failure": "next"}
    async with portico(engines=engines, routes={"default": route, "plain": ["a"]}) as (served, _):
        body = chat("Which city?", mode="structured", output={"schema": CITY, "semantic": True})
        received = events(await served.post(body, EVENTS))
        shown = (await served.get("/v1/engines")).json["data"]
    response = received[-1]["response"]
    assert response["structured_output"] == {"city": "Ulm"}
    assert (response["metadata"]["provider"], response["confidence"]) == ("b", 0.8)
    assert [event["provider"] for event in received if event["type"] == "inference.start"] == ["a", "a", "b", "a"]
    assert [(engine["name"], engine["routes"]) for engine in shown] == [("a", ["default", "plain"]), ("b", ["default"])]


PATH = {"type": "not_empty", "path": "$.city"}
COMPARE = {"type": "compare", "path": "$.size", "operator": "gt", "value": 3}


@pytest.mark.parametrize(
    ("output", "fields"),
    [
        ({"schema": CITY}, ["output.schema"]),
        ({"grammar": 'root ::= "a"', "semantic": True}, ["output.grammar"]),
        ({"repair_allowed": False}, ["output.repair_allowed"]),
        ({"rules": ["not_empty", PATH, COMPARE]}, ["output.rules.1.path", "output.rules.2.path"]),
    ],
)
async def test_options_of_a_schema_are_refused_in_chat_by_field(output: dict[str, Any], fields: list[str]) -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Hello", output=output))
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    errors = answer.json["details"]["errors"]
    assert [error["field"] for error in errors] == fields
    if fields != ["output.repair_allowed"]:
        assert all("mode structured" in error["message"] for error in errors)


@pytest.mark.parametrize(
    ("rule", "field"), [("unheard_of", "output.rules.0"), ({"type": "regex", "pattern": "(?=a)"}, "output.rules.0")]
)
async def test_unusable_rules_are_refused_in_chat_too(rule: Any, field: str) -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Hello", output={"rules": [rule]}))
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert answer.json["details"]["errors"][0]["field"].startswith(field)
