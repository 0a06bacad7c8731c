"""Outcomes, and fingerprints that must never change, since a journal recognises its steps by them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import TokenUsage
from portico.domain.failures import Code, failure
from portico.domain.fingerprints import args_hash, digest, span_id
from portico.domain.journal.outcomes import Refused
from portico.domain.model_call import Reply

KEY = "00" * 16
json_objects = st.dictionaries(
    st.text(max_size=8), st.integers(-(2**53), 2**53) | st.text() | st.booleans() | st.none()
)
"""Text without lone surrogates, which JSON cannot express."""


@pytest.mark.parametrize(
    ("parts", "known"),
    [
        ((), "7ebb3c7c2a87b1a2f8a7ed729ecb040d"),
        (("infer", "0", 1, None), "9f5185ac191ea3b8ee112766386d8aa0"),
        ((Message(role="user", content="Grüße"),), "3aa4e6fab0725c1031e81b9aeb6209a0"),
        ((ExecutionHints(temperature=0.0),), "40b8b8a6cbe365259aaa2a66ddd460e9"),
    ],
    ids=["nothing", "scalars", "a message", "hints"],
)
def test_a_digest_is_the_same_in_every_process_and_release(parts: tuple[object, ...], known: str) -> None:
    assert digest(*parts) == known


@given(json_objects)
def test_the_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    backwards = dict(reversed(value.items()))
    assert digest(value) == digest(backwards)
    assert args_hash(KEY, value) == args_hash(KEY, backwards)


def test_the_parts_of_a_digest_are_separated() -> None:
    assert len({digest("ab"), digest("a", "b"), digest("", "ab"), digest(["a", "b"]), digest("ab", None)}) == 5


def test_an_absent_field_equals_a_field_that_is_none() -> None:
    assert digest(ExecutionHints()) == digest(ExecutionHints(temperature=None))
    assert digest(ExecutionHints()) != digest(ExecutionHints(temperature=0.0))


def test_a_value_without_a_canonical_form_is_rejected() -> None:
    with pytest.raises(TypeError):
        digest({"a set"})


def test_a_hash_of_arguments_depends_on_its_key() -> None:
    arguments = {"count": 2, "sides": 6}
    assert args_hash(KEY, arguments) == args_hash(KEY, {"sides": 6, "count": 2})
    assert args_hash(KEY, arguments) != args_hash("11" * 16, arguments)
    assert args_hash(KEY, arguments) != args_hash(KEY, {"count": 3, "sides": 6})


def test_span_ids_are_16_hex_digits_and_differ_by_execution_and_step() -> None:
    ids = {span_id(execution, anchor) for execution in ("a", "b") for anchor in ("prepare", "0/0", "0/1")}
    assert len(ids) == 6
    assert all(len(value) == 16 and int(value, 16) >= 0 for value in ids)
    assert span_id("a", "0/0") == "94469abf68f697bf"


def test_a_refusal_returns_the_complete_original_failure() -> None:
    cause = failure(Code.TOOL_TIMEOUT, "too slow", details={"limit": 3}, condition="not idempotent")
    cause.retry_after = 2.5
    again = Refused.by(cause).failure()
    assert type(again) is type(cause)
    assert (again.code, again.message, again.details) == (cause.code, cause.message, cause.details)
    assert (again.status, again.retryable, again.retry_after) == (500, False, 2.5)


def test_a_reply_becomes_a_message_without_empty_tool_calls() -> None:
    call = ToolCall(id="a", name="roll_dice", arguments={"count": 2})
    silent = Reply("Hi.", (), "stop", "stop", TokenUsage(), "m").message("primary")
    asking = Reply("", (call,), "tool", "tool_calls", TokenUsage(), "m", reasoning="hidden").message("primary")
    assert silent == Message(role="assistant", content="Hi.")
    assert asking == Message(role="assistant", content="", tool_calls=[call])
