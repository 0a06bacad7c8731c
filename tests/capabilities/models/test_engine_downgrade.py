"""A call is downgraded to the features of an engine; unsupported parts are left out and named."""

from typing import Any

import pytest

from portico.capabilities.models.engine_downgrade import IMAGE_PLACEHOLDER, downgrade, unsupported_parts
from portico.domain.contract.messages import ImagePart, Message, ModelMessage, TextPart, ToolCall, conversation_errors
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineCapabilities, EngineProfile

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


def downgraded(asked: EngineCall, **lacking: bool) -> list[Message]:
    return list(downgrade(asked, profile(**lacking)).messages)


def test_an_engine_with_all_features_gets_the_call_unchanged() -> None:
    asked = call(tools=(ROLL,), tool_choice="required")
    assert downgrade(asked, profile()) == asked
    assert unsupported_parts(asked, profile()) == ()


def test_a_system_message_without_the_role_precedes_the_users_text() -> None:
    texts = [(message.role, message.text) for message in downgraded(call(), system_role=False)]
    assert texts[0] == ("user", "Be brief.\n\nRoll twice.")
    assert texts[-1] == ("user", "Be kind.\n\nAnd now?")
    assert "system" not in {role for role, _ in texts}


def test_a_system_message_that_no_user_follows_becomes_the_users() -> None:
    messages = downgraded(
        call(Message(role="user", content="Hi"), Message(role="system", content="Stop.")), system_role=False
    )
    assert [(message.role, message.text) for message in messages] == [("user", "Hi"), ("user", "Stop.")]


def test_before_content_parts_system_text_is_a_part() -> None:
    parts = Message(role="user", content=[TextPart(type="text", text="See."), PIXEL])
    (messages,) = downgraded(call(TALK[0], parts), system_role=False)
    assert messages.content == [TextPart(type="text", text="Be brief."), *parts.content]


def test_calls_are_sent_one_by_one_each_with_its_result() -> None:
    messages = downgraded(call(), parallel_tools=False)
    assert [
        (message.role, message.text, [each.id for each in message.tool_calls or ()]) for message in messages[2:6]
    ] == [
        ("assistant", "Let me see.", ["c1"]),
        ("tool", "one", []),
        ("assistant", "", ["c2"]),
        ("tool", "two", []),
    ]
    assert conversation_errors(messages) == []
    assert messages[6:] == TALK[5:]


def test_without_tools_calls_and_results_become_text() -> None:
    asked = call(tools=(ROLL,))
    adapted_call = downgrade(asked, profile(tools=False))
    assert adapted_call.tools == ()
    assert [(message.role, message.text) for message in adapted_call.messages[2:5]] == [
        ("assistant", 'Let me see.\n[roll_dice was called with {"n":1}]\n[roll_dice was called with {"n":2}]'),
        ("user", "[roll_dice answered] two"),
        ("user", "[roll_dice answered] one"),
    ]
    assert unsupported_parts(asked, profile(tools=False)) == ("tools",)


def test_unsupported_images_are_left_out_and_named() -> None:
    asked = call(Message(role="user", content=[TextPart(type="text", text="What is it?"), PIXEL]), TALK[1])
    messages = downgraded(asked, images=False)
    assert messages[0].text == f"What is it?\n{IMAGE_PLACEHOLDER}"
    assert messages[1] == TALK[1]
    assert unsupported_parts(asked, profile(images=False)) == ("messages.images",)
    assert unsupported_parts(call(TALK[1]), profile(images=False)) == ()


@pytest.mark.parametrize("choice", ["required", {"name": "roll_dice"}])
def test_an_unsupported_forced_call_is_left_out(choice: Any) -> None:
    asked = call(tools=(ROLL,), tool_choice=choice)
    assert downgrade(asked, profile(forced_calls=False)).hints.tool_choice is None
    assert unsupported_parts(asked, profile(forced_calls=False)) == ("hints.tool_choice",)
    assert downgrade(asked, profile(tools=False)).hints.tool_choice is None
    assert unsupported_parts(asked, profile(tools=False)) == ("hints.tool_choice", "tools")


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_an_unforced_tool_choice_is_passed_on(choice: Any) -> None:
    asked = call(tools=(ROLL,), tool_choice=choice)
    assert downgrade(asked, profile(forced_calls=False)).hints.tool_choice == choice
    assert unsupported_parts(asked, profile(forced_calls=False)) == ()


def test_thoughts_stay_with_the_provider_that_signed_them() -> None:
    own = ModelMessage(role="assistant", content="Mine.", provider="primary", kept=[THOUGHT])
    foreign = ModelMessage(role="assistant", content="Theirs.", provider="backup", kept=[THOUGHT])
    asked = call(TALK[1], own, TALK[1], foreign, TALK[1])
    messages = downgraded(asked)
    assert messages[1] == own
    assert type(messages[3]) is Message
    assert messages[3] == Message(role="assistant", content="Theirs.")
    assert unsupported_parts(asked, profile()) == ("messages.kept.backup",)
