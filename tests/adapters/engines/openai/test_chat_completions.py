"""Chat completions: what is asked, in OpenAI's own types."""

from dataclasses import replace

import orjson
import pytest
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter

from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.domain.contract.messages import ImagePart, Message, ModelMessage, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineCapabilities, EngineProfile
from tests.adapters.engines.cases import GRAMMAR, OPEN_SCHEMA, SCHEMA
from tests.adapters.engines.engine_calls import HELLO, call, profile

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
    body = ChatCompletionsDialect().encode(asked, profile(model, options), stream=stream).body
    orjson.dumps(body)
    kind = CompletionCreateParamsStreaming if stream else CompletionCreateParamsNonStreaming
    TypeAdapter(kind).validate_python(body)
    return body


def test_a_plain_request_holds_nothing_that_was_not_asked_for():
    body = encoded(call())
    assert body == {"model": "some-model", "messages": [{"role": "user", "content": "Hello"}], "stream": False}


def test_the_key_of_a_cached_prompt_is_sent_unless_an_option_has_one():
    cached = replace(call(), cache_key="0" * 32)
    assert encoded(cached)["prompt_cache_key"] == "0" * 32
    chosen = replace(cached, hints=ExecutionHints(options={"prompt_cache_key": "mine"}))
    assert encoded(chosen, options=frozenset({"prompt_cache_key"}))["prompt_cache_key"] == "mine"


def test_a_stream_is_asked_for_with_its_usage():
    body = encoded(call(), stream=True)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_a_server_that_cannot_tell_a_streams_usage_is_not_asked_for_it():
    silent = EngineProfile("p", "m", "s", 1, 1, frozenset(), None, EngineCapabilities(streaming_usage=False))
    body = ChatCompletionsDialect().encode(call(), silent, stream=True).body
    assert body["stream"] is True
    assert "stream_options" not in body


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


def test_the_key_is_a_header():
    assert ChatCompletionsDialect().headers("secret") == {"Authorization": "Bearer secret"}
    assert ChatCompletionsDialect().headers(None) == {}


SAMPLING = ExecutionHints(temperature=0, top_p=0.5, stop="END", seed=0)


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("gpt-4.1", None, True),
        ("o3", None, False),
        ("gpt-5-nano", "low", False),
        ("gpt-5-chat-latest", None, True),
        ("gpt-5.2", None, True),
        ("gpt-5.2", "low", False),
        ("gpt-5.6-sol", None, False),
        ("gpt-5.6-sol", "none", True),
        ("ft:o4-mini:org::id", None, False),
        ("openai/o3", None, True),
        ("deepseek-reasoner", "high", True),
    ],
)
def test_sampling_is_left_out_where_openais_model_refuses_it(model: str, effort: str | None, sent: bool):
    hints = SAMPLING.model_copy(update={"options": {"reasoning_effort": effort} if effort else {}})
    body = encoded(call(hints=hints), model=model, options=frozenset({"reasoning_effort"}))
    assert ({"temperature", "top_p", "stop"} <= body.keys()) is sent
    assert body["seed"] == 0


@pytest.mark.parametrize("name", ["Ada Lovelace", "a/b", "<b>", "a|b"])
def test_a_name_that_openai_refuses_is_left_out(name: str):
    body = encoded(call((Message(role="user", content="Hello", name=name),)))
    assert body["messages"] == [{"role": "user", "content": "Hello"}]


def test_a_schema_is_strict_where_it_fits_as_it_is_and_sent_unchanged_either_way():
    closed = {**SCHEMA, "properties": {**SCHEMA["properties"], "people": {"type": "integer"}}}
    for schema, strict in ((closed, True), (SCHEMA, False), (OPEN_SCHEMA, False)):
        form = encoded(EngineCall(HELLO, (), ExecutionHints(), schema))["response_format"]
        named = {"name": "answer", "schema": dict(schema), "strict": strict}
        assert form == {"type": "json_schema", "json_schema": named}


def test_a_grammar_is_llama_cpps_own_member():
    assert encoded(EngineCall(HELLO, (), ExecutionHints(), grammar=GRAMMAR))["grammar"] == GRAMMAR
    assert not {"grammar", "response_format"} & encoded(call()).keys()


def thought(text: str, *calls: ToolCall, **kept: object) -> ModelMessage:
    said = {"role": "assistant", "content": text, "tool_calls": list(calls) or None}
    return ModelMessage(**said, provider="primary", kept=[kept])


def test_reasoning_is_sent_back_in_every_turn_with_tool_calls_from_the_first_call_on():
    roll, rolled = ToolCall(id="a", name="roll_dice", arguments={}), Message(role="tool", content="4", tool_call_id="a")
    turns = [
        [*HELLO, thought("Hi.", reasoning_content="A greeting.")],
        [*HELLO, thought("", roll, reasoning_content=""), rolled, thought("Four.", reasoning_content="It is four.")],
        [*HELLO, thought("Wait.", reasoning_content="Hm."), thought("", roll, reasoning_content="Now."), rolled],
    ]
    messages = encoded(call([message for turn in turns for message in turn]))["messages"]
    sent = [message.get("reasoning_content") for message in messages if message["role"] == "assistant"]
    assert sent == [None, "", "It is four.", None, "Now."]


def test_blocks_of_another_kind_and_signatures_of_other_calls_are_not_sent():
    messages = [thought("", ToolCall(id="a", name="f", arguments={}), call="b", signature="x"), thought("Hi.", id="rs")]
    first, second = encoded(call(messages))["messages"]
    assert first["tool_calls"] == [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    assert second == {"role": "assistant", "content": "Hi."}
