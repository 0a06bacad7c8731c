"""Mode redundant over HTTP: refusals before anything runs, and votes of scripted answers."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.portico import EVENTS, chat, events, portico
from tests.support.upstream import ScriptedUpstream, UpstreamAction, reply

OUTPUT = {"schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def asking(output: Any = None, **redundancy: Any) -> bytes:
    return chat("Which city?", mode="redundant", output=OUTPUT if output is None else output, redundancy=redundancy)


def scripted(directory: Path) -> dict[str, Any]:
    """Return the configuration of an engine that gives the same answer three times."""
    script = directory / "replies.json"
    script.write_bytes(orjson.dumps([{"text": '{"city": "Ulm"}'}] * 3))
    return {"scripted": {"model": f"scripted://{script}"}}


async def test_a_vote_is_reported(tmp_path: Path) -> None:
    async with portico(engines=scripted(tmp_path)) as (served, _):
        answer = await served.post(asking(n=3, early_stop=False))
    assert (answer.status, answer.json["state"]) == (200, "COMPLETE")
    assert (answer.json["confidence"], answer.json["confidence_source"]) == (1.0, "voting")
    assert answer.json["structured_output"] == answer.json["vote"]["candidates"][0]["value"] == {"city": "Ulm"}
    assert answer.json["vote"]["tally"][0]["votes"] == 3
    assert answer.json["vote"]["stopped_early"] is False


async def test_a_decided_vote_cancels_the_remaining_calls() -> None:
    async with (
        ScriptedUpstream(*[reply(completion('{"city": "Ulm"}'))] * 3, [UpstreamAction.HANG]) as upstream,
        portico(
            engines={"slow": {"model": "openai://some-model", "base_url": upstream.url, "api": "chat_completions"}}
        ) as (
            served,
            service,
        ),
    ):
        answer = await served.post(asking(n=5))
        await upstream.wait_for_departures(2)
        assert (len(upstream.requests), len(upstream.departures)) == (5, 2)
        assert service.runner.in_flight == 0
    assert (answer.status, answer.json["structured_output"]) == (200, {"city": "Ulm"})
    assert (answer.json["vote"]["stopped_early"], answer.json["confidence"]) == (True, 0.6)
    assert [each["status"] for each in answer.json["vote"]["candidates"]].count("cancelled") == 2


def completion(text: str) -> dict[str, Any]:
    """Return a chat completion with that text."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    return {"id": "c-1", "object": "chat.completion", "model": "some-model", "choices": [choice], "usage": usage}


async def test_a_vote_is_published_as_events_with_numbered_replicas(tmp_path: Path) -> None:
    async with portico(engines=scripted(tmp_path)) as (served, _):
        voted = events(await served.post(asking(n=2, early_stop=False), EVENTS))
        plain = events(await served.post(chat("Hello"), EVENTS))
    assert [event["replica"] for event in voted if event["type"] == "inference.start"] == [0, 1]
    assert [event["status"] for event in voted if event["type"] == "vote.cast"] == ["voted", "voted"]
    (decided,) = [event for event in voted if event["type"] == "vote.decided"]
    assert (decided["votes"], decided["confidence"], decided["error_code"]) == (2, 1.0, None)
    assert all("replica" not in event for event in plain)


@pytest.mark.parametrize(
    ("redundancy", "fields"),
    [
        ({"n": 17}, ["redundancy.n"]),
        ({"n": 2, "quorum": 3}, ["redundancy.quorum"]),
        ({"n": 2, "models": ["rehearsal"]}, ["redundancy.models"]),
        ({"models": ["rehearsal", "rehearsal"]}, ["redundancy.models"]),
        ({"n": 2, "models": ["rehearsal", "secret-1"]}, ["redundancy.models.1"]),
        ({"n": 17, "quorum": 18, "models": []}, ["redundancy.n", "redundancy.quorum", "redundancy.models"]),
    ],
)
async def test_impossible_options_are_refused_by_field(redundancy: dict[str, Any], fields: list[str]) -> None:
    async with portico() as (served, _):
        answer = await served.post(asking(**redundancy))
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert [error["field"] for error in answer.json["details"]["errors"]] == fields
    assert "secret-1" not in answer.body.decode()


async def test_the_maximum_of_replicas_is_configured(tmp_path: Path) -> None:
    async with portico(limits={"replicas": 2}, engines=scripted(tmp_path)) as (served, _):
        assert (await served.post(asking(n=2))).status == 200
        answer = await served.post(asking())
    assert (answer.status, answer.json["details"]["errors"][0]["field"]) == (422, "redundancy.n")


@pytest.mark.parametrize("output", [{}, {"grammar": 'root ::= "yes"'}])
async def test_a_schema_is_required(output: dict[str, Any]) -> None:
    async with portico() as (served, _):
        answer = await served.post(asking(output))
    assert (answer.status, answer.json["code"]) == (422, "CONFIG_SCHEMA_REQUIRED")


@pytest.mark.parametrize("mode", ["chat", "structured"])
async def test_other_modes_refuse_redundancy(mode: str) -> None:
    output = OUTPUT if mode == "structured" else {}
    async with portico() as (served, _):
        answer = await served.post(chat("Hello", mode=mode, output=output, redundancy={"n": 3}))
    assert (answer.status, answer.json["details"]["errors"][0]["field"]) == (422, "redundancy")
