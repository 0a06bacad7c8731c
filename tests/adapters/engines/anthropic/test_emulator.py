"""The emulated Messages API refuses what the real one refuses, so that what it takes says something."""

import json
from typing import Any

import pytest

from tests.support.emulators.answers import ANSWERS, EmulatedResponse
from tests.support.emulators.anthropic import respond

HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "secret"}
MODEL, NEW, BOUND = "claude-haiku-4-5", "claude-opus-4-8", "claude-opus-5-5"
HI = {"role": "user", "content": "Hello"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
THINK = {"type": "enabled", "budget_tokens": 1024}


def responded(headers: dict[str, str] = HEADERS, path: str = "/v1/messages", **members: Any) -> EmulatedResponse:
    asked = {"model": MODEL, "max_tokens": 2048, "messages": [HI]} | members
    return respond(path, headers, json.dumps(asked).encode(), ANSWERS["text"])


def said(*turns: tuple[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def calls(*ids: str, name: str = "f") -> tuple[str, Any]:
    return "assistant", [{"type": "tool_use", "id": call_id, "name": name, "input": {}} for call_id in ids]


def results(*ids: str) -> tuple[str, Any]:
    return "user", [{"type": "tool_result", "tool_use_id": call_id, "content": "1"} for call_id in ids]


def format_of(**schema: Any) -> dict[str, Any]:
    return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}


ASK, THOUGHT = ("user", "Roll."), {"type": "thinking", "thinking": "hm", "signature": "forged"}
REFUSED: dict[str, dict[str, Any]] = {
    "no messages": {"messages": []},
    "no model": {"model": None},
    "no max_tokens": {"max_tokens": None},
    "an unknown field": {"seed": 7},
    "a temperature above one": {"temperature": 1.5},
    "temperature and top_p": {"temperature": 0.5, "top_p": 0.9},
    "sampling of a new model": {"model": NEW, "temperature": 0.5},
    "a stop sequence of blanks": {"stop_sequences": ["\n"]},
    "an empty system prompt": {"system": ""},
    "an unknown role": said(("tool", "x")),
    "blank text": said(("user", " ")),
    "no blocks": said(("user", [])),
    "a system message for an older model": said(ASK, ("system", "Be brief.")),
    "a system message behind an answer": said(ASK, ("assistant", "Hi."), ("system", "Be brief.")) | {"model": NEW},
    "a system message before a question": said(ASK, ("system", "Be brief."), ASK) | {"model": NEW},
    "a call without its result": said(ASK, calls("a")),
    "a call with half its results": said(ASK, calls("a", "b"), results("a")),
    "a result without its call": said(ASK, results("a")),
    "text before results": said(ASK, calls("a"), ("user", [{"type": "text", "text": "x"}, *results("a")[1]])),
    "an id twice": said(ASK, calls("a"), results("a"), calls("a"), results("a")),
    "an id of other characters": said(ASK, calls("a.b"), results("a.b")),
    "a name of other characters": said(ASK, calls("a", name="f.g"), results("a")),
    "a member of a block too many": said(("user", [{"type": "text", "text": "x", "index": 1}])),
    "a forged thought": said(ASK, ("assistant", [THOUGHT, {"type": "text", "text": "x"}]), ASK),
    "a thought at the end": said(ASK, ("assistant", [{"type": "redacted_thinking", "data": "x"}]), ASK),
    "an image of another kind": said(
        ("user", [{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "QQ=="}}])
    ),
    "a choice without tools": {"tool_choice": {"type": "auto"}},
    "a choice of a tool that is missing": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}},
    "a tool without the type of its input": {"tools": [{"name": "f", "input_schema": {}}]},
    "a budget above the limit": {"thinking": THINK, "max_tokens": 1024},
    "a budget beside a temperature": {"thinking": THINK, "temperature": 0.5},
    "a budget beside a low top_p": {"thinking": THINK, "top_p": 0.9},
    "a budget beside a forced call": {"thinking": THINK, "tools": [TOOL], "tool_choice": {"type": "any"}},
    "a budget for an answer without a thought": {"thinking": THINK} | said(ASK, calls("a"), results("a")),
    "a budget for a model that needs none": {"thinking": THINK, "model": BOUND},
    "a forced call of a model that always thinks": {"model": BOUND, "tools": [TOOL], "tool_choice": {"type": "any"}},
    "an open object": format_of(type="object", properties={}),
    "a keyword that is not kept": format_of(type="integer", minimum=1),
    "a keyword that is not kept, deep within": format_of(anyOf=[{"type": "array", "items": {"maxLength": 1}}]),
}


@pytest.mark.parametrize("members", REFUSED.values(), ids=REFUSED.keys())
def test_a_request_that_the_reference_forbids_is_refused(members: dict[str, Any]):
    response = responded(**members)
    assert response.status == 400
    assert json.loads(response.pieces[0])["error"]["type"] == "invalid_request_error"


def test_a_thought_whose_past_has_changed_is_refused_by_a_model_that_binds_it():
    first = respond(
        "/v1/messages",
        HEADERS,
        json.dumps({"model": BOUND, "max_tokens": 9, "messages": [HI]}).encode(),
        ANSWERS["reasoning"],
    )
    content = json.loads(first.pieces[0])["content"]
    follow = ("assistant", content), ("user", "Again.")
    assert responded(model=BOUND, **said(("user", "Hello"), *follow)).status == 200
    assert responded(model=BOUND, **said(("user", "Hullo"), *follow)).status == 400
    assert responded(model=BOUND, system="Be brief.", **said(("user", "Hello"), *follow)).status == 400


def test_who_does_not_say_who_asks_is_refused():
    assert responded({"anthropic-version": "2023-06-01"}).status == 401
    assert responded({"x-api-key": "secret"}).status == 400
    assert responded(path="/v1/complete").status == 404


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])
def test_sampling_is_known_to_the_older_version_only(version: str):
    headers = HEADERS | {"anthropic-version": version}
    assert responded(headers, temperature=0.5).status == (200 if version == "2023-06-01" else 400)
    assert responded(headers).status == 200
