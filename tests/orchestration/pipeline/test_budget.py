"""The budget equation: exact over random histories, skills, chunks and tools, and for sessions without end."""

from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.bootstrap.service import PATTERNS, Service, open_service
from portico.capabilities.context.history import HistoryLimits, sanitize_history
from portico.capabilities.models.tokens import UNCORRECTED
from portico.domain.access.principal import LOCAL
from portico.domain.context.selection import RetrievedContext, SelectedSkills
from portico.domain.contract.messages import Message, Origin, ToolCall, TracedMessage
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import InferenceFailure
from portico.domain.journal.outcomes import InferenceSetup
from portico.domain.lifecycle import Mode
from portico.domain.tools import ToolDefinition
from portico.orchestration.facade import ExecutionHandle
from portico.orchestration.pipeline.stages import CONTEXT_GUARD, Preparation
from portico.ports.storage import SessionHistory
from portico.settings import Settings
from tests.support.harness import make_harness, scripted_engine
from tests.support.virtual_time import VirtualClock

T = TypeVar("T")
RESERVE = 50
TEXTS = st.text(min_size=0, max_size=60)


def done(stage: Coroutine[Any, Any, T]) -> T:
    """Return the result of a stage that waits for nothing."""
    with pytest.raises(StopIteration) as end:
        stage.send(None)
    result: T = end.value.value
    return result


def turn(texts: tuple[str, str, str]) -> list[Message]:
    call = ToolCall(id="c", name="look", arguments={"text": texts[0]})
    return [
        Message(role="user", content=texts[0]),
        Message(role="assistant", content=texts[1], tool_calls=[call]),
        Message(role="tool", content=texts[2], tool_call_id="c"),
        Message(role="assistant", content=texts[1]),
    ]


def skill(text: str) -> Message:
    return TracedMessage(role="system", content=text, origin=Origin.SKILL)


def tool(number: int, text: str) -> ToolDefinition:
    return ToolDefinition(f"tool_{number}", text, {"type": "object"})


CASES = st.fixed_dictionaries(
    {
        "prompt": st.lists(TEXTS, max_size=2),
        "turns": st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=5),
        "before": st.lists(TEXTS, max_size=2),
        "question": TEXTS,
        "skills": st.lists(TEXTS, max_size=3),
        "chunks": st.none() | TEXTS,
        "tools": st.lists(TEXTS, max_size=3),
        "history_tokens": st.integers(0, 300),
    }
)


def prepared(case: dict[str, Any], window: int) -> Preparation:
    """Return what the guard is given, with an engine of that window beside the reserve."""
    clock = VirtualClock()
    here = make_harness(clock, scripted_engine(clock, "a", context_window=window + RESERVE, response_reserve=RESERVE))
    own = [Message(role="system", content=each) for each in case["prompt"]]
    own += [Message(role="user", content=each) for each in (*case["before"], case["question"])]
    stored = [message for texts in case["turns"] for message in turn(texts)]
    limits = HistoryLimits(50, case["history_tokens"], 1_000_000)
    history = sanitize_history(own, SessionHistory(len(stored), stored), limits, UNCORRECTED)
    skills = SelectedSkills(messages=tuple(map(skill, case["skills"])))
    chunks = case["chunks"]
    found = None if chunks is None else TracedMessage(role="user", content=chunks, origin=Origin.RETRIEVED)
    return Preparation(
        SystemRequest.model_validate({"messages": [each.model_dump() for each in own]}),
        here.limits,
        PATTERNS[Mode.CHAT],
        here.environment,
        SessionHistory(),
        LOCAL.tenant,
        pieces=history.pieces,
        offered=tuple(tool(number, text) for number, text in enumerate(case["tools"])),
        skills=skills,
        retrieved=RetrievedContext(found),
    )


@given(CASES)
def test_the_terms_add_up_to_what_is_sent_and_exactly_the_limit_fits(case: dict[str, Any]) -> None:
    whole = done(CONTEXT_GUARD.apply(prepared(case, 1_000_000)))
    assert whole.context is not None
    terms, pieces = whole.context.terms, whole.pieces

    def tokens(messages: Sequence[Message]) -> int:
        return sum(map(UNCORRECTED.message, messages))

    assert terms.used == tokens(whole.messages) + UNCORRECTED.tools(whole.offered)
    assert terms.system == tokens(pieces.system)
    assert terms.skills == tokens(whole.skills.messages)
    assert terms.memory == (0 if whole.retrieved.message is None else tokens([whole.retrieved.message]))
    assert terms.message == tokens(pieces.request[-1:])
    assert terms.history == tokens([*pieces.history, *pieces.request[:-1]])
    assert tokens(pieces.history) <= case["history_tokens"]
    retrieved = [] if whole.retrieved.message is None else [whole.retrieved.message]
    assert list(whole.messages) == [
        *pieces.system,
        *whole.skills.messages,
        *pieces.history,
        *pieces.request[:-1],
        *retrieved,
        pieces.request[-1],
    ]
    exact = done(CONTEXT_GUARD.apply(prepared(case, terms.used)))
    assert exact.context is not None
    assert exact.context.terms == replace(terms, limit=terms.used)
    with pytest.raises(InferenceFailure) as refused:
        CONTEXT_GUARD.apply(prepared(case, terms.used - 1)).send(None)
    assert refused.value.details == {"used": terms.used, **asdict(replace(terms, limit=terms.used - 1))}


@asynccontextmanager
async def small_service(*, compact: bool) -> AsyncIterator[Service]:
    tables = {
        "storage": {"url": "sqlite://"},
        "telemetry": {"log_level": "error"},
        "engines": {"rehearsal": {"model": "rehearsal://", "context_window": 2_500, "response_reserve": 500}},
        "sessions": {"compact": compact},
    }
    async with open_service(Settings.model_validate(tables)) as opened:
        yield opened


@pytest.mark.parametrize("compact", [False, True])
async def test_a_session_of_300_turns_never_overflows(compact: bool) -> None:
    async with small_service(compact=compact) as here:
        with anyio.fail_after(300):
            for number in range(300):
                text = f"Please calculate {number}*3. " + "word " * (number * 7 % 90)
                asked = {"messages": [{"role": "user", "content": text}], "session_id": "s", "tools": ["calculate"]}
                handle = await here.facade.execute(
                    SystemRequest.model_validate({**asked, "request_id": f"t{number}"}), LOCAL
                )
                assert isinstance(handle, ExecutionHandle)
                await handle.wait()
                assert handle.response is not None
                assert handle.response.error is None, number
            history = await here.facade.executions.load_at_rest(LOCAL.own, "t299")
        setups = [step.outcome for step in history.steps.values() if isinstance(step.outcome, InferenceSetup)]
        assert setups
        for setup in setups:
            assert setup.terms is not None
            assert setup.terms.used <= setup.terms.limit == 2_000
        trace = await here.facade.executions.trace(LOCAL, "t299")
        assert trace.context is not None
        assert trace.context.cut.messages > 1_000
        assert (trace.context.cut.summarised > 1_000) is compact
