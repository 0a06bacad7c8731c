"""Messages and conversations."""

import pytest
from pydantic import ValidationError

from portico.domain.contract.messages import ImagePart, Message, TextPart, ToolCall, ToolResult, conversation_errors
from portico.domain.failures import Code

USER = Message(role="user", content="Roll two dice.")
NO_RESULT = "has no result after it"
NO_CALL = "must name a call of the assistant message before it"


def asks(*ids: str) -> Message:
    calls = [ToolCall(id=call_id, name="roll_dice", arguments={}) for call_id in ids]
    return Message(role="assistant", content="", tool_calls=calls)


def result(call_id: str | None) -> Message:
    return Message(role="tool", content="7", tool_call_id=call_id)


@pytest.mark.parametrize(
    "conversation",
    [
        (),
        (USER,),
        (USER, Message(role="assistant", content="Hello."), USER),
        (Message(role="system", content="Be brief."), USER, asks("a"), result("a"), USER),
        (USER, asks("a", "b"), result("b"), result("a")),
        (USER, asks("a"), result("a"), asks("a"), result("a")),
    ],
    ids=["empty", "one message", "no tools", "one call", "results in any order", "an id again in a later message"],
)
def test_a_valid_conversation_has_no_errors(conversation: tuple[Message, ...]) -> None:
    assert conversation_errors(conversation) == []


@pytest.mark.parametrize(
    ("conversation", "faults"),
    [
        ((result("a"),), [("messages.0.tool_call_id", NO_CALL)]),
        ((USER, result(None)), [("messages.1.tool_call_id", NO_CALL)]),
        ((asks("a"), result("b")), [("messages.1.tool_call_id", NO_CALL), ("messages.0.tool_calls.0", NO_RESULT)]),
        ((asks("a"), result("a"), result("a")), [("messages.2.tool_call_id", NO_CALL)]),
        ((asks("a"), USER), [("messages.0.tool_calls.0", NO_RESULT)]),
        (
            (asks("a"), USER, result("a")),
            [("messages.0.tool_calls.0", NO_RESULT), ("messages.2.tool_call_id", NO_CALL)],
        ),
        ((asks("a", "b"), result("a")), [("messages.0.tool_calls.1", NO_RESULT)]),
        ((asks("a", "a"), result("a")), [("messages.0.tool_calls.1.id", "occurs twice in this message")]),
        (
            (Message(role="user", content="7", tool_call_id="a"),),
            [("messages.0.tool_call_id", "is for tool messages only")],
        ),
        (
            (Message(role="user", content="", tool_calls=[ToolCall(id="a", name="t", arguments={})]), result("a")),
            [("messages.0.tool_calls", "is for assistant messages only")],
        ),
    ],
    ids=[
        "a result without any call",
        "a result that names no call",
        "a result for another call",
        "two results for one call",
        "no result before the user speaks",
        "a result that comes too late",
        "one of two results missing at the end",
        "one id for two calls",
        "a user message that claims to be a result",
        "a user message that asks for calls",
    ],
)
def test_an_invalid_conversation_names_the_path(
    conversation: tuple[Message, ...], faults: list[tuple[str, str]]
) -> None:
    assert conversation_errors(conversation) == faults


def test_the_text_of_parts_is_joined_by_newlines_and_images_have_none() -> None:
    image = ImagePart(type="image", media_type="image/png", data="AAAA")
    parts = [TextPart(type="text", text="one"), image, TextPart(type="text", text="two")]
    assert Message(role="user", content=parts).text == "one\ntwo"
    assert Message(role="user", content=[image]).text == ""
    assert USER.text == "Roll two dice."


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        USER.__setattr__("content", "other")


def test_a_result_answers_its_call_under_a_name_of_at_most_64_characters() -> None:
    call = ToolCall(id="call-1", name="x" * 200, arguments={})
    message = ToolResult(call, "no such tool", is_error=True, code=None, attempts=0, duration_ms=0.0).message()
    assert (message.role, message.tool_call_id, message.content) == ("tool", "call-1", "no such tool")
    assert message.name == "x" * 64


@pytest.mark.parametrize(
    ("code", "idempotent", "condition", "status"),
    [
        (Code.TOOL_EXECUTION_FAILED, True, "idempotent", 502),
        (Code.TOOL_EXECUTION_FAILED, False, "not idempotent", 500),
        (Code.TOOL_TIMEOUT, False, "not idempotent", 500),
        (Code.TOOL_UNAVAILABLE, False, None, 503),
        (Code.TOOL_OUTCOME_UNKNOWN, True, None, 500),
    ],
)
def test_the_failure_of_an_error_result_has_its_code_and_not_its_text(
    code: Code, idempotent: bool, condition: str | None, status: int
) -> None:
    call = ToolCall(id="c", name="act", arguments={})
    failure = ToolResult(call, "a secret", True, code, attempts=1, duration_ms=1.0, idempotent=idempotent).failure()
    assert failure is not None
    assert (failure.code, failure.condition, failure.status) == (code, condition, status)
    assert "secret" not in f"{failure.message}{failure.details}"


def test_a_successful_result_is_not_a_failure() -> None:
    assert ToolResult(ToolCall(id="c", name="act", arguments={}), "fine", False, None, 1, 1.0).failure() is None
