"""Complete replies are checked, and call ids are made unique within a conversation."""

import pytest

from portico.capabilities.models.replies import normalise_reply
from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.ports.model import EngineError


def reply(*ids: str, text: str = "", finish: str = "tool") -> Reply:
    calls = tuple(ToolCall(id=each, name="roll_dice", arguments={}) for each in ids)
    kept = tuple({"call": each, "signature": "c2ln"} for each in ids)
    return Reply(text, calls, finish, "", TokenUsage(), "m", kept=({"type": "thinking"}, *kept))


def said(*ids: str) -> list[Message]:
    return [Message(role="user", content="Hi"), reply(*ids).message("primary")]


def test_a_reply_with_content_is_accepted() -> None:
    for answer in (reply(text="Hi", finish="stop"), reply("a", "b"), reply(finish="length")):
        assert normalise_reply(answer, said("c"), "0/0") is answer


@pytest.mark.parametrize("answer", [reply(finish="stop"), reply("a", "a")])
def test_an_empty_reply_and_two_calls_with_one_id_are_malformed(answer: Reply) -> None:
    with pytest.raises(EngineError) as caught:
        normalise_reply(answer, [], "0/0")
    assert caught.value.reason is AttemptFailureReason.MALFORMED


def test_a_call_with_an_id_of_an_earlier_round_gets_the_key_of_its_attempt() -> None:
    answer = normalise_reply(reply("call_0", "new"), said("call_0"), "2/1")
    assert [call.id for call in answer.tool_calls] == ["call_0~2/1", "new"]
    assert [block.get("call") for block in answer.kept] == [None, "call_0~2/1", "new"]


def test_an_id_stays_within_its_length() -> None:
    longest = "x" * 256
    (call,) = normalise_reply(reply(longest), said(longest), "2/1").tool_calls
    assert len(call.id) == 256
    assert call.id.endswith("~2/1")
