"""Prometheus metrics: the rendered series are those of the table, and no input can add one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from portico.adapters.telemetry.genai import ModelName
from portico.adapters.telemetry.metrics.catalogue import SERIES, label_values, other_value
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.domain import fallback
from portico.domain.contract.response import StepStatus
from portico.domain.failures import Code
from portico.domain.journal import events
from portico.domain.journal.events import EVENT_TYPES, Event, InheritedEvent, StoredEvent
from portico.domain.lifecycle import Mode, State
from tests.support.examples import (
    CANCELLED,
    COMPLETED,
    DELTA,
    ENDED,
    EVENTS,
    FAILED,
    STARTED,
    SUSPENDED,
    TOOL_ENDED,
    correlation,
    plain_chat,
    stored_events,
)
from tests.support.prometheus import promtool
from tests.support.virtual_time import EPOCH

MODELS = {"primary": ModelName.of("openai", "gpt-4o-mini"), "backup": ModelName.of("gemini", "gemini-3")}
PROVIDERS = tuple(MODELS)
TOOLS = ("roll_dice", "calculate")
OURS = ("portico_", "gen_ai_")
_SUFFIXES = ("_bucket", "_sum", "_count")
_CORRELATION = correlation()
_LABEL_VALUES = {
    "provider": PROVIDERS[0],
    "breaker": "open",
    "limit": "concurrency",
    "level": "landlock",
    "deployment": "eu",
    "state": "resting",
    "outcome": "answered",
    "result": "delivered",
}
_READ_COUNTERS = frozenset({"portico_sandbox_runs_total", "portico_webhook_deliveries_total"})


class _ResponseOfJunk:
    """A response whose mode, state and code are what it is given."""

    def __init__(self, junk: str) -> None:
        self.mode = self.state = self.code = junk
        self.error = self


def _event(event: Any) -> StoredEvent:
    return StoredEvent(1, EPOCH, "0", _CORRELATION, event)


@pytest.fixture
def metrics() -> MetricsSink:
    return MetricsSink(models=MODELS, tools=TOOLS, currency="EUR", deployments={PROVIDERS[0]: ("eu",)})


def _samples(metrics: MetricsSink) -> list[tuple[str, Mapping[str, str], float]]:
    body, _ = metrics.render()
    families = text_string_to_metric_families(body.decode())
    return [(s.name, s.labels, s.value) for family in families for s in family.samples if s.name.startswith(OURS)]


def _value(metrics: MetricsSink, name: str, **labels: str) -> float:
    return sum(value for found, given, value in _samples(metrics) if found == name and labels.items() <= given.items())


def _plan() -> list[StoredEvent]:
    """Return the log of a plan that failed."""
    response = FAILED.response.model_copy(update={"mode": Mode.PLAN})
    return stored_events(events.LifecycleTransition(None, State.INIT, 1, "accepted"), events.ExecutionFailed(response))


def _tell_everything(metrics: MetricsSink) -> None:
    """Give every series of the table at least one sample."""
    metrics.publish("a", stored_events(STARTED))
    metrics.streamed("a", STARTED.segment, EPOCH + 1.5, 2)
    metrics.publish("b", plain_chat())
    metrics.publish("c", _plan())
    for event in EVENTS:
        metrics.publish("a", stored_events(event))
    states = fallback.State.ATTEMPTING, fallback.State.SUCCEEDED, fallback.Event.PROVIDER_SUCCESS
    move = events.FallbackTransition(*states, PROVIDERS[0], "m", 0, "answered", "0/0", "eu")
    metrics.publish("a", stored_events(move))
    metrics.count_refused(Code.REQUEST_INVALID)
    metrics.count_limited("tenant-tokens")
    metrics.count_dropped("reader")
    metrics.count_bug("execution")
    metrics.count_bug("sink")
    metrics.count_unknown_frames(PROVIDERS[0], 2)
    metrics.observe_lag(0.01)
    for series in SERIES:
        if series.type == "gauge" or series.name in _READ_COUNTERS:
            metrics.observe(series.name, lambda: 3, *(_LABEL_VALUES[label] for label in series.labels))


def test_every_series_of_the_table_is_rendered_with_its_labels_and_no_other_is(metrics: MetricsSink) -> None:
    _tell_everything(metrics)
    seen: dict[str, set[str]] = {}
    for name, labels, _ in _samples(metrics):
        base = next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
        base = base if base in {series.name for series in SERIES} else f"{base}_total"
        seen.setdefault(base, set()).update(set(labels) - {"le"})
    assert seen == {series.name: set(series.labels) for series in SERIES}


def test_the_series_of_the_field_are_filled(metrics: MetricsSink) -> None:
    metrics.publish("a", plain_chat())
    metrics.publish("b", stored_events(TOOL_ENDED))
    model = {"gen_ai_provider_name": "openai", "gen_ai_request_model": "gpt-4o-mini"}
    usage = "gen_ai_client_inference_usage_{}_tokens_total"
    expected = {"input": 12, "output": 34, "cache_read_input": 5, "cache_write_input": 3, "reasoning_output": 21}
    assert {kind: _value(metrics, usage.format(kind), **model) for kind in expected} == expected
    assert _value(metrics, "gen_ai_client_inference_duration_seconds_sum", **model) == pytest.approx(0.8125)
    assert _value(metrics, "gen_ai_invoke_agent_duration_seconds_sum", error_type="") == 15
    tool = {"gen_ai_tool_name": "roll_dice", "error_type": "TOOL_TIMEOUT"}
    assert _value(metrics, "gen_ai_execute_tool_duration_seconds_count", **tool) == 1
    assert _value(metrics, "portico_cost_total", provider="primary", currency="EUR") == 0.25
    assert _value(metrics, "portico_stage_duration_seconds_count", stage="ContextGuard") == 1


def test_a_plan_is_a_workflow_and_its_failure_has_a_type(metrics: MetricsSink) -> None:
    metrics.publish("a", _plan())
    failed = {"error_type": "INFERENCE_MODEL_UNAVAILABLE"}
    assert _value(metrics, "gen_ai_invoke_workflow_duration_seconds_count", **failed) == 1
    assert _value(metrics, "gen_ai_invoke_agent_duration_seconds_count") == 0


def test_the_model_of_a_provider_with_another_name_is_found_under_it(metrics: MetricsSink) -> None:
    metrics.publish("a", stored_events(replace(STARTED, provider="backup", model="as-sent"), ENDED))
    model = {"gen_ai_provider_name": "gcp.gemini", "gen_ai_request_model": "gemini-3"}
    assert _value(metrics, "gen_ai_client_inference_duration_seconds_count", **model) == 1


def test_the_buckets_are_those_of_the_conventions() -> None:
    buckets = {each.name: each.buckets for each in SERIES}
    for name in ("client_inference_duration", "client_inference_time_to_first_chunk", "execute_tool_duration"):
        assert buckets[f"gen_ai_{name}_seconds"] == pytest.approx([0.01 * 2**n for n in range(14)])
    assert buckets["gen_ai_invoke_agent_duration_seconds"] == pytest.approx([0.1 * 2**n for n in range(13)])
    assert buckets["gen_ai_invoke_workflow_duration_seconds"][-1] == 7200


@pytest.mark.parametrize(("value", "bucket"), [(0.01, "0.01"), (0.0100001, "0.02"), (82.0, "+Inf")])
def test_a_value_is_counted_in_every_bucket_that_it_is_not_above(
    metrics: MetricsSink, value: float, bucket: str
) -> None:
    metrics.publish("a", stored_events(replace(TOOL_ENDED, duration_ms=value * 1000)))
    name = "gen_ai_execute_tool_duration_seconds_bucket"
    counted = [labels["le"] for found, labels, count in _samples(metrics) if found == name and count]
    assert counted[0] == bucket
    assert counted[-1] == "+Inf"


def test_a_clock_that_was_set_back_makes_no_total_smaller(metrics: MetricsSink) -> None:
    begun, ended = stored_events(events.LifecycleTransition(None, State.INIT, 1, "accepted"), COMPLETED)
    metrics.publish("a", [begun, ended._replace(at=begun.at - 3600)])
    assert _value(metrics, "gen_ai_invoke_agent_duration_seconds_sum") == 0
    assert _value(metrics, "portico_execution_duration_seconds_count") == 1


def test_every_label_has_a_closed_set_of_values(metrics: MetricsSink) -> None:
    sets = label_values(MODELS.items(), TOOLS, "EUR", deployments=("eu",))
    _tell_everything(metrics)
    for name, labels, _ in _samples(metrics):
        for label, value in labels.items():
            assert label == "le" or value in {*sets[label], other_value(label)}, name


def test_every_series_has_a_description(metrics: MetricsSink) -> None:
    body = metrics.render()[0].decode()
    for series in SERIES:
        assert f" {series.meaning}" in body
        assert series.name.endswith(
            ("_total", "_seconds", "_in_flight", "_waiting", "_state", "_up", "_bytes", "_abandoned", "_dead")
        )


def test_the_content_type_is_the_text_format(metrics: MetricsSink) -> None:
    assert metrics.render()[1].startswith("text/plain")


def test_the_process_is_measured_too(metrics: MetricsSink) -> None:
    assert b"process_resident_memory_bytes" in metrics.render()[0]


def test_promtool_finds_nothing_to_improve(metrics: MetricsSink) -> None:
    _tell_everything(metrics)
    checked = promtool("check", "metrics", given=metrics.render()[0])
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_promtool_notices_a_bad_series() -> None:
    assert promtool("check", "metrics", given=b"# TYPE a counter\na 1\n").returncode != 0


def test_two_sinks_do_not_share_anything(metrics: MetricsSink) -> None:
    metrics.count_dropped("reader")
    assert _value(MetricsSink(models={}, tools=(), currency="EUR"), "portico_readers_dropped_total") == 0


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


def test_the_first_delta_of_an_attempt_is_timed_and_all_are_counted(metrics: MetricsSink) -> None:
    metrics.publish("a", stored_events(STARTED))
    metrics.streamed("a", STARTED.segment, EPOCH + 1.5, 3)
    assert _value(metrics, "portico_inference_first_delta_seconds_count", provider="primary") == 1
    assert _value(metrics, "portico_inference_first_delta_seconds_sum", provider="primary") == pytest.approx(0.5)
    assert _value(metrics, "portico_inference_deltas_total") == 3


@pytest.mark.parametrize(("segment", "first_at"), [("9/9", EPOCH + 1.5), (STARTED.segment, None)])
def test_deltas_without_a_start_or_a_first_one_are_counted_and_not_timed(
    metrics: MetricsSink, segment: str, first_at: float | None
) -> None:
    metrics.publish("a", stored_events(STARTED))
    metrics.streamed("a", segment, first_at, 3)
    assert _value(metrics, "portico_inference_first_delta_seconds_count") == 0
    assert _value(metrics, "portico_inference_deltas_total") == 3


def test_bugs_are_counted_from_zero_so_that_the_first_one_is_an_increase(metrics: MetricsSink) -> None:
    before = {labels["place"]: value for name, labels, value in _samples(metrics) if name == "portico_bugs_total"}
    assert before == {"execution": 0, "sink": 0, "timer": 0, "writer": 0}


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


JUNK = 100_000


@pytest.mark.parametrize(
    "tell",
    [
        lambda sink, junk: sink.publish("a", [_event(events.ToolEnd(junk, junk, 1.0, success=True, error_code=junk))]),
        lambda sink, junk: sink.publish("a", [_event(events.StepEnd(junk, 1, junk, 1.0, junk))]),
        lambda sink, junk: sink.publish("a", [_event(replace(STARTED, provider=junk, model=junk)), _event(ENDED)]),
        lambda sink, junk: sink.publish(junk, [_event(replace(ENDED, segment=junk, finish_reason=junk))]),
        lambda sink, junk: sink.publish("a", [_event(events.StageEnd(junk, 1.0, junk))]),
        lambda sink, junk: sink.publish("a", [_event(events.LifecycleTransition(junk, junk, 1, junk))]),
        lambda sink, junk: sink.publish("a", [_event(events.ExecutionFailed(_ResponseOfJunk(junk)))]),
        lambda sink, junk: sink.count_refused(junk),
        lambda sink, junk: sink.count_limited(junk),
        lambda sink, junk: sink.count_unknown_frames(junk, 1),
    ],
    ids=["tool", "step", "engine", "segment", "stage", "state", "response", "refusal", "limit", "frames"],
)
def test_a_hundred_thousand_junk_values_make_no_new_series(
    metrics: MetricsSink, tell: Callable[[MetricsSink, Any], None]
) -> None:
    _tell_everything(metrics)
    tell(metrics, "junk")
    before = {(name, *sorted(labels.items())) for name, labels, _ in _samples(metrics)}
    for number in range(JUNK):
        tell(metrics, f"junk-{number}")
    assert {(name, *sorted(labels.items())) for name, labels, _ in _samples(metrics)} == before


def test_executions_in_flight_are_read_when_metrics_are_rendered(metrics: MetricsSink) -> None:
    running = [1]
    metrics.observe("portico_executions_in_flight", lambda: running[0])
    assert _value(metrics, "portico_executions_in_flight") == 1
    running[0] = 7
    assert _value(metrics, "portico_executions_in_flight") == 7


def test_state_of_running_executions_is_bounded_and_dropped_at_their_end(metrics: MetricsSink) -> None:
    for number in range(30_000):
        metrics.publish(str(number), stored_events(STARTED))
    for number in range(30_000):
        metrics.publish(str(number), stored_events(ENDED, FAILED))
    assert _value(metrics, "portico_inferences_total", provider="primary") == 20_000
    assert _value(metrics, "portico_inferences_total", provider="other") == 10_000


def test_every_type_of_event_is_accepted(metrics: MetricsSink) -> None:
    assert {type(event) for event in EVENTS} | {type(DELTA), events.ToolContent, events.ToolProgress} == set(
        EVENT_TYPES
    )
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
