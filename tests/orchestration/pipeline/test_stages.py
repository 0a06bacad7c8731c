"""Pipeline stages: each runs once, and HistorySanitize uses whole turns, so that no tool result loses its call."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.bootstrap.service import PATTERNS
from portico.capabilities.context.history import HistoryLimits, SanitizedHistory, sanitize_history
from portico.capabilities.models.tokens import UNCORRECTED
from portico.domain.access.principal import LOCAL
from portico.domain.contract.messages import Message, ToolCall, conversation_errors
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code, InferenceFailure
from portico.domain.journal.outcomes import StageTrace
from portico.domain.lifecycle import Mode
from portico.orchestration.execution.session_turn import history_window
from portico.orchestration.pipeline.stages import (
    CONTEXT_GUARD,
    HISTORY_SANITIZE,
    PREPARE_STAGES,
    Preparation,
    Stage,
    StageTimer,
)
from portico.ports.storage import SessionHistory
from tests.support.harness import LIMITS, Harness, chat_request, make_harness, scripted_engine
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

COUNTER = UNCORRECTED
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
    """Return a turn with a round of tools."""
    calls = [ToolCall(id=f"c{number}", name="t", arguments={"n": number}) for number in range(results)]
    results_of_calls = [message("tool", "done", tool_call_id=call.id) for call in calls]
    return [user(text), Message(role="assistant", content="", tool_calls=calls), *results_of_calls, assistant()]


def sanitized(
    session: SessionHistory | Sequence[Message],
    *own: Message,
    messages: int = 50,
    tokens: int = 8_000,
    capacity: int = AMPLE,
) -> SanitizedHistory:
    history = session if isinstance(session, SessionHistory) else SessionHistory(len(session), session)
    return sanitize_history(own or [user("now")], history, HistoryLimits(messages, tokens, capacity), COUNTER)


def seen(found: SanitizedHistory) -> tuple[list[Message], int]:
    """Return the messages, and how many earlier ones are missing."""
    return list(found.messages), found.cut.messages


def test_without_a_history_the_request_is_unchanged() -> None:
    own = [system("be brief"), user(), system("and kind"), user()]
    assert seen(sanitized([], *own, messages=0, tokens=0, capacity=0)) == (own, 0)


def test_a_history_that_fits_is_used_whole() -> None:
    history = [*called(), user(), assistant()]
    found = sanitized(history, messages=len(history), tokens=sum(map(COUNTER.message, history)))
    assert seen(found) == ([*history, user("now")], 0)


@pytest.mark.parametrize("less", ["messages", "tokens", "capacity"])
def test_one_unit_over_a_limit_drops_the_whole_oldest_turn(less: str) -> None:
    history = [*called(), user("second"), assistant()]
    tokens = sum(map(COUNTER.message, history))
    limits = {
        "messages": len(history),
        "tokens": tokens,
        "capacity": tokens + COUNTER.message(user("now")),
    }
    limits[less] -= 1
    assert seen(sanitized(history, **limits)) == ([user("second"), assistant(), user("now")], 5)


def test_if_the_last_turn_does_not_fit_only_the_request_is_used() -> None:
    assert seen(sanitized(called(results=5), messages=3)) == ([user("now")], 8)
    assert seen(sanitized([user(), assistant()], messages=0)) == ([user("now")], 2)
    assert seen(sanitized([user(), assistant()], capacity=0)) == ([user("now")], 2)


def test_consecutive_user_messages_begin_one_turn() -> None:
    history = [user("1"), assistant(), user("2"), user("3"), assistant()]
    assert sanitized(history, messages=4).messages == (*history[2:], user("now"))
    assert sanitized(history, messages=2).messages == (user("now"),)


def test_messages_that_were_not_loaded_count_as_truncated() -> None:
    last = [user(), assistant()]
    assert sanitized(SessionHistory(3, last)).cut.messages == 1
    assert sanitized(SessionHistory(3, last, [system("be brief")])).cut.messages == 0
    assert sanitized(SessionHistory(4, last, [system("be brief")])).cut.messages == 1


def test_the_prompt_comes_from_the_request_or_else_from_the_session() -> None:
    prompt = [system("rhyme"), system("always")]
    history = SessionHistory(4, [*prompt, user(), assistant()], prompt)
    assert sanitized(history).messages == (*prompt, user(), assistant(), user("now"))
    own = [system("be brief"), user("now")]
    assert sanitized(history, *own).messages == (own[0], user(), assistant(), own[1])


TURNS = st.lists(
    st.one_of(
        st.integers(1, 3).map(lambda results: called("x" * 40 * results, results)),
        st.integers(1, 3).map(lambda count: [*[user()] * count, assistant()]),
        st.just([assistant("on its own")]),
    ),
    max_size=8,
)


@given(turns=TURNS, messages=st.integers(0, 20), tokens=st.integers(0, 200))
def test_any_history_is_cut_to_the_most_turns_that_fit_and_no_result_loses_its_call(
    turns: list[list[Message]], messages: int, tokens: int
) -> None:
    whole = [each for turn in turns for each in turn]
    last = whole[max(0, len(whole) - history_window(replace(LIMITS, history_messages=messages))) :]
    found = sanitized(SessionHistory(len(whole), last), messages=messages, tokens=tokens)
    used = found.messages[:-1]
    assert conversation_errors(found.messages) == []
    assert found.cut.messages == len(whole) - len(used)
    starts = [
        start
        for start, each in enumerate(whole)
        if each.role == "user" and (start == 0 or whole[start - 1].role != "user")
    ]
    fitting = [
        whole[start:]
        for start in starts
        if len(whole) - start <= messages and sum(map(COUNTER.message, whole[start:])) <= tokens
    ]
    assert list(used) == (fitting[0] if fitting else [])


async def prepared(here: Harness, request: SystemRequest) -> tuple[Preparation, StageTimer]:
    """Run the stages of PREPARE for a request without a session."""
    pattern = PATTERNS[request.mode]
    preparation = Preparation(request, here.limits, pattern, here.environment, SessionHistory(), LOCAL.tenant)
    timer = StageTimer(here.environment.clock)
    return await timer.run(PREPARE_STAGES, preparation), timer


async def test_every_stage_runs_once_and_is_reported_in_the_order_of_the_seed(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a"), tools=[FakeTool()])
    preparation, timer = await prepared(here, chat_request())
    assert [trace.stage for trace in timer.in_seed_order()] == ["HistorySanitize", "ContextGuard", "ToolSplit"]
    assert {trace.outcome for trace in timer.traces} == {"ok"}
    assert (preparation.tools, len(preparation.offered)) == (("act",), 1)
    assert preparation.messages == tuple(chat_request().messages)


async def test_a_stage_is_timed_where_it_runs(clock: VirtualClock) -> None:
    async def wait(value: int) -> int:
        await clock.sleep(2.0)
        return value + 1

    timer = StageTimer(clock)
    assert await timer.run([Stage("Retrieve", wait)], 1) == 2
    assert timer.traces == [StageTrace("Retrieve", 2_000.0, "ok")]


async def test_a_stage_that_refuses_the_request_leaves_its_trace(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", context_window=100, response_reserve=50))
    preparation = Preparation(
        chat_request("word " * 500), here.limits, PATTERNS[Mode.CHAT], here.environment, SessionHistory(), LOCAL.tenant
    )
    timer = StageTimer(clock)
    with pytest.raises(InferenceFailure) as refused:
        await timer.run([HISTORY_SANITIZE, CONTEXT_GUARD], preparation)
    assert refused.value.code is Code.INFERENCE_CONTEXT_EXCEEDED
    assert [(trace.stage, trace.outcome) for trace in timer.traces] == [
        *(("HistorySanitize", "ok"), ("ContextGuard", "failed"))
    ]
