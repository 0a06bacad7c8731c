"""Gemini: what is asked, in the types of its official client and as its server takes it."""

from typing import Any

import orjson
import pytest
from google.genai import types

from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.gemini.request import FROM_ANOTHER_MODEL
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ImagePart, Message, ModelMessage, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from tests.adapters.engines.cases import OpaqueBlocks
from tests.adapters.engines.engine_calls import call, profile
from tests.support.emulators.answers import EmulatedAnswer
from tests.support.emulators.gemini import respond
from tests.support.emulators.server import KEY

DIALECT = GeminiDialect()
MODEL = "gemini-2.5-flash"
SIGNING = "gemini-3-flash-preview"
PIXEL = ImagePart(type="image", media_type="image/png", data="iVBORw==")
DICE = ToolDefinition(
    "roll_dice", "Rolls dice", {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}
)
ROLL = ToolCall(id="zi06h2mp", name="roll_dice", arguments={"sides": 6})
MEMBERS = {
    "systemInstruction": types.Content,
    "contents": types.Content,
    "tools": types.Tool,
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
    "safetySettings": types.SafetySetting,
}


def encoded(asked: EngineCall, *, model: str = MODEL, options: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The body, which the client's types and the server take."""
    sent = DIALECT.encode(asked, profile(model, options), stream=False)
    body: dict[str, Any] = orjson.loads(orjson.dumps(sent.body))
    for name, members in body.items():
        for member in members if isinstance(members, list) else [members]:
            MEMBERS[name].model_validate(member)
    refusal = respond(sent.path, {"x-goog-api-key": KEY}, orjson.dumps(body), EmulatedAnswer())
    assert refusal.status == 200, refusal.pieces
    return body


def contents(*messages: Message, model: str = MODEL) -> list[Any]:
    """Return the contents after the user's `Go.`, as pairs of role and parts."""
    _, *said = encoded(call([user("Go."), *messages]), model=model)["contents"]
    return [(content["role"], content["parts"]) for content in said]


def user(content: Any) -> Message:
    return Message(role="user", content=content)


def assistant(text: str, *calls: ToolCall, kept: OpaqueBlocks = ()) -> Message:
    message = Message(role="assistant", content=text, tool_calls=list(calls) or None)
    return ModelMessage(**dict(message), provider="primary", kept=list(kept)) if kept else message


def result(asked: ToolCall, content: Any) -> Message:
    return Message(role="tool", content=content, tool_call_id=asked.id, name=asked.name)


def signed(text: str, signature: str, **members: Any) -> dict[str, Any]:
    return {"text": text, **members, "thoughtSignature": signature}


def test_a_plain_request_holds_nothing_that_was_not_asked_for():
    assert encoded(call()) == {
        "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
        "generationConfig": {},
    }


@pytest.mark.parametrize(
    ("model", "segment"),
    [
        ("gemini-2.5-flash", "gemini-2.5-flash"),
        ("models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("a b/../c?key=1#x", "a%20b%2F..%2Fc%3Fkey%3D1%23x"),
    ],
)
def test_the_model_stands_in_the_path_and_cannot_leave_it(model: str, segment: str):
    paths = [DIALECT.encode(call(), profile(model), stream=stream).path for stream in (False, True)]
    assert paths == [
        f"/v1beta/models/{segment}:generateContent",
        f"/v1beta/models/{segment}:streamGenerateContent?alt=sse",
    ]


def test_a_key_stands_in_a_header_and_nowhere_else():
    assert DIALECT.headers("secret") == {"x-goog-api-key": "secret"}
    assert DIALECT.headers(None) == DIALECT.headers("") == {}


def test_system_prompts_stand_outside_of_the_conversation_in_their_order():
    messages = (
        Message(role="system", content="Be brief."),
        user("Hi"),
        Message(role="system", content=[TextPart(type="text", text="Be"), TextPart(type="text", text="kind.")]),
        Message(role="system", content=""),
        user("Hello?"),
    )
    body = encoded(call(messages))
    assert body["systemInstruction"]["parts"] == [{"text": "Be brief."}, {"text": "Be\nkind."}]
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Hi"}, {"text": "Hello?"}]}]


def test_what_one_voice_says_in_a_row_is_one_content_and_nothing_empty_is_sent():
    said = contents(
        assistant("One."),
        assistant(""),
        assistant("Two."),
        user(""),
        user("And"),
        user([PIXEL]),
        user("?"),
        assistant(""),
    )
    assert said == [
        ("model", [{"text": "One."}, {"text": "Two."}]),
        ("user", [{"text": "And"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}, {"text": "?"}]),
    ]


def test_a_call_and_its_result_name_the_tool_and_the_id_that_the_provider_gave():
    nameless = Message(role="tool", content="4", tool_call_id=ROLL.id)
    assert contents(assistant("Rolling.", ROLL), nameless) == [
        (
            "model",
            [
                {"text": "Rolling."},
                {"functionCall": {"id": "zi06h2mp", "name": "roll_dice", "args": {"sides": 6}}},
            ],
        ),
        ("user", [{"functionResponse": {"id": "zi06h2mp", "name": "roll_dice", "response": {"output": "4"}}}]),
    ]


def test_our_ids_are_not_sent_because_they_repeat_in_every_answer():
    calls = [ToolCall(id=f"call_{number}", name=name, arguments={}) for number, name in enumerate(("a", "b"))]
    said = contents(assistant("", *calls), *(result(asked, asked.name) for asked in calls))
    assert said == [
        ("model", [{"functionCall": {"name": "a", "args": {}}}, {"functionCall": {"name": "b", "args": {}}}]),
        (
            "user",
            [
                {"functionResponse": {"name": "a", "response": {"output": "a"}}},
                {"functionResponse": {"name": "b", "response": {"output": "b"}}},
            ],
        ),
    ]


def test_the_same_id_in_a_later_answer_is_another_call():
    first, second = (ToolCall(id="call_0", name=name, arguments={}) for name in ("a", "b"))
    said = contents(assistant("", first), result(first, "1"), assistant("", second), result(second, "2"))
    names = [part["functionResponse"]["name"] for role, parts in said if role == "user" for part in parts]
    assert names == ["a", "b"]


def test_a_name_longer_than_a_message_can_hold_is_taken_from_its_call():
    asked = ToolCall(id="x", name="f" * 200, arguments={})
    message = Message(role="tool", content="no", tool_call_id="x", name="f" * 64)
    sent = DIALECT.encode(call([user("Go."), assistant("", asked), message]), profile(MODEL), stream=False)
    assert sent.body["contents"][-1]["parts"][0]["functionResponse"]["name"] == "f" * 200


def test_a_result_without_its_call_goes_by_its_own_name():
    sent = DIALECT.encode(call([result(ROLL, "4")]), profile(MODEL), stream=False)
    assert sent.body["contents"][0]["parts"][0]["functionResponse"]["name"] == "roll_dice"


def test_images_of_a_result_stand_behind_it():
    content = [TextPart(type="text", text="See:"), PIXEL]
    assert contents(assistant("", ROLL), result(ROLL, content))[1][1] == [
        {"functionResponse": {"id": "zi06h2mp", "name": "roll_dice", "response": {"output": "See:"}}},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
    ]


def test_a_call_with_unreadable_arguments_is_sent_with_their_text():
    asked = ToolCall(id="x", name="roll_dice", arguments={UNREADABLE_ARGUMENTS: '{"sides": si'})
    said = contents(assistant("", asked), result(asked, "not JSON"))
    assert said[0][1] == [
        {"functionCall": {"id": "x", "name": "roll_dice", "args": {UNREADABLE_ARGUMENTS: '{"sides": si'}}}
    ]


def test_a_signed_call_is_sent_back_with_its_signature_and_no_other():
    other = ToolCall(id="x", name="now", arguments={})
    said = contents(
        assistant("", ROLL, other, kept=[{"call": ROLL.id, "signature": "c2ln"}]),
        result(ROLL, "4"),
        result(other, "noon"),
        model=SIGNING,
    )
    assert [part.get("thoughtSignature") for part in said[0][1]] == ["c2ln", None]


@pytest.mark.parametrize(
    ("text", "kept", "parts"),
    [
        ("The end.", [signed("The end.", "YQ==")], [signed("The end.", "YQ==")]),
        ("The end.", [signed("", "YQ==")], [{"text": "The end."}, signed("", "YQ==")]),
        ("an end an end", [signed("an end", "YQ==")], [{"text": "an end "}, signed("an end", "YQ==")]),
        ("one two three", [signed("two", "YQ==")], [{"text": "one "}, signed("two", "YQ=="), {"text": " three"}]),
        ("one two", [signed("one ", "YQ=="), signed("two", "Yg==")], [signed("one ", "YQ=="), signed("two", "Yg==")]),
        ("", [signed("", "YQ==")], [signed("", "YQ==")]),
        ("Something else.", [signed("The end.", "YQ==")], [{"text": "Something else."}]),
        (
            "42",
            [signed("Six times seven.", "YQ==", thought=True), signed("", "Yg==")],
            [signed("Six times seven.", "YQ==", thought=True), {"text": "42"}, signed("", "Yg==")],
        ),
    ],
)
def test_a_signed_text_is_sent_back_as_the_part_it_was(text: str, kept: OpaqueBlocks, parts: OpaqueBlocks):
    blocks = [{"part": part} for part in kept]
    assert contents(assistant(text, kept=blocks), user("And?"))[0] == ("model", parts)


@pytest.mark.parametrize(
    ("model", "signs"),
    [
        ("gemini-3-flash-preview", True),
        ("models/gemini-3.1-pro", True),
        ("gemini-10-pro", True),
        ("gemini-flash-latest", True),
        ("gemini-2.5-pro", False),
        ("gemini-1.5-flash", False),
        ("gemma-3-27b-it", False),
    ],
)
def test_calls_of_another_model_bear_googles_own_word_where_a_signature_has_to_be(model: str, signs: bool):
    other = ToolCall(id="x", name="now", arguments={})
    asked = call([user("Go."), assistant("", ROLL, other), result(ROLL, "4"), result(other, "noon")])
    said = DIALECT.encode(asked, profile(model), stream=False).body["contents"]
    marks = [part.get("thoughtSignature") for part in said[1]["parts"]]
    assert marks == ([FROM_ANOTHER_MODEL, None] if signs else [None, None])


def test_tools_are_offered_as_functions_with_their_schemas_as_gemini_takes_them():
    strict = ToolDefinition("f", "", {"type": "object", "properties": {"a": {"const": "x"}}, "$schema": "x"})
    bare = ToolDefinition("g", "Does.", {})
    assert encoded(call(tools=(strict, bare)))["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "f",
                    "description": "",
                    "parametersJsonSchema": {
                        "type": "object",
                        "properties": {"a": {"type": "string", "enum": ["x"]}},
                    },
                },
                {"name": "g", "description": "Does.", "parametersJsonSchema": {"type": "object"}},
            ]
        }
    ]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        (NamedTool(name="roll_dice"), {"mode": "ANY", "allowedFunctionNames": ["roll_dice"]}),
    ],
)
def test_a_tool_choice_is_sent_with_tools_and_only_then(choice: Any, sent: object):
    hints = ExecutionHints(tool_choice=choice)
    assert encoded(call(tools=(DICE,), hints=hints))["toolConfig"] == {"functionCallingConfig": sent}
    assert "toolConfig" not in encoded(call(hints=hints))
    assert "toolConfig" not in encoded(call(tools=(DICE,)))


def test_hints_are_sent_as_given_and_zero_is_not_absent():
    hints = ExecutionHints(temperature=0, top_p=0.5, stop="END", seed=0, max_tokens=9)
    assert encoded(call(hints=hints))["generationConfig"] == {
        "temperature": 0,
        "topP": 0.5,
        "stopSequences": ["END"],
        "seed": 0,
        "maxOutputTokens": 9,
    }


@pytest.mark.parametrize(
    ("seed", "sent"),
    [
        (2**31 - 1, 2**31 - 1),
        (-(2**31), -(2**31)),
        (2**31, 0),
        (2**63 - 1, 2**31 - 1),
        (-(2**31) - 1, 2**31 - 1),
    ],
)
def test_a_seed_above_32_bits_becomes_another_and_always_the_same(seed: int, sent: int):
    assert encoded(call(hints=ExecutionHints(seed=seed)))["generationConfig"] == {"seed": sent}


def test_options_go_where_the_api_has_them_and_only_those_that_are_listed():
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    options = {"topK": 3, "thinkingConfig": {"thinkingBudget": 0}, "safetySettings": safety, "candidateCount": 2}
    listed = frozenset({"topK", "thinkingConfig", "safetySettings"})
    body = encoded(call(hints=ExecutionHints(options=options)), options=listed)
    assert body["generationConfig"] == {"topK": 3, "thinkingConfig": {"thinkingBudget": 0}}
    assert body["safetySettings"] == safety


def test_a_hint_goes_before_an_option_of_the_same_name():
    hints = ExecutionHints(temperature=0.5, options={"temperature": 2})
    assert encoded(call(hints=hints), options=frozenset({"temperature"}))["generationConfig"] == {"temperature": 0.5}


def test_a_schema_is_asked_for_as_json_in_the_form_that_gemini_takes():
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}}
    body = encoded(EngineCall(call().messages, (), ExecutionHints(), schema=schema))
    assert body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
    }
