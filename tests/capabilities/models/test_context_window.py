"""The context budget: exactly at its limit, one token beyond, and results of tool rounds that are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.models.context_window import CUT_MARK, capacity, measure, results_to_cut
from portico.capabilities.models.tokens import UNCORRECTED
from portico.capabilities.tools.definition import tool
from portico.domain.contract.messages import Message
from portico.domain.failures import Code
from portico.domain.tools import SideEffects, ToolDefinition
from tests.support.harness import chat_request, make_harness, replay_offline, scripted_engine
from tests.support.virtual_time import VirtualClock

COUNTER = UNCORRECTED


def test_every_part_of_the_equation_is_counted_once() -> None:
    messages = [Message(role=role, content="word " * 20) for role in ("system", "user", "assistant", "user")]
    tools = [ToolDefinition("look", "Look it up.", {"type": "object"})]
    parts = measure(messages, tools, COUNTER)
    assert parts.used == sum(map(COUNTER.message, messages)) + COUNTER.tools(tools)
    assert parts.tools > 0
    assert min(parts.system, parts.history, parts.message) > 0


@given(st.text())
def test_an_estimate_is_never_negative_and_only_an_empty_text_is_nothing(text: str) -> None:
    assert (COUNTER.text(text) > 0) == bool(text)


@given(st.text(), st.text())
def test_a_longer_text_is_never_estimated_smaller(before: str, after: str) -> None:
    assert COUNTER.text(before + after) >= COUNTER.text(before)


def test_a_reserve_larger_than_the_window_leaves_a_capacity_of_zero(clock: VirtualClock) -> None:
    assert capacity(scripted_engine(clock, "a", context_window=10, response_reserve=20)) == 0


@pytest.mark.parametrize(("beyond", "fits"), [(0, True), (1, False)])
async def test_exactly_the_limit_is_accepted_and_one_token_more_is_not(
    clock: VirtualClock, beyond: int, fits: bool
) -> None:
    request = chat_request("word " * 100)
    used = sum(map(COUNTER.message, request.messages))
    engine = scripted_engine(clock, "a", {"text": "ok"}, context_window=used + 50 - beyond, response_reserve=50)
    response, record = await make_harness(clock, engine).run(request)
    assert (response.error is None) is fits
    if response.error is not None:
        assert response.error.code is Code.INFERENCE_CONTEXT_EXCEEDED
        assert (response.error.details["used"], response.error.details["limit"]) == (used, used - 1)
        ended = {each.event.stage: each.event.outcome for each in record.events if each.event.type == "stage.end"}
        assert ended["ContextGuard"] == "failed"
    assert replay_offline(record) == len(record.steps)


async def test_an_engine_whose_window_is_too_small_is_passed_over(clock: VirtualClock) -> None:
    small = scripted_engine(clock, "small", {"text": "small"}, context_window=60, response_reserve=50)
    large = scripted_engine(clock, "large", {"text": "large"})
    response, _ = await make_harness(clock, small, large).run(chat_request("word " * 100))
    assert response.metadata.provider == "large"


def test_the_oldest_tool_results_of_this_turn_are_cut_first_and_no_more_than_needed() -> None:
    talk = [Message(role="user", content="q")]
    talk += [Message(role="tool", content="result " * 50, tool_call_id=f"c{index}") for index in range(3)]
    assert results_to_cut(talk, turn_starts=1, over=1, counter=COUNTER) == (1,)
    assert results_to_cut(talk, turn_starts=2, over=1, counter=COUNTER) == (2,)
    assert results_to_cut(talk, turn_starts=1, over=10**6, counter=COUNTER) == (1, 2, 3)
    assert results_to_cut(talk, turn_starts=1, over=0, counter=COUNTER) == ()


async def test_results_of_tool_rounds_are_cut_and_marked_before_the_next_inference(clock: VirtualClock) -> None:
    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def read() -> str:
        """Reads a lot."""
        return "word " * 400

    call = {"tool_calls": [{"name": "read"}]}
    engine = scripted_engine(clock, "a", call, call, {"text": "done"}, context_window=900, response_reserve=100)
    response, record = await make_harness(clock, engine, tools=[read]).run(chat_request())
    assert response.content == "done"
    assert all(made.result.startswith("word") for made in response.tool_calls_made)
    assert [row.outcome.cut for key, row in record.steps.items() if key in {"0", "2", "4"}] == [(), (), (2,)]
    assert replay_offline(record) == len(record.steps)


async def test_a_context_that_cannot_be_cut_enough_is_exceeded_with_the_numbers(clock: VirtualClock) -> None:
    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def read() -> str:
        """Reads."""
        return "x"

    many = {"tool_calls": [{"name": "read"}] * 30}
    engine = scripted_engine(clock, "a", many, {"text": "done"}, context_window=300, response_reserve=100)
    response, record = await make_harness(clock, engine, tools=[read]).run(chat_request())
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_CONTEXT_EXCEEDED
    assert response.error.details["used"] > response.error.details["limit"] == 200
    assert len(response.tool_calls_made) == 30
    assert replay_offline(record) == len(record.steps)


def test_the_mark_states_that_a_result_was_cut() -> None:
    assert "cut" in CUT_MARK
