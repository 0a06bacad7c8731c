"""The last hour of an engine: what the metrics count of its attempts, by the minute."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from portico.adapters.telemetry.genai import ModelName
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.capabilities.models.recent_attempts import MINUTE_S, RecentAttempts, percentile
from portico.domain.failures import Code
from portico.domain.fallback import Event, State
from portico.domain.journal.events import FinishReason, InheritedEvent, StoredEvent
from portico.domain.model_call import AttemptFailureReason
from tests.support.examples import ENDED, STARTED, correlation, fallback_transition
from tests.support.virtual_time import EPOCH

START = EPOCH // MINUTE_S * MINUTE_S
ANSWERED = fallback_transition(State.ATTEMPTING, State.SUCCEEDED, Event.PROVIDER_SUCCESS)
FAILED = fallback_transition(State.ATTEMPTING, State.RETRYING, Event.RETRYABLE_ERROR)
STOPPED = replace(fallback_transition(State.ATTEMPTING, State.ABORTED, Event.USER_ABORT), reason="stopped")
RETRIED = fallback_transition(State.RETRYING, State.ATTEMPTING, Event.RETRYABLE_ERROR)
REASON = AttemptFailureReason


@pytest.fixture
def metrics() -> MetricsSink:
    return MetricsSink(models={"primary": ModelName.of("openai", "gpt-4o-mini")}, tools=(), currency="EUR")


def attempt(
    at: float, duration_ms: float = 100.0, reason: str | None = None, finish: FinishReason = "stop"
) -> Sequence[StoredEvent]:
    """Return the events of an attempt that ended then: answered, or failed for this reason."""
    moved = ANSWERED if reason is None else replace(FAILED, reason=reason)
    finish = finish if reason is None else "error"
    ended = replace(ENDED, duration_ms=duration_ms, finish_reason=finish)
    return [StoredEvent(1, at, "0", correlation(), each) for each in (STARTED, ended, moved)]


def seen(metrics: MetricsSink, now: float) -> list[tuple[float, int, int]]:
    """Return start, attempts and failures of each minute."""
    minutes = metrics.recent_attempts["primary"].window(now)
    return [(each.number * MINUTE_S - START, each.attempts, each.failures) for each in minutes]


def test_attempts_count_in_the_minute_of_their_end_and_failures_by_their_code(metrics: MetricsSink) -> None:
    for at, reason in ((0, None), (59.9, REASON.SERVER_ERROR), (60, REASON.RATE_LIMITED), (61, REASON.UNREACHABLE)):
        metrics.publish("a", attempt(START + at, reason=reason))
    assert seen(metrics, START + 100) == [(0, 2, 1), (60, 2, 2)]
    first, second = metrics.recent_attempts["primary"].window(START + 100)
    assert first.codes == {Code.INFERENCE_ENGINE_ERROR: 1}
    assert second.codes == {Code.INFERENCE_MODEL_UNAVAILABLE: 2}


def test_a_minute_is_gone_an_hour_later_and_its_memory_with_the_next_attempt(metrics: MetricsSink) -> None:
    metrics.publish("a", attempt(START))
    metrics.publish("a", attempt(START + 120))
    assert seen(metrics, START + 3599.9) == [(0, 1, 0), (120, 1, 0)]
    assert seen(metrics, START + 3600) == [(120, 1, 0)]
    assert seen(metrics, START + 100) == [(0, 1, 0)]
    metrics.publish("a", attempt(START + 3600))
    assert len(metrics.recent_attempts["primary"]) == 2
    assert seen(metrics, START + 3600) == [(120, 1, 0), (3600, 1, 0)]


def test_a_cancelled_attempt_is_no_failure_and_no_answer(metrics: MetricsSink) -> None:
    events = [*attempt(START, finish="cancelled")[:2], StoredEvent(1, START, "0", correlation(), STOPPED)]
    metrics.publish("a", events)
    assert seen(metrics, START) == [(0, 1, 0)]
    assert percentile(metrics.recent_attempts["primary"].window(START), 0.5) is None


@pytest.mark.parametrize("reason", [REASON.BREAKER_OPEN, REASON.OVER_BUDGET, REASON.OVER_LIMIT, REASON.LIMIT_UNKNOWN])
def test_what_was_not_sent_is_no_attempt_at_the_engine(metrics: MetricsSink, reason: str) -> None:
    metrics.publish("a", attempt(START, reason=reason))
    assert seen(metrics, START) == []


def test_other_moves_unknown_engines_and_inherited_events_count_nothing(metrics: MetricsSink) -> None:
    foreign = replace(ANSWERED, provider="gone")
    metrics.publish("a", [StoredEvent(1, START, "0", correlation(), each) for each in (RETRIED, foreign)])
    metrics.publish("a", [InheritedEvent(1, START, "0", correlation(), ANSWERED)])
    assert seen(metrics, START) == []
    assert set(metrics.recent_attempts) == {"primary"}


def test_percentiles_are_those_of_the_answered_attempts_to_five_percent(metrics: MetricsSink) -> None:
    for number in range(1, 101):
        metrics.publish("a", attempt(START + 60 * (number % 3), duration_ms=number * 37.0))
    metrics.publish("a", attempt(START, duration_ms=90_000.0, reason=REASON.TIMED_OUT))
    minutes = metrics.recent_attempts["primary"].window(START + 120)
    assert percentile(minutes, 0.5) == pytest.approx(50 * 37, rel=0.05)
    assert percentile(minutes, 0.95) == pytest.approx(95 * 37, rel=0.05)
    assert percentile(minutes, 1.0) == pytest.approx(100 * 37, rel=0.05)


@pytest.mark.parametrize("milliseconds", [0.0, 0.4, 1.0, 7.3, 3_600_000.0])
def test_any_duration_has_a_class(metrics: MetricsSink, milliseconds: float) -> None:
    metrics.publish("a", attempt(START, duration_ms=milliseconds))
    found = percentile(metrics.recent_attempts["primary"].window(START), 0.5)
    assert found == pytest.approx(max(1.0, milliseconds), rel=0.05, abs=0.05)


def test_without_attempts_there_is_no_percentile() -> None:
    assert percentile(RecentAttempts().window(START), 0.95) is None
