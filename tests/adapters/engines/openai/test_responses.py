"""Requests to the Responses API in OpenAI's own types, and answers that are sent back."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.domain.contract.messages import Message, ModelMessage, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from tests.adapters.engines.cases import DICE, IMAGE, OPEN_SCHEMA, PARALLEL, SCHEMA
from tests.adapters.engines.engine_calls import HELLO, call, profile

PLAIN = {"store": False, "stream": False, "include": ["reasoning.encrypted_content"]}
FIRST, SECOND = ToolCall(id="a", name="f", arguments={}), ToolCall(id="b", name="g", arguments={"n": 1})
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
LATER = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "sealed too"}


def encoded(
    asked: EngineCall, *, model: str = "gpt-5-codex", stream: bool = False, options: frozenset[str] = frozenset()
):
    sent = ResponsesDialect().encode(asked, profile(model, options), stream=stream)
    orjson.dumps(sent.body)
    kind = ResponseCreateParamsStreaming if stream else ResponseCreateParamsNonStreaming
    TypeAdapter(kind).validate_python(sent.body)
    assert sent.path == "/responses"
    return sent.body


def test_the_key_of_a_cached_prompt_is_sent_unless_an_option_has_one():
    cached = replace(call(), cache_key="0" * 32)
    assert encoded(cached)["prompt_cache_key"] == "0" * 32
    chosen = replace(cached, hints=ExecutionHints(options={"prompt_cache_key": "mine"}))
    assert encoded(chosen, options=frozenset({"prompt_cache_key"}))["prompt_cache_key"] == "mine"


def sent_back(text: str, *calls: ToolCall, kept: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of an answer that is sent back."""
    said = ModelMessage(role="assistant", content=text, tool_calls=list(calls) or None, provider="primary", kept=kept)
    return encoded(call([said]))["input"]


def said(text: str, **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **members}


def asked_for(call: ToolCall) -> dict[str, Any]:
    arguments = orjson.dumps(call.arguments).decode()
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


def at(call: ToolCall) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call.id}


def test_nothing_is_stored_and_thoughts_are_asked_for_sealed():
    assert encoded(call()) == {"model": "gpt-5-codex", "input": [{"role": "user", "content": "Hello"}], **PLAIN}
    assert encoded(call(), stream=True)["stream"] is True


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest"])
def test_a_model_that_has_no_thoughts_is_not_asked_for_them(model: str):
    assert "include" not in encoded(call(), model=model)


def test_parallel_calls_and_their_results_are_items_of_their_own():
    assert encoded(call(PARALLEL))["input"] == [
        {"role": "user", "content": "Roll two dice."},
        *(asked_for(asked) for asked in PARALLEL[1].tool_calls or ()),
        {"type": "function_call_output", "call_id": "call_1", "output": "4"},
        {"type": "function_call_output", "call_id": "call_2", "output": "17"},
    ]


def test_an_image_may_stand_in_a_message_and_in_a_result():
    url = f"data:image/png;base64,{IMAGE.data}"
    image = {"type": "input_image", "detail": "auto", "image_url": url}
    messages = [
        Message(role="user", content=[IMAGE], name="ada"),
        Message(role="assistant", content="", tool_calls=[FIRST]),
        Message(role="tool", content=[IMAGE], tool_call_id="a"),
    ]
    items = encoded(call(messages))["input"]
    assert items[0] == {"role": "user", "content": [image]}
    assert items[2] == {"type": "function_call_output", "call_id": "a", "output": [image]}


def test_tools_are_flat_and_not_strict():
    about = {"name": DICE.name, "description": DICE.description, "parameters": dict(DICE.parameters)}
    assert encoded(call(tools=(DICE,)))["tools"] == [{"type": "function", **about, "strict": False}]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        (NamedTool(name="roll_dice"), {"type": "function", "name": "roll_dice"}),
    ],
)
def test_a_tool_choice_is_sent_with_tools_and_only_then(choice: str | NamedTool, sent: object):
    hints = ExecutionHints(tool_choice=choice)
    assert encoded(call(tools=(DICE,), hints=hints))["tool_choice"] == sent
    assert "tool_choice" not in encoded(call(hints=hints))


@pytest.mark.parametrize(("asked", "sent"), [(1, 16), (15, 16), (16, 16), (400, 400)])
def test_the_limit_is_never_below_the_apis_least(asked: int, sent: int):
    assert encoded(call(hints=ExecutionHints(max_tokens=asked)))["max_output_tokens"] == sent


def test_what_the_api_does_not_know_is_left_out_and_sampling_where_the_model_refuses_it():
    hints = ExecutionHints(temperature=0, top_p=0.5, stop="END", seed=0)
    assert encoded(call(hints=hints)) == encoded(call())
    body = encoded(call(hints=hints), model="gpt-4o")
    assert (body["temperature"], body["top_p"]) == (0, 0.5)
    assert not {"stop", "seed"} & body.keys()
    resting = hints.model_copy(update={"options": {"reasoning": {"effort": "none"}}})
    assert encoded(call(hints=resting), model="gpt-5.6-sol", options=frozenset({"reasoning"}))["temperature"] == 0


def test_a_schema_is_the_format_of_the_text_and_keeps_what_else_is_said_of_it():
    schema = EngineCall(HELLO, (), ExecutionHints(options={"text": {"verbosity": "low"}}), OPEN_SCHEMA)
    form = {"type": "json_schema", "name": "answer", "schema": dict(OPEN_SCHEMA), "strict": False}
    assert encoded(schema, options=frozenset({"text"}))["text"] == {"verbosity": "low", "format": form}
    assert encoded(schema)["text"] == {"format": form}
    closed = {**SCHEMA, "properties": {**SCHEMA["properties"], "people": {"type": "integer"}}}
    assert encoded(EngineCall(HELLO, (), ExecutionHints(), closed))["text"]["format"]["strict"] is True


def test_options_pass_when_the_engine_lists_them_and_never_replace_what_is_ours():
    hints = ExecutionHints(options={"reasoning": {"effort": "low"}, "store": True, "input": "other", "top_k": 3})
    body = encoded(call(hints=hints), options=frozenset({"reasoning", "store", "input"}))
    assert body["reasoning"] == {"effort": "low"}
    assert body["store"] is False
    assert body["input"] == [{"role": "user", "content": "Hello"}]
    assert "top_k" not in body


@pytest.mark.parametrize("option", [{"text": "low"}, {"reasoning": "low"}, {"reasoning": None}])
def test_an_option_of_a_wrong_kind_is_the_providers_to_refuse(option: dict[str, Any]):
    hints = ExecutionHints(options=option, temperature=1)
    body = ResponsesDialect().encode(call(hints=hints), profile("gpt-5", frozenset(option)), stream=False).body
    assert {key: body[key] for key in option} == option


def test_thoughts_stand_again_where_they_stood():
    marks = [THOUGHT, {"type": "message", "characters": 3}, LATER, at(FIRST), at(SECOND)]
    assert sent_back("Hi.", FIRST, SECOND, kept=marks) == [
        THOUGHT,
        said("Hi."),
        LATER,
        asked_for(FIRST),
        asked_for(SECOND),
    ]
    assert sent_back("", FIRST, SECOND, kept=[THOUGHT, at(FIRST), LATER, at(SECOND)]) == [
        THOUGHT,
        asked_for(FIRST),
        LATER,
        asked_for(SECOND),
    ]


def test_what_has_no_mark_stood_at_the_beginning():
    assert sent_back("Hi.", FIRST, kept=[at(FIRST)]) == [said("Hi."), asked_for(FIRST)]
    assert sent_back("Hi.", FIRST, kept=[LATER, at(FIRST)]) == [said("Hi."), LATER, asked_for(FIRST)]
    assert sent_back("", FIRST, SECOND, kept=[LATER, at(SECOND)]) == [asked_for(FIRST), LATER, asked_for(SECOND)]


def test_a_text_of_several_messages_is_sent_back_in_them():
    first, second = {"type": "message", "characters": 3, "phase": "commentary"}, {"type": "message", "characters": 4}
    assert sent_back("Hi.Bye.", kept=[THOUGHT, first, LATER, second]) == [
        THOUGHT,
        said("Hi.", phase="commentary"),
        LATER,
        said("Bye."),
    ]
    assert sent_back("First.Bye.", kept=[LATER, second]) == [said("First."), LATER, said("Bye.")]
    assert sent_back("Hi", kept=[first, second | {"phase": "final_answer"}]) == [said("Hi", phase="final_answer")]


def test_thoughts_that_led_to_nothing_are_left_out():
    assert sent_back("", kept=[THOUGHT]) == [said("")]
    assert sent_back("Hi.", kept=[THOUGHT, {"type": "message", "characters": 3}, LATER]) == [THOUGHT, said("Hi.")]


def test_blocks_of_another_kind_and_marks_of_other_calls_are_not_sent():
    strange = [{"reasoning_content": "x"}, {"call": "a", "signature": "x"}, {"type": "thinking"}, at(SECOND)]
    assert sent_back("Hi.", FIRST, kept=strange) == [said("Hi."), asked_for(FIRST)]


def test_the_key_is_a_header():
    assert ResponsesDialect().headers("secret") == {"Authorization": "Bearer secret"}
    assert ResponsesDialect().headers(None) == {}
