"""Chat completions: what is asked, in OpenAI's own types."""

import orjson
import pytest
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter

from app.adapters.engines.openai_compatible import ChatCompletions
from app.domain.boundary import ExecutionHints, NamedTool
from app.domain.effects import EngineCall
from app.domain.messages import ImagePart, Message, TextPart, ToolCall
from app.domain.tools import ToolDefinition
from tests.adapters.engines.asking import call, profile

DICE = ToolDefinition(
    "roll_dice", "Rolls dice", {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}
)
CONVERSATION = (
    Message(role="system", content="Be brief."),
    Message(
        role="user",
        content=[
            TextPart(type="text", text="Roll this."),
            ImagePart(type="image", media_type="image/png", data="iVBORw=="),
        ],
        name="ada",
    ),
    Message(role="assistant", content="", tool_calls=[ToolCall(id="a", name="roll_dice", arguments={"sides": 6})]),
    Message(role="tool", content="4", tool_call_id="a", name="roll_dice"),
    Message(role="assistant", content="A four."),
    Message(role="user", content="Again."),
)


def encoded(
    asked: EngineCall, *, model: str = "some-model", stream: bool = False, options: frozenset[str] = frozenset()
):
    body = ChatCompletions().encode(asked, profile(model, options), stream=stream).body
    orjson.dumps(body)
    kind = CompletionCreateParamsStreaming if stream else CompletionCreateParamsNonStreaming
    TypeAdapter(kind).validate_python(body)
    return body


def test_a_plain_request_holds_nothing_that_was_not_asked_for():
    body = encoded(call())
    assert body == {"model": "some-model", "messages": [{"role": "user", "content": "Hello"}], "stream": False}


def test_a_stream_is_asked_for_with_its_usage():
    body = encoded(call(), stream=True)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_a_conversation_keeps_its_parts_calls_and_results():
    assert encoded(call(CONVERSATION))["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "name": "ada",
            "content": [
                {"type": "text", "text": "Roll this."},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "roll_dice", "arguments": '{"sides":6}'}}
            ],
        },
        {"role": "tool", "content": "4", "tool_call_id": "a"},
        {"role": "assistant", "content": "A four."},
        {"role": "user", "content": "Again."},
    ]


def test_tools_are_offered_as_functions():
    function = {"name": DICE.name, "description": DICE.description, "parameters": dict(DICE.parameters)}
    assert encoded(call(tools=(DICE,)))["tools"] == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        (NamedTool(name="roll_dice"), {"type": "function", "function": {"name": "roll_dice"}}),
    ],
)
def test_a_tool_choice_is_sent_with_tools_and_only_then(choice: str | NamedTool, sent: object):
    hints = ExecutionHints(tool_choice=choice)
    assert encoded(call(tools=(DICE,), hints=hints))["tool_choice"] == sent
    assert "tool_choice" not in encoded(call(hints=hints))


def test_hints_are_sent_as_given_and_zero_is_not_absent():
    hints = ExecutionHints(temperature=0, top_p=0.5, stop=["END"], seed=0, max_tokens=9)
    body = encoded(call(hints=hints))
    assert {key: body[key] for key in ("temperature", "top_p", "stop", "seed", "max_tokens")} == {
        "temperature": 0,
        "top_p": 0.5,
        "stop": ["END"],
        "seed": 0,
        "max_tokens": 9,
    }


@pytest.mark.parametrize(
    "model", ["gpt-4o-mini", "gpt-4.5-preview", "gpt-5-mini", "o3", "o4-mini", "chatgpt-4o-latest"]
)
def test_openais_own_models_are_asked_for_completion_tokens(model: str):
    body = encoded(call(hints=ExecutionHints(max_tokens=9)), model=model)
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


@pytest.mark.parametrize("model", ["gpt-oss-120b", "mistral-large-latest", "llama-3.3-70b", "olmo-7b", "qwen3"])
def test_all_other_models_are_asked_for_max_tokens(model: str):
    assert encoded(call(hints=ExecutionHints(max_tokens=9)), model=model)["max_tokens"] == 9


def test_options_pass_when_the_engine_lists_them_and_never_replace_what_is_ours():
    hints = ExecutionHints(options={"reasoning_effort": "low", "top_k": 3, "model": "other", "stream": True})
    body = encoded(call(hints=hints), options=frozenset({"reasoning_effort", "model", "stream"}))
    assert body["reasoning_effort"] == "low"
    assert (body["model"], body["stream"]) == ("some-model", False)
    assert "top_k" not in body


def test_b8_the_key_is_a_header():
    assert ChatCompletions().headers("secret") == {"Authorization": "Bearer secret"}
    assert ChatCompletions().headers(None) == {}
