"""Agent traces: summaries of event logs."""

from collections.abc import Sequence

from portico.domain.contract.response import ResponseMetadata, SystemResponse, TokenUsage
from portico.domain.failures import Code
from portico.domain.fallback import Event as FsmEvent
from portico.domain.fallback import State as FsmState
from portico.domain.journal.events import (
    CorrelationContext,
    Event,
    ExecutionCompleted,
    ExecutionResumed,
    ExecutionSuspended,
    FallbackTransition,
    InferenceEnd,
    InferenceRetracted,
    InferenceStart,
    LifecycleTransition,
    StageEnd,
    StoredEvent,
    ToolEnd,
    ToolStart,
)
from portico.domain.lifecycle import Mode, State
from portico.orchestration.runtime.agent_trace import AgentTrace, agent_trace

IDS = CorrelationContext("r-1", "s-1", "0" * 32, "0" * 16, None, step_name="ask")
USAGE = TokenUsage(input_tokens=10, output_tokens=5, reasoning_tokens=2, total_tokens=15)


def traced(*events: tuple[float, str, Event]) -> AgentTrace:
    """Return the trace of these events, each with its time and its anchor."""
    return agent_trace(
        [StoredEvent(number, at, anchor, IDS, event) for number, (at, anchor, event) in enumerate(events, 1)]
    )


def transition(to: State, before: State | None = None) -> LifecycleTransition:
    return LifecycleTransition(before, to, 1, "because")


def started(segment: str, provider: str) -> InferenceStart:
    return InferenceStart(segment, 1, 0, False, False, None, provider, f"{provider}-model")


def ended(segment: str, reason: str = "stop") -> InferenceEnd:
    return InferenceEnd(segment, 250.0, 4, 3, reason, 1)


def response(state: State) -> SystemResponse:
    metadata = ResponseMetadata(provider="b", model="b-1", fallback_attempts=7)
    return SystemResponse(
        request_id="r-1", trace_id="0" * 32, mode=Mode.CHAT, state=state, token_usage=USAGE, metadata=metadata
    )


START: Sequence[tuple[float, str, Event]] = ((100.0, "init", transition(State.INIT)),)


def test_an_execution_without_attempts_has_used_no_tokens() -> None:
    trace = traced(*START)
    assert (trace.request_id, trace.session_id, trace.outcome) == ("r-1", "s-1", State.INIT)
    assert (trace.completed_at, trace.provider_used, trace.fallback_attempts) == (None, None, 0)
    assert (trace.attempts, trace.tool_calls, trace.stages, trace.total_tokens) == ([], [], [], TokenUsage())


def test_attempts_are_paired_with_their_ends_and_counted_while_it_runs() -> None:
    trace = traced(
        *START,
        (101.0, "0/0", started("0/0", "a")),
        (102.0, "0/0", ended("0/0", "error")),
        (103.0, "0/1", started("0/1", "b")),
        (104.0, "1/0", started("1/0", "b")),
        (105.0, "0/1", ended("0/1")),
    )
    assert [(each.segment, each.finish_reason, each.duration_ms) for each in trace.attempts] == [
        *(("0/0", "error", 250.0), ("0/1", "stop", 250.0), ("1/0", None, None))
    ]
    assert [each.step_name for each in trace.attempts] == ["ask"] * 3
    assert (trace.provider_used, trace.model_used, trace.fallback_attempts) == ("b", "b-model", 1)
    assert trace.total_tokens == TokenUsage(input_tokens=8, output_tokens=6, total_tokens=14)


def test_an_attempt_whose_process_died_has_no_end_and_its_repetition_has_one() -> None:
    trace = traced(
        *START,
        (101.0, "0/0", started("0/0", "a")),
        (200.0, "0/0", InferenceRetracted("0/0")),
        (200.0, "0/0", started("0/0", "a")),
        (201.0, "0/0", ended("0/0")),
    )
    assert [each.finish_reason for each in trace.attempts] == [None, "stop"]


def test_every_attempt_at_a_tool_call_is_listed_with_its_outcome() -> None:
    trace = traced(
        *START,
        (101.0, "1/0/0/0", ToolStart("look", "call_1", "00")),
        (102.0, "1/0/0/0", ToolEnd("look", "call_1", 9.0, success=False, error_code=Code.TOOL_TIMEOUT)),
        (102.0, "1/0/0/1", ToolStart("look", "call_1", "00")),
        (103.0, "1/0/0/1", ToolEnd("look", "call_1", 8.0, success=True, error_code=None)),
        (103.0, "1/1/0/0", ToolStart("send", "call_2", "11")),
    )
    assert [(each.tool_name, each.success, each.error_code) for each in trace.tool_calls] == [
        *(("look", False, Code.TOOL_TIMEOUT), ("look", True, None), ("send", None, None))
    ]
    assert not any(each.client for each in trace.tool_calls)


def test_a_summed_stage_started_with_its_first_part() -> None:
    tried = FallbackTransition(FsmState.IDLE, FsmState.SELECTING, FsmEvent.START, None, None, 0, "started", None)
    trace = traced(
        *START,
        (101.0, "prepare", StageEnd("ContextGuard", 500.0, "ok")),
        (102.0, "prepare", transition(State.EXECUTE, State.PREPARE)),
        (103.0, "0", tried),
        (109.0, "end", StageEnd("Execute", 7_000.0, "ok")),
        (109.0, "end", StageEnd("FailoverDecide", 2_000.0, "ok")),
    )
    assert [stage.started_at.timestamp() for stage in trace.stages] == [100.5, 102.0, 103.0]


def test_the_response_gives_the_totals_until_the_execution_is_resumed() -> None:
    suspension = (
        (102.0, "end", transition(State.SUSPENDED, State.EXECUTE)),
        (102.0, "end", ExecutionSuspended((), response(State.SUSPENDED))),
    )
    resumed = (
        (500.0, "resume", ExecutionResumed("1", "question", "ask_person", "local")),
        (500.0, "resume", transition(State.EXECUTE, State.SUSPENDED)),
    )
    end = (
        (501.0, "end", transition(State.COMPLETE, State.EXECUTE)),
        (501.0, "end", ExecutionCompleted(response(State.COMPLETE))),
    )
    suspended, running, complete = (
        traced(*START, *suspension),
        traced(*START, *suspension, *resumed),
        traced(*START, *resumed, *end),
    )
    assert [each.outcome for each in (suspended, running, complete)] == [State.SUSPENDED, State.EXECUTE, State.COMPLETE]
    assert (suspended.total_tokens, running.total_tokens, complete.total_tokens) == (USAGE, TokenUsage(), USAGE)
    assert (complete.provider_used, complete.model_used, complete.fallback_attempts) == ("b", "b-1", 7)
    assert [each.completed_at is None for each in (suspended, running, complete)] == [True, True, False]
