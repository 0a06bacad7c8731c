"""One engine is asked what it can be asked; the rest is told another way, or left out and named."""

from typing import Any

import pytest

from app.capabilities.models.engine_downgrade import IMAGE_PLACEHOLDER, downgrade, unsupported_parts
from app.domain.contract.messages import ImagePart, Message, ModelMessage, TextPart, ToolCall, conversation_errors
from app.domain.contract.request import ExecutionHints
from app.domain.model_call import EngineCall
from app.domain.tools import ToolDefinition
from app.ports.model import EngineCapabilities, EngineProfile

PIXEL = ImagePart(type="image", media_type="image/png", data="iVBORw==")
ROLL = ToolDefinition("roll_dice", "Rolls dice.", {"type": "object"})
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def call_of(name: str, number: int) -> ToolCall:
    return ToolCall(id=f"c{number}", name=name, arguments={"n": number})


def result(number: int, text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id=f"c{number}", name="roll_dice")


ASKED = Message(role="assistant", content="Let me see.", tool_calls=[call_of("roll_dice", 1), call_of("roll_dice", 2)])
TALK = [
    Message(role="system", content="Be brief."),
    Message(role="user", content="Roll twice."),
    ASKED,
    result(2, "two"),
    result(1, "one"),
    Message(role="system", content="Be kind."),
    Message(role="user", content="And now?"),
]


def profile(**lacking: bool) -> EngineProfile:
    able = EngineCapabilities(**lacking)
    return EngineProfile("primary", "m", "openai", 128_000, 4_096, frozenset({"top_k"}), capabilities=able)


def call(*messages: Message, tools: tuple[ToolDefinition, ...] = (), **hints: Any) -> EngineCall:
    return EngineCall(list(messages) or TALK, tools, ExecutionHints.model_validate(hints))


def told(asked: EngineCall, **lacking: bool) -> list[Message]:
    return list(downgrade(asked, profile(**lacking)).messages)


def test_an_engine_that_can_do_all_is_told_all_as_it_is() -> None:
    asked = call(tools=(ROLL,), tool_choice="required")
    assert downgrade(asked, profile()) == asked
    assert unsupported_parts(asked, profile()) == ()


def test_a_system_message_without_the_role_stands_before_the_users_words() -> None:
    texts = [(message.role, message.text) for message in told(call(), system_role=False)]
    assert texts[0] == ("user", "Be brief.\n\nRoll twice.")
    assert texts[-1] == ("user", "Be kind.\n\nAnd now?")
    assert "system" not in {role for role, _ in texts}


def test_a_system_message_that_no_user_follows_becomes_the_users() -> None:
    said = told(call(Message(role="user", content="Hi"), Message(role="system", content="Stop.")), system_role=False)
    assert [(message.role, message.text) for message in said] == [("user", "Hi"), ("user", "Stop.")]


def test_before_words_in_parts_system_text_is_a_part() -> None:
    parts = Message(role="user", content=[TextPart(type="text", text="See."), PIXEL])
    (said,) = told(call(TALK[0], parts), system_role=False)
    assert said.content == [TextPart(type="text", text="Be brief."), *parts.content]


def test_calls_are_told_one_by_one_each_with_its_result() -> None:
    said = told(call(), parallel_tools=False)
    assert [(message.role, message.text, [each.id for each in message.tool_calls or ()]) for message in said[2:6]] == [
        ("assistant", "Let me see.", ["c1"]),
        ("tool", "one", []),
        ("assistant", "", ["c2"]),
        ("tool", "two", []),
    ]
    assert conversation_errors(said) == []
    assert said[6:] == TALK[5:]


def test_without_tools_calls_and_results_are_told_in_words() -> None:
    asked = call(tools=(ROLL,))
    adapted_call = downgrade(asked, profile(tools=False))
    assert adapted_call.tools == ()
    assert [(message.role, message.text) for message in adapted_call.messages[2:5]] == [
        ("assistant", 'Let me see.\n[roll_dice was called with {"n":1}]\n[roll_dice was called with {"n":2}]'),
        ("user", "[roll_dice answered] two"),
        ("user", "[roll_dice answered] one"),
    ]
    assert unsupported_parts(asked, profile(tools=False)) == ("tools",)


def test_images_are_left_out_where_none_are_seen_and_that_is_said() -> None:
    asked = call(Message(role="user", content=[TextPart(type="text", text="What is it?"), PIXEL]), TALK[1])
    said = told(asked, images=False)
    assert said[0].text == f"What is it?\n{IMAGE_PLACEHOLDER}"
    assert said[1] == TALK[1]
    assert unsupported_parts(asked, profile(images=False)) == ("messages.images",)
    assert unsupported_parts(call(TALK[1]), profile(images=False)) == ()


@pytest.mark.parametrize("choice", ["required", {"name": "roll_dice"}])
def test_a_demand_that_cannot_be_made_is_left_out(choice: Any) -> None:
    asked = call(tools=(ROLL,), tool_choice=choice)
    assert downgrade(asked, profile(forced_calls=False)).hints.tool_choice is None
    assert unsupported_parts(asked, profile(forced_calls=False)) == ("hints.tool_choice",)
    assert downgrade(asked, profile(tools=False)).hints.tool_choice is None
    assert unsupported_parts(asked, profile(tools=False)) == ("hints.tool_choice", "tools")


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_what_demands_nothing_is_passed_on(choice: Any) -> None:
    asked = call(tools=(ROLL,), tool_choice=choice)
    assert downgrade(asked, profile(forced_calls=False)).hints.tool_choice == choice
    assert unsupported_parts(asked, profile(forced_calls=False)) == ()


def test_thoughts_stay_with_whoever_signed_them() -> None:
    own = ModelMessage(role="assistant", content="Mine.", provider="primary", kept=[THOUGHT])
    foreign = ModelMessage(role="assistant", content="Theirs.", provider="backup", kept=[THOUGHT])
    asked = call(TALK[1], own, TALK[1], foreign, TALK[1])
    said = told(asked)
    assert said[1] == own
    assert type(said[3]) is Message
    assert said[3] == Message(role="assistant", content="Theirs.")
    assert unsupported_parts(asked, profile()) == ("messages.kept.backup",)
