"""Stored history that a provider would refuse is repaired, however it is broken."""

from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.context.history import HistoryLimits, sanitize_history
from portico.capabilities.context.repair import NO_RESULT
from portico.capabilities.models.tokens import UNCORRECTED
from portico.domain.contract.messages import Message, ToolCall, conversation_errors
from portico.ports.storage import SessionHistory

COUNTER = UNCORRECTED
NOW = Message(role="user", content="now")
USER = Message(role="user", content="look it up")


def asked(*ids: str) -> Message:
    calls = [ToolCall(id=each, name="look", arguments={}) for each in ids]
    return Message(role="assistant", content="", tool_calls=calls)


def result(call_id: str, content: str = "found") -> Message:
    return Message(role="tool", content=content, tool_call_id=call_id, name="look")


def seen(*stored: Message) -> tuple[list[tuple[str, str]], int]:
    """Return role and text of what is used of a stored conversation, and the number of repairs."""
    limits = HistoryLimits(50, 8_000, 8_000)
    found = sanitize_history([NOW], SessionHistory(len(stored), stored), limits, COUNTER)
    return [(each.role, each.text) for each in found.pieces.history], found.cut.repaired


def test_a_call_without_a_result_gets_an_error_result() -> None:
    assert seen(USER, asked("a", "b"), result("b"), USER) == (
        [("user", "look it up"), ("assistant", ""), ("tool", "found"), ("tool", NO_RESULT), ("user", "look it up")],
        1,
    )


def test_a_result_without_a_call_is_dropped_and_so_is_a_second_one() -> None:
    assert seen(USER, result("a"), asked("a"), result("a"), result("a", "again")) == (
        [("user", "look it up"), ("assistant", ""), ("tool", "found")],
        2,
    )


def test_results_before_the_first_turn_are_no_repair() -> None:
    assert seen(result("a"), USER) == ([("user", "look it up")], 0)


STORED = st.lists(
    st.one_of(
        st.just(USER),
        st.just(Message(role="assistant", content="well")),
        st.lists(st.sampled_from("abc"), max_size=3).map(lambda ids: asked(*ids)),
        st.sampled_from("abcd").map(result),
    ),
    max_size=14,
)


@given(STORED)
def test_any_stored_history_is_a_conversation_that_a_provider_accepts(stored: list[Message]) -> None:
    limits = HistoryLimits(50, 8_000, 8_000)
    found = sanitize_history([NOW], SessionHistory(len(stored), stored), limits, COUNTER)
    assert conversation_errors(found.messages) == []
    texts = [each for each in stored if each.role != "tool"]
    used = [each for each in found.pieces.history if each.role != "tool"]
    assert [each.content for each in used] == [each.content for each in texts[len(texts) - len(used) :]]
    if stored and used == texts and found.cut.repaired == 0 and found.cut.messages == 0:
        history = list(found.pieces.history)
        assert history[: len(stored)] == stored
        assert {each.content for each in history[len(stored) :]} <= {"the client gave no result"}
