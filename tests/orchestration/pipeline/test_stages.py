"""What of a session's history a model is told: the latest turns that fit, never a result without its call."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.capabilities.models.tokens import EstimatingTokenCounter
from app.domain.contract.messages import Message, ToolCall, conversation_errors
from app.orchestration.execution.session_turn import history_window
from app.orchestration.pipeline.stages import HistoryLimits, SanitizedHistory, sanitize_history
from app.ports.storage import SessionHistory
from tests.support.harness import LIMITS

COUNTER = EstimatingTokenCounter()
AMPLE = 1_000_000


def message(role: str, text: str, **fields: object) -> Message:
    return Message.model_validate({"role": role, "content": text, **fields})


def user(text: str = "hi") -> Message:
    return message("user", text)


def assistant(text: str = "hello") -> Message:
    return message("assistant", text)


def system(text: str) -> Message:
    return message("system", text)


def called(text: str = "hi", results: int = 2) -> list[Message]:
    """A turn with a round of tools."""
    calls = [ToolCall(id=f"c{number}", name="t", arguments={"n": number}) for number in range(results)]
    told = [message("tool", "done", tool_call_id=call.id) for call in calls]
    return [user(text), Message(role="assistant", content="", tool_calls=calls), *told, assistant()]


def told(
    past: SessionHistory | Sequence[Message], *own: Message, messages: int = 50, tokens: int = 8_000, room: int = AMPLE
) -> SanitizedHistory:
    whole = past if isinstance(past, SessionHistory) else SessionHistory(len(past), past)
    return sanitize_history(own or [user("now")], whole, HistoryLimits(messages, tokens, room), COUNTER)


def test_without_a_past_the_request_is_told_as_it_is() -> None:
    own = [system("be brief"), user(), system("and kind"), user()]
    assert told([], *own, messages=0, tokens=0, room=0) == SanitizedHistory(tuple(own), truncated=False)


def test_what_fits_is_told_whole() -> None:
    past = [*called(), user(), assistant()]
    found = told(past, messages=len(past), tokens=COUNTER.messages(past))
    assert found == SanitizedHistory((*past, user("now")), truncated=False)


@pytest.mark.parametrize("less", ["messages", "tokens", "room"])
def test_one_too_many_costs_the_whole_oldest_turn(less: str) -> None:
    past = [*called(), user("second"), assistant()]
    tokens = COUNTER.messages(past)
    most = {"messages": len(past), "tokens": tokens, "room": tokens + COUNTER.messages([user("now")])}
    most[less] -= 1
    assert told(past, **most) == SanitizedHistory((user("second"), assistant(), user("now")), truncated=True)


def test_a_last_turn_that_does_not_fit_leaves_nothing_but_the_request() -> None:
    assert told(called(results=5), messages=3) == SanitizedHistory((user("now"),), truncated=True)
    assert told([user(), assistant()], messages=0) == SanitizedHistory((user("now"),), truncated=True)
    assert told([user(), assistant()], room=0) == SanitizedHistory((user("now"),), truncated=True)


def test_several_messages_of_a_user_begin_one_turn() -> None:
    past = [user("1"), assistant(), user("2"), user("3"), assistant()]
    assert told(past, messages=4).messages == (*past[2:], user("now"))
    assert told(past, messages=2).messages == (user("now"),)


def test_what_was_not_loaded_was_left_out() -> None:
    last = [user(), assistant()]
    assert told(SessionHistory(3, last)).truncated is True
    assert told(SessionHistory(3, last, [system("be brief")])).truncated is False
    assert told(SessionHistory(4, last, [system("be brief")])).truncated is True


def test_a_prompt_comes_from_the_request_else_from_the_session() -> None:
    prompt = [system("rhyme"), system("always")]
    past = SessionHistory(4, [*prompt, user(), assistant()], prompt)
    assert told(past).messages == (*prompt, user(), assistant(), user("now"))
    own = [system("be brief"), user("now")]
    assert told(past, *own).messages == (own[0], user(), assistant(), own[1])


TURNS = st.lists(
    st.one_of(
        st.integers(1, 3).map(lambda results: called("x" * 40 * results, results)),
        st.integers(1, 3).map(lambda count: [*[user()] * count, assistant()]),
        st.just([assistant("on its own")]),
    ),
    max_size=8,
)


@given(turns=TURNS, messages=st.integers(0, 20), tokens=st.integers(0, 200))
def test_whatever_was_said_as_much_is_told_as_may_be_and_no_result_without_its_call(
    turns: list[list[Message]], messages: int, tokens: int
) -> None:
    whole = [each for turn in turns for each in turn]
    last = whole[max(0, len(whole) - history_window(replace(LIMITS, history_messages=messages))) :]
    found = told(SessionHistory(len(whole), last), messages=messages, tokens=tokens)
    kept = found.messages[:-1]
    assert conversation_errors(found.messages) == []
    assert found.truncated == (len(kept) < len(whole))
    begins = [
        start
        for start, said in enumerate(whole)
        if said.role == "user" and (start == 0 or whole[start - 1].role != "user")
    ]
    fitting = [
        whole[start:]
        for start in begins
        if len(whole) - start <= messages and COUNTER.messages(whole[start:]) <= tokens
    ]
    assert list(kept) == (fitting[0] if fitting else [])
