"""Redaction of messages: text, parts, arguments and what only a provider can read."""

import pytest

from portico.capabilities.context.redaction import Redactor
from portico.domain.contract.messages import ImagePart, Message, ModelMessage, Origin, TextPart, ToolCall


def test_the_whole_value_of_a_sensitive_key_goes_at_any_depth() -> None:
    redactor = Redactor()
    found = redactor.value({"user": [{"apiKey": {"id": 1}, "X-Auth-Token": "abc", "tokens": 5}], "password": None})
    assert found == {
        "user": [{"apiKey": "[redacted:api_key]", "X-Auth-Token": "[redacted:token]", "tokens": 5}],
        "password": None,
    }
    assert redactor.counts == {"api_key": 1, "token": 1}


def test_a_card_number_is_found_as_a_number_too() -> None:
    assert Redactor().value([4111111111111111, 4111111111111112, True]) == ["[redacted:card]", 4111111111111112, True]


def test_what_is_redacted_stays_as_it_is() -> None:
    once = Redactor().value({"secret": "x", "text": "write to ada@example.org"})
    redactor = Redactor()
    assert redactor.value(once) == once
    assert redactor.counts == {}


def test_text_parts_and_arguments_are_redacted_and_images_are_not() -> None:
    image = ImagePart(type="image", media_type="image/png", data="QUJD")
    call = ToolCall(id="1", name="login", arguments={"password": "hunter2", "user": "ada@example.org"})
    parts = Message(role="user", content=[TextPart(type="text", text="ada@example.org"), image])
    calls = Message(role="assistant", content="", tool_calls=[call])
    redactor = Redactor()
    shown, called = redactor.messages([parts, calls])
    assert shown.content == [TextPart(type="text", text="[redacted:email]"), image]
    assert called.tool_calls is not None
    assert called.tool_calls[0].arguments == {"password": "[redacted:password]", "user": "[redacted:email]"}
    assert redactor.counts == {"email": 2, "password": 1}


@pytest.mark.parametrize("content", ["write to ada@example.org", "all is well"])
def test_an_answer_with_a_secret_loses_what_only_its_provider_can_read(content: str) -> None:
    thought = {"thinking": "ada@example.org", "signature": "x"}
    message = ModelMessage(role="assistant", content=content, provider="one", kept=[thought], origin=Origin.MODEL)
    shown = Redactor().message(message)
    assert "ada@" not in shown.model_dump_json()
    assert shown.model_dump()["origin"] is Origin.MODEL
    assert not isinstance(shown, ModelMessage)


def test_a_message_without_a_secret_is_the_same_object() -> None:
    message = ModelMessage(role="assistant", content="Hello", provider="one", kept=[{"signature": "x"}])
    assert Redactor().message(message) is message
