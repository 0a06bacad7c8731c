"""Content and causes of tool calls in event streams: live frames, and the spans that link a round."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.portico import EVENTS, chat, events, portico, resume

SUM = "Please calculate 17*3"


async def test_the_stream_shows_arguments_and_result_and_the_log_does_not() -> None:
    async with portico() as (served, _):
        live = events(await served.post(chat(SUM, request_id="q", tools=["calculate"]), EVENTS))
        stored = events(await served.get("/v1/executions/q/events", EVENTS))
    contents = [event for event in live if event["type"] == "tool.content"]
    [start] = [event for event in live if event["type"] == "tool.start"]
    assert [event.get("arguments") for event in contents] == [{"expression": "17*3"}, None]
    assert [event.get("result") for event in contents] == [None, "51"]
    assert {event["tool_call_id"] for event in contents} == {start["tool_call_id"]}
    assert all("sequence_number" not in event for event in contents)
    assert live.index(start) < live.index(contents[0])
    assert "tool.content" not in {event["type"] for event in stored}


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_content_of_calls_can_be_switched_off(streamed: bool) -> None:
    async with portico(telemetry={"stream_tool_content": streamed}) as (served, _):
        live = events(await served.post(chat(SUM, tools=["calculate"]), EVENTS))
    assert ("tool.content" in {event["type"] for event in live}) is streamed


async def test_a_round_names_the_attempt_that_asked_for_it_and_the_next_inference_too() -> None:
    async with portico() as (served, _):
        await served.post(chat(SUM, request_id="q", tools=["calculate"]))
        log = events(await served.get("/v1/executions/q/events", EVENTS))
    first, second = [event for event in log if event["type"] == "inference.start"]
    asked, answered = [event for event in log if event["type"] == "inference.end"]
    rounds = [event for event in log if event["type"] in {"tool.start", "tool.end"}]
    assert [event["tool_call_id"] for event in rounds] == asked["tool_call_ids"] * 2
    assert answered["tool_call_ids"] == []
    assert {(event["caused_by"], event["parent_span_id"]) for event in rounds} == {(first["span_id"],) * 2}
    assert (first["caused_by"], second["caused_by"]) == (None, first["span_id"])


MODULES = {"modules": ["tests.support.shop_tools"]}


def contents(live: list[dict[str, Any]]) -> list[Any]:
    """Return the arguments and the results of the frames, in order."""
    shown = [event for event in live if event["type"] == "tool.content"]
    return [event.get("arguments") or event.get("result") for event in shown]


async def test_a_call_that_policy_denies_is_shown_with_its_refusal() -> None:
    rule = {"tool": "refund", "arguments": {"properties": {"amount": {"minimum": 5}}}}
    async with portico(tools=MODULES, policy={"deny": [rule]}) as (served, _):
        live = events(await served.post(chat('Use refund: {"amount": 7}', tools=["refund"]), EVENTS))
    assert contents(live) == [{"amount": 7}, "not permitted: a policy of the service refuses this call"]


async def test_a_call_that_a_person_denies_is_shown_when_the_execution_goes_on() -> None:
    async with portico(tools=MODULES) as (served, _):
        asked = events(await served.post(chat('Use refund: {"amount": 7}', request_id="q", tools=["refund"]), EVENTS))
        denied = {"tool_id": "refund", "payload": {"decision": "deny", "reason": "too much"}}
        live = events(await resume(served, EVENTS, **denied))
    assert contents(asked) == []
    assert contents(live) == [{"amount": 7}, "not approved: too much"]


async def test_the_answer_of_a_person_is_shown_once_as_the_result_of_its_call(tmp_path: Path) -> None:
    calls = [{"name": "ask_person", "arguments": {"question": question}} for question in ("One?", "Two?")]
    replies = [*({"tool_calls": [call]} for call in calls), {"text": "Thanks."}]
    tmp_path.joinpath("script.json").write_bytes(orjson.dumps(replies))
    async with portico(engines={"script": {"model": f"scripted:///{tmp_path}/script.json"}}) as (served, _):
        first = events(await served.post(chat("Ask.", request_id="q", tools=["ask_person"]), EVENTS))
        second, third = [events(await resume(served, EVENTS, payload=payload)) for payload in ("yes", "no")]
    assert [contents(live) for live in (first, second, third)] == [
        [{"question": "One?"}],
        ["yes", {"question": "Two?"}],
        ["no"],
    ]
