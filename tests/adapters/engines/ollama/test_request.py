"""Ollama: what is asked, in the types of its official client and as its server takes it."""

from typing import Any

import orjson
import pytest
from ollama import Options
from ollama._types import ChatRequest
from ollama._types import Message as OllamaMessage

from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ImagePart, Message, ModelMessage, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from tests.adapters.engines.engine_calls import call, profile
from tests.support.emulators.answers import EmulatedAnswer
from tests.support.emulators.ollama import respond

DICE = ToolDefinition(
    "roll_dice", "Rolls dice", {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}
)
PNG = "iVBORw=="
ROLLS = [ToolCall(id="a", name="roll_dice", arguments={"sides": 6}), ToolCall(id="b", name="now", arguments={})]
SERVER_ONLY = {"truncate", "shift"}
"""Members that the server knows and the client's types lack."""


def encoded(
    asked: EngineCall, *, model: str = "qwen3:8b", stream: bool = False, options: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The body, which the client's types and the server take."""
    sent = OllamaDialect().encode(asked, profile(model, options), stream=stream)
    body: dict[str, Any] = orjson.loads(orjson.dumps(sent.body))
    ChatRequest.model_validate(body)
    assert body.keys() <= ChatRequest.model_fields.keys() | SERVER_ONLY
    assert all(message.keys() <= OllamaMessage.model_fields.keys() | {"tool_call_id"} for message in body["messages"])
    assert sent.path == "/api/chat"
    assert respond(sent.path, {"content-type": "application/json"}, orjson.dumps(body), EmulatedAnswer()).status == 200
    return body


def test_a_plain_request_asks_for_the_window_we_count_with_and_forbids_to_forget():
    assert encoded(call()) == {
        "model": "qwen3:8b",
        "messages": [{"role": "user", "content": "Hello"}],
        "options": {"num_ctx": profile().context_window},
        "truncate": False,
        "stream": False,
    }


def test_a_stream_is_asked_for_and_its_absence_is_said_because_the_server_streams_by_itself():
    assert encoded(call(), stream=True)["stream"] is True
    assert encoded(call())["stream"] is False


def test_a_conversation_keeps_its_parts_calls_and_results():
    conversation = [
        Message(role="system", content="Be brief."),
        Message(
            role="user",
            content=[
                TextPart(type="text", text="Roll this."),
                ImagePart(type="image", media_type="image/png", data=PNG),
                TextPart(type="text", text="And that."),
            ],
            name="ada",
        ),
        Message(role="assistant", content="", tool_calls=ROLLS),
        Message(role="tool", content="4", tool_call_id="a", name="roll_dice"),
        Message(role="tool", content="noon", tool_call_id="b"),
        Message(role="system", content="In German."),
        Message(role="user", content="Again."),
    ]
    assert encoded(call(conversation))["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Roll this.\nAnd that.", "images": [PNG]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a", "function": {"name": "roll_dice", "arguments": {"sides": 6}}},
                {"id": "b", "function": {"name": "now", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "4", "tool_name": "roll_dice", "tool_call_id": "a"},
        {"role": "tool", "content": "noon", "tool_name": "now", "tool_call_id": "b"},
        {"role": "system", "content": "In German."},
        {"role": "user", "content": "Again."},
    ]


def test_a_result_names_the_tool_that_was_called_last_under_its_id():
    turns = [
        message
        for name in ("roll_dice", "now")
        for message in (
            Message(role="assistant", content="", tool_calls=[ToolCall(id="call_0", name=name, arguments={})]),
            Message(role="tool", content="4", tool_call_id="call_0"),
        )
    ]
    sent = encoded(call(turns))["messages"]
    assert [message["tool_name"] for message in sent if message["role"] == "tool"] == ["roll_dice", "now"]


def test_the_result_of_an_unreadable_call_is_sent_like_any_other():
    unreadable = ToolCall(id="a", name="roll_dice", arguments={UNREADABLE_ARGUMENTS: '{"sides": si'})
    sent = encoded(
        call(
            [
                Message(role="assistant", content="", tool_calls=[unreadable]),
                Message(role="tool", content="That is no JSON.", tool_call_id="a"),
            ]
        )
    )["messages"]
    assert sent[0]["tool_calls"][0]["function"]["arguments"] == {UNREADABLE_ARGUMENTS: '{"sides": si'}
    assert sent[1]["tool_name"] == "roll_dice"


def test_thoughts_are_sent_back_with_the_answer_they_led_to():
    kept = [{"thinking": "A die is needed."}]
    said = ModelMessage(role="assistant", content="", tool_calls=ROLLS[:1], provider="primary", kept=kept)
    sent = encoded(call([said, Message(role="tool", content="4", tool_call_id="a")]))["messages"]
    assert sent[0]["thinking"] == "A die is needed."
    assert "thinking" not in sent[1]


def test_tools_are_offered_as_functions():
    function = {"name": DICE.name, "description": DICE.description, "parameters": dict(DICE.parameters)}
    assert encoded(call(tools=(DICE,)))["tools"] == [{"type": "function", "function": function}]


def test_parameters_of_any_type_are_sent_in_types_the_server_can_read():
    anything = ToolDefinition("f", "F", {"type": "object", "properties": {"a": True, "b": {"type": "string"}}})
    parameters = encoded(call(tools=(anything,)))["tools"][0]["function"]["parameters"]
    assert parameters["properties"] == {
        "a": {"type": ["object", "array", "string", "number", "boolean", "null"]},
        "b": {"type": "string"},
    }


@pytest.mark.parametrize(("choice", "offered"), [("auto", True), ("required", True), (None, True), ("none", False)])
def test_no_tool_can_be_demanded_but_all_can_be_left_out(choice: str | None, offered: bool):
    body = encoded(call(tools=(DICE,), hints=ExecutionHints(tool_choice=choice)))
    assert ("tools" in body, "tool_choice" in body) == (offered, False)


def test_a_named_tool_is_offered_like_the_others():
    assert "tools" in encoded(call(tools=(DICE,), hints=ExecutionHints(tool_choice=NamedTool(name="roll_dice"))))


def test_hints_are_options_and_zero_is_not_absent():
    hints = ExecutionHints(temperature=0, top_p=0.5, stop="END", seed=0, max_tokens=9)
    options = {"num_ctx": 128_000, "temperature": 0, "top_p": 0.5, "stop": ["END"], "seed": 0, "num_predict": 9}
    body = encoded(call(hints=hints))
    assert body["options"] == options
    assert Options.model_validate(body["options"]).stop == ["END"]
    assert encoded(call(hints=ExecutionHints(stop=["A", "B"])))["options"]["stop"] == ["A", "B"]


def test_options_pass_when_the_engine_lists_them_and_each_goes_where_the_server_looks_for_it():
    asked = {"top_k": 3, "min_p": 0.1, "num_ctx": 8192, "think": "low", "keep_alive": "10m", "mirostat": 1}
    listed = frozenset(asked) - {"mirostat"}
    body = encoded(call(hints=ExecutionHints(options=asked)), options=listed)
    assert body["options"] == {"num_ctx": 8192, "top_k": 3, "min_p": 0.1}
    assert (body["think"], body["keep_alive"]) == ("low", "10m")


def test_options_never_replace_what_is_ours():
    asked = {"model": "other", "stream": True, "messages": [], "format": "json", "tools": [], "temperature": 2}
    body = encoded(call(hints=ExecutionHints(options=asked, temperature=0.5)), options=frozenset(asked))
    assert (body["model"], body["stream"], len(body["messages"])) == ("qwen3:8b", False, 1)
    assert not {"format", "tools"} & body.keys()
    assert body["options"]["temperature"] == 0.5


def test_the_server_may_be_allowed_to_forget():
    hints = ExecutionHints(options={"truncate": True, "shift": False})
    body = encoded(call(hints=hints), options=frozenset({"truncate", "shift"}))
    assert (body["truncate"], body["shift"]) == (True, False)


def test_a_schema_is_the_format_and_without_one_there_is_none():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    asked = EngineCall(call().messages, (), ExecutionHints(), schema=schema)
    assert encoded(asked)["format"] == schema
    assert "format" not in encoded(call())


def test_the_key_is_a_header():
    assert OllamaDialect().headers("secret") == {"Authorization": "Bearer secret"}
    assert OllamaDialect().headers(None) == {}
