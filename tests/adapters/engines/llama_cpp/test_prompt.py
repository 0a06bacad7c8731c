"""The turns that a local model's own template writes."""

from portico.adapters.engines.llama_cpp.prompt import build_turns
from portico.domain.contract.messages import ImagePart, Message, TextPart, ToolCall

HELLO = Message(role="user", content="Hello")
LOOKUP = ToolCall(id="1", name="lookup", arguments={"word": "é"})


def say(role: str, content: str) -> Message:
    return Message.model_validate({"role": role, "content": content})


def test_tools_are_written_as_text():
    called = Message(role="assistant", content="Let me see.", tool_calls=[LOOKUP])
    answered = Message(role="tool", content="a letter", tool_call_id="1", name="lookup")
    nameless = Message(role="tool", content="nothing", tool_call_id="2")
    assert build_turns([HELLO, called, answered, nameless, say("user", "Well?")]) == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": 'Let me see.\nI call lookup with {"word":"é"}'},
        {"role": "user", "content": "lookup answered: a letter\n\nThe tool answered: nothing\n\nWell?"},
    ]


def test_system_messages_come_first_and_turns_of_one_role_are_joined():
    said = [say("user", "first"), say("system", "A"), say("user", "second"), say("assistant", "x"), say("system", "B")]
    assert build_turns(said) == [
        {"role": "system", "content": "A\n\nB"},
        {"role": "user", "content": "first\n\nsecond"},
        {"role": "assistant", "content": "x"},
    ]


def test_what_is_empty_is_no_part_of_a_turn():
    said = [say("user", "first"), say("user", ""), say("assistant", ""), say("user", "")]
    assert build_turns(said) == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": ""},
    ]


def test_a_message_of_several_parts_is_its_text():
    image = ImagePart(type="image", media_type="image/png", data="aGk=")
    parts = [TextPart(type="text", text="one"), image, TextPart(type="text", text="two")]
    assert build_turns([Message(role="user", content=parts)]) == [{"role": "user", "content": "one\ntwo"}]
