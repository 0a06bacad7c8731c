"""Prometheus metrics: the rendered series are those of the table, and no input can add one."""

from collections.abc import Mapping

import pytest
from prometheus_client import Gauge
from prometheus_client.parser import text_string_to_metric_families

from app.adapters.telemetry.metrics import SERIES, MetricsSink, label_values, other_value
from app.domain.contract.response import StepStatus
from app.domain.failures import Code
from app.domain.journal import events
from app.domain.journal.events import EVENT_TYPES, Event, InheritedEvent
from app.domain.lifecycle import State
from tests.support.examples import (
    CANCELLED,
    DELTA,
    ENDED,
    EVENTS,
    FAILED,
    STARTED,
    SUSPENDED,
    TOOL_ENDED,
    live_delta,
    plain_chat,
    stored_events,
)
from tests.support.virtual_time import EPOCH

PROVIDERS = ("primary", "backup")
TOOLS = ("roll_dice", "calculate")
OURS = "portico_"
_SUFFIXES = ("_bucket", "_sum", "_count", "_created")
_LABEL_VALUES = {"provider": PROVIDERS[0], "breaker": "open", "limit": "concurrency"}


@pytest.fixture
def metrics() -> MetricsSink:
    return MetricsSink(providers=PROVIDERS, tools=TOOLS)


def _samples(metrics: MetricsSink) -> list[tuple[str, Mapping[str, str], float]]:
    body, _ = metrics.render()
    families = text_string_to_metric_families(body.decode())
    return [(s.name, s.labels, s.value) for family in families for s in family.samples if s.name.startswith(OURS)]


def _value(metrics: MetricsSink, name: str, **labels: str) -> float:
    return sum(value for found, given, value in _samples(metrics) if found == name and labels.items() <= given.items())


def _tell_everything(metrics: MetricsSink) -> None:
    """Give every series of the table at least one sample."""
    metrics.publish("a", stored_events(STARTED))
    metrics.publish("a", [live_delta()])
    metrics.publish("b", plain_chat())
    for event in EVENTS:
        metrics.publish("a", stored_events(event))
    metrics.count_refused(Code.REQUEST_INVALID)
    metrics.count_limited("tenant-tokens")
    metrics.count_dropped_reader()
    metrics.count_bug("execution")
    metrics.count_bug("sink")
    metrics.count_unknown_frames(PROVIDERS[0], 2)
    metrics.observe_lag(0.01)
    for series in SERIES:
        if series.kind is Gauge:
            metrics.observe_gauge(series.name, lambda: 3, *(_LABEL_VALUES[label] for label in series.labels))


def test_every_series_of_the_table_is_rendered_with_its_labels_and_no_other_is(metrics: MetricsSink) -> None:
    _tell_everything(metrics)
    seen: dict[str, set[str]] = {}
    for name, labels, _ in _samples(metrics):
        base = next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
        base = base if base in {series.name for series in SERIES} else f"{base}_total"
        seen.setdefault(base, set()).update(set(labels) - {"le"})
    assert seen == {series.name: set(series.labels) for series in SERIES}


def test_every_label_has_a_closed_set_of_values(metrics: MetricsSink) -> None:
    sets = label_values(PROVIDERS, TOOLS)
    _tell_everything(metrics)
    for name, labels, _ in _samples(metrics):
        for label, value in labels.items():
            assert label == "le" or value in {*sets[label], other_value(label)}, name


def test_every_series_has_a_description(metrics: MetricsSink) -> None:
    body = metrics.render()[0].decode()
    for series in SERIES:
        assert f" {series.description}" in body
        assert series.name.endswith(
            ("_total", "_seconds", "_in_flight", "_waiting", "_state", "_up", "_bytes", "_abandoned")
        )


def test_the_content_type_is_the_text_format(metrics: MetricsSink) -> None:
    assert metrics.render()[1].startswith("text/plain")


def test_the_process_is_measured_too(metrics: MetricsSink) -> None:
    assert b"process_resident_memory_bytes" in metrics.render()[0]


def test_two_sinks_do_not_share_anything(metrics: MetricsSink) -> None:
    metrics.count_dropped_reader()
    assert _value(MetricsSink(providers=(), tools=()), "portico_readers_dropped_total") == 0


def test_a_plain_chat_is_counted(metrics: MetricsSink) -> None:
    metrics.publish("a", plain_chat())
    counted = {
        "portico_executions_total": ({"mode": "chat", "state": "COMPLETE", "code": "none"}, 1),
        "portico_execution_duration_seconds_count": ({"mode": "chat"}, 1),
        "portico_execution_duration_seconds_sum": ({"mode": "chat"}, 15),
        "portico_inferences_total": ({"provider": "primary", "finish_reason": "stop"}, 1),
        "portico_inference_duration_seconds_sum": ({"provider": "primary"}, 0.8125),
        "portico_lifecycle_transitions_total": ({}, 4),
        "portico_fallback_transitions_total": ({}, 3),
    }
    for name, (labels, value) in counted.items():
        assert _value(metrics, name, **labels) == pytest.approx(value), name
    assert _value(metrics, "portico_tokens_total", provider="primary", direction="in") == 12
    assert _value(metrics, "portico_tokens_total", provider="primary", direction="out") == 34
    assert _value(metrics, "portico_lifecycle_transitions_total", from_state="none", to_state="INIT") == 1


@pytest.mark.parametrize(
    ("event", "state", "code"),
    [
        (FAILED, "ERROR", "INFERENCE_MODEL_UNAVAILABLE"),
        (CANCELLED, "CANCELLED", "CANCELLED_TIMEOUT"),
        (SUSPENDED, "SUSPENDED", "none"),
    ],
    ids=lambda value: getattr(value, "type", str(value)),
)
def test_every_end_is_counted_by_state_and_code(metrics: MetricsSink, event: Event, state: str, code: str) -> None:
    metrics.publish("a", stored_events(event))
    assert _value(metrics, "portico_executions_total", mode="chat", state=state, code=code) == 1


def test_a_resumed_execution_is_measured_from_its_resume(metrics: MetricsSink) -> None:
    begins = events.LifecycleTransition(State.SUSPENDED, State.EXECUTE, 1, "resumed")
    metrics.publish("a", stored_events(begins, STARTED, ENDED, FAILED))
    assert _value(metrics, "portico_execution_duration_seconds_sum") == 3


def test_the_first_delta_of_an_attempt_is_timed_and_no_other(metrics: MetricsSink) -> None:
    metrics.publish("a", stored_events(STARTED))
    for late in (1.5, 2.5, 3.5):
        metrics.publish("a", [live_delta(DELTA, EPOCH + late)])
    assert _value(metrics, "portico_inference_first_delta_seconds_count", provider="primary") == 1
    assert _value(metrics, "portico_inference_first_delta_seconds_sum", provider="primary") == pytest.approx(0.5)
    assert _value(metrics, "portico_inference_deltas_total") == 3


def test_a_tool_call_is_counted_by_its_result(metrics: MetricsSink) -> None:
    metrics.publish("a", stored_events(TOOL_ENDED))
    labels = {"tool": "roll_dice", "success": "false", "code": "TOOL_TIMEOUT"}
    assert _value(metrics, "portico_tool_calls_total", **labels) == 1


def test_unknown_names_are_replaced(metrics: MetricsSink) -> None:
    before = len(_samples(metrics))
    for number in range(50):
        metrics.publish("a", stored_events(events.ToolEnd(f"tool-{number}", "c", 1.0, success=True, error_code=None)))
    assert _value(metrics, "portico_tool_calls_total", tool="unknown", success="true", code="none") == 50
    assert len(_samples(metrics)) - before < 40


def test_an_attempt_without_a_start_event_is_counted_without_its_provider(metrics: MetricsSink) -> None:
    metrics.publish("a", stored_events(ENDED))
    assert _value(metrics, "portico_inferences_total", provider="other") == 1


def test_executions_in_flight_are_read_when_metrics_are_rendered(metrics: MetricsSink) -> None:
    running = [1]
    metrics.observe_gauge("portico_executions_in_flight", lambda: running[0])
    assert _value(metrics, "portico_executions_in_flight") == 1
    running[0] = 7
    assert _value(metrics, "portico_executions_in_flight") == 7


def test_i10_state_of_running_executions_is_bounded_and_dropped_at_their_end(metrics: MetricsSink) -> None:
    for number in range(30_000):
        metrics.publish(str(number), stored_events(STARTED))
    for number in range(30_000):
        metrics.publish(str(number), stored_events(ENDED, FAILED))
    assert _value(metrics, "portico_inferences_total", provider="primary") == 20_000
    assert _value(metrics, "portico_inferences_total", provider="other") == 10_000


def test_every_type_of_event_is_accepted(metrics: MetricsSink) -> None:
    assert {type(event) for event in EVENTS} | {type(DELTA), events.ToolContent} == set(EVENT_TYPES)
    _tell_everything(metrics)


def test_step_attempts_are_counted_by_type_and_status(metrics: MetricsSink) -> None:
    failed = events.StepEnd("infer", 1, StepStatus.FAILED, 500.0, Code.CONSTRAINT_JSON_INVALID)
    done = events.StepEnd("infer", 2, StepStatus.COMPLETED, 1500.0, None)
    metrics.publish("a", stored_events(failed, done))
    assert _value(metrics, "portico_steps_total", step_type="infer", status="completed", code="none") == 1
    assert _value(metrics, "portico_steps_total", status="failed", code="CONSTRAINT_JSON_INVALID") == 1
    assert _value(metrics, "portico_step_duration_seconds_sum", step_type="infer") == pytest.approx(2)


def test_an_unknown_step_type_adds_no_series(metrics: MetricsSink) -> None:
    for number in range(50):
        metrics.publish("a", stored_events(events.StepEnd(f"type-{number}", 1, StepStatus.COMPLETED, 1.0, None)))
    assert _value(metrics, "portico_steps_total", step_type="other") == 50


def test_inherited_events_are_not_counted_again(metrics: MetricsSink) -> None:
    metrics.publish("origin", plain_chat())
    before = _samples(metrics)
    metrics.publish("fork", [InheritedEvent(*item) for item in plain_chat()])
    assert _samples(metrics) == before
