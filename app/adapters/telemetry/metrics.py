"""Prometheus metrics, derived from events and from a few calls of the composition root.

`SERIES` lists every metric, `label_values` the values that each label may have. Any other value is replaced by
`other_value`, so that no client, model or provider can create a time series: ids, model names and error texts are
never label values. Inherited events of a fork are ignored, because its origin counted them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from app.capabilities.models.breaker import BreakerState
from app.domain import fallback, lifecycle
from app.domain.access.limits import LimitKind
from app.domain.contract.response import StepStatus
from app.domain.failures import Code
from app.domain.journal import events
from app.domain.journal.events import FinishReason, InheritedEvent, LiveDelta, StoredEvent
from app.domain.plan.steps import StepType

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_MAX_RUNS = 20_000
_STARTING_STATES = frozenset({None, lifecycle.State.SUSPENDED})
NO_VALUE = "none"


@dataclass(frozen=True, slots=True)
class Series:
    """One metric: its name, labels and description, and the buckets of a histogram."""

    name: str
    kind: type[Counter] | type[Gauge] | type[Histogram]
    labels: tuple[str, ...]
    description: str
    buckets: tuple[float, ...] = ()


# fmt: off
SERIES: tuple[Series, ...] = (
    Series("portico_executions_total", Counter, ("mode", "state", "code"),
           "Executions that ended or were suspended in this process, by state and failure code"),
    Series("portico_execution_duration_seconds", Histogram, ("mode",),
           "Duration from INIT, or from a resume, to the end or the next suspension", _SECONDS),
    Series("portico_executions_in_flight", Gauge, (),
           "Executions that are running"),
    Series("portico_executions_waiting", Gauge, (),
           "Background executions that wait in the queue, on all replicas together; measured every 15 seconds"),
    Series("portico_requests_refused_total", Counter, ("code",),
           "Requests that were refused before an execution began"),
    Series("portico_limit_refusals_total", Counter, ("limit",),
           "Requests and first inferences that a limit of their key or tenant refused"),
    Series("portico_limits_waiting", Gauge, ("limit",),
           "Executions that wait for a slot (`concurrency`), or for tokens or cost of their limits"),
    Series("portico_inferences_total", Counter, ("provider", "finish_reason"),
           "Provider attempts that ended"),
    Series("portico_inference_duration_seconds", Histogram, ("provider",),
           "Duration of a provider attempt", _SECONDS),
    Series("portico_inference_first_delta_seconds", Histogram, ("provider",),
           "Duration from the start of a streamed attempt to its first delta", _SECONDS),
    Series("portico_inference_deltas_total", Counter, (),
           "Deltas that were published"),
    Series("portico_inference_retractions_total", Counter, (),
           "Segments whose streamed text was retracted"),
    Series("portico_unknown_frames_total", Counter, ("provider",),
           "Frames of providers' streams that were ignored because their form is not known"),
    Series("portico_tokens_total", Counter, ("provider", "direction"),
           "Input and output tokens of all provider attempts"),
    Series("portico_tool_calls_total", Counter, ("tool", "success", "code"),
           "Tool call attempts that ended"),
    Series("portico_tool_duration_seconds", Histogram, ("tool",),
           "Duration of a tool call attempt", _SECONDS),
    Series("portico_tool_threads_abandoned", Gauge, (),
           "Threads of blocking tool functions that were given up and have not returned"),
    Series("portico_steps_total", Counter, ("step_type", "status", "code"),
           "Plan step attempts that ended"),
    Series("portico_step_duration_seconds", Histogram, ("step_type",),
           "Duration of a plan step attempt", _SECONDS),
    Series("portico_lifecycle_transitions_total", Counter, ("from_state", "to_state"),
           "Transitions of the execution lifecycle"),
    Series("portico_fallback_transitions_total", Counter, ("from_fsm", "to_fsm", "fsm_event"),
           "Transitions of the fallback state machine"),
    Series("portico_records_dropped_total", Counter, (),
           "Executions that ended in memory and could not be stored"),
    Series("portico_readers_dropped_total", Counter, (),
           "Event subscriptions that were dropped because their queue was full"),
    Series("portico_bugs_total", Counter, ("place",),
           "Unexpected exceptions in an execution, a telemetry sink or the journal writer"),
    Series("portico_breaker_state", Gauge, ("provider", "breaker"),
           "1 for the state that the circuit breaker of the provider is in"),
    Series("portico_storage_up", Gauge, (),
           "1 while the database answers"),
    Series("portico_storage_bytes", Gauge, (),
           "Size of the database, without its write-ahead log; measured every 15 seconds"),
    Series("portico_event_loop_lag_seconds", Histogram, (),
           "Delay of the event loop", _LAG_SECONDS),
)
# fmt: on


def label_values(providers: Collection[str], tools: Collection[str]) -> Mapping[str, Collection[str]]:
    """Return the values that each label may have, apart from `other_value`."""
    return {
        "mode": frozenset(lifecycle.Mode),
        "state": frozenset(lifecycle.State),
        "from_state": frozenset(lifecycle.State) | {NO_VALUE},
        "to_state": frozenset(lifecycle.State),
        "from_fsm": frozenset(fallback.State),
        "to_fsm": frozenset(fallback.State),
        "fsm_event": frozenset(fallback.Event),
        "code": frozenset(Code) | {NO_VALUE},
        "finish_reason": frozenset(get_args(FinishReason)),
        "provider": frozenset(providers),
        "tool": tools,
        "success": frozenset({"true", "false"}),
        "step_type": frozenset(StepType),
        "status": frozenset(StepStatus),
        "direction": frozenset({"in", "out"}),
        "breaker": frozenset(BreakerState),
        "limit": frozenset(prefix + kind for kind in LimitKind for prefix in ("", "tenant-")),
        "place": frozenset({"execution", "sink", "writer"}),
    }


def other_value(label: str) -> str:
    """Return the replacement for values that are not in `label_values`."""
    return "unknown" if label == "tool" else "other"


class _Registry(Collector):
    """The metrics of the table on a Prometheus registry of their own, by name.

    Counters are totals here, which Prometheus collects whenever metrics are rendered: every event is counted, and an
    addition to a dictionary costs a fraction of a child of the library's `Counter`.
    """

    def __init__(self, values: Mapping[str, Collection[str]]) -> None:
        self._registry = CollectorRegistry()
        self._values = values
        self._labels = {series.name: series.labels for series in SERIES}
        self._counters = [each for each in SERIES if each.kind is Counter]
        self._totals: Mapping[str, dict[tuple[str, ...], float]] = {
            each.name: {} if each.labels else {(): 0.0} for each in self._counters
        }
        self._gauges = {
            each.name: Gauge(each.name, each.description, each.labels, registry=self._registry)
            for each in SERIES
            if each.kind is Gauge
        }
        self._histograms = {
            each.name: Histogram(
                each.name, each.description, each.labels, buckets=each.buckets, registry=self._registry
            )
            for each in SERIES
            if each.kind is Histogram
        }
        self._children: dict[tuple[str, tuple[str, ...]], Histogram] = {
            (name, ()): each for name, each in self._histograms.items() if not self._labels[name]
        }
        """The histograms by name and label values, because looking one up costs more than counting."""
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, name: str, *labels: str, amount: float = 1) -> None:
        """Increment a counter; the label values stand in the order of the table."""
        totals = self._totals[name]
        if labels not in totals:
            labels = self._known(name, labels)
        totals[labels] = totals.get(labels, 0.0) + amount

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to a histogram; the label values stand in the order of the table."""
        histogram = self._children.get((name, labels))
        if histogram is None:
            known = self._known(name, labels)
            histogram = self._histograms[name].labels(*known)
            self._children[name, known] = histogram
        histogram.observe(value)

    def read(self, name: str, function: Callable[[], float], *labels: str) -> None:
        """Let a gauge call the function whenever metrics are rendered."""
        gauge = self._gauges[name]
        (gauge.labels(*self._known(name, labels)) if labels else gauge).set_function(function)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counters."""
        for series in self._counters:
            family = CounterMetricFamily(series.name, series.description, labels=series.labels)
            for labels, total in self._totals[series.name].items():
                family.add_metric(labels, total)
            yield family

    def _known(self, name: str, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the label values with `other_value` in place of those that are not in `label_values`."""
        return tuple(
            value if value in self._values[label] else other_value(label)
            for value, label in zip(labels, self._labels[name], strict=True)
        )


@dataclass(slots=True)
class _Attempt:
    """A provider attempt that has not ended."""

    provider: str
    started_at: float
    has_delta: bool = False


@dataclass(slots=True)
class _Run:
    """State of a running execution that later events are measured against; `attempts` by segment."""

    started_at: float | None = None
    attempts: dict[str, _Attempt] = field(default_factory=dict)


class MetricsSink:
    """Implementation of the `EventSink` port that counts events; the methods after `publish` count everything else.

    `providers` are the configured names, `tools` those that are registered at the time. An execution that another
    process took over never ends here; its state is dropped once there are more than 20,000 running executions.
    """

    def __init__(self, *, providers: Collection[str], tools: Collection[str]) -> None:
        self._registry = _Registry(label_values(providers, tools))
        self._runs: dict[str, _Run] = {}
        self._handlers: Mapping[type[Any], Callable[[str, float, Any], None]] = {
            events.LifecycleTransition: self._on_transition,
            events.FallbackTransition: self._on_fallback,
            events.InferenceStart: self._on_inference_start,
            events.InferenceDelta: self._on_delta,
            events.InferenceRetracted: self._on_retraction,
            events.InferenceEnd: self._on_inference_end,
            events.ToolEnd: self._on_tool_end,
            events.StepEnd: self._on_step_end,
            events.ExecutionSuspended: self._on_execution_end,
            events.ExecutionCompleted: self._on_execution_end,
            events.ExecutionFailed: self._on_execution_end,
            events.ExecutionCancelled: self._on_execution_end,
        }

    def publish(self, execution_id: str, items: Sequence[StoredEvent | LiveDelta]) -> None:
        for item in items:
            handler = self._handlers.get(type(item.event))
            if handler is not None and type(item) is not InheritedEvent:
                handler(execution_id, item.at, item.event)

    def count_refused(self, code: Code) -> None:
        """Count a request that was refused before an execution began."""
        self._registry.count("portico_requests_refused_total", code)

    def count_limited(self, policy: str) -> None:
        """Count a refusal by the limit of that name."""
        self._registry.count("portico_limit_refusals_total", policy)

    def count_dropped_record(self) -> None:
        """Count an execution that ended in memory and could not be stored."""
        self._registry.count("portico_records_dropped_total")

    def count_dropped_reader(self) -> None:
        """Count an event subscription whose queue was full."""
        self._registry.count("portico_readers_dropped_total")

    def count_unknown_frames(self, provider: str, frames: int) -> None:
        """Count frames of a provider's stream that were ignored because their form is not known."""
        self._registry.count("portico_unknown_frames_total", provider, amount=frames)

    def count_bug(self, place: Literal["execution", "sink", "writer"]) -> None:
        """Count an unexpected exception."""
        self._registry.count("portico_bugs_total", place)

    def observe_lag(self, seconds: float) -> None:
        """Record the delay of the event loop."""
        self._registry.observe("portico_event_loop_lag_seconds", seconds)

    def observe_gauge(self, name: str, read: Callable[[], float], *labels: str) -> None:
        """Call `read` for the value of the gauge whenever metrics are rendered."""
        self._registry.read(name, read, *labels)

    def render(self) -> tuple[bytes, str]:
        """Return all metrics in the text format, and its content type."""
        return self._registry.render(), CONTENT_TYPE_LATEST

    def _run(self, execution_id: str) -> _Run:
        run = self._runs.get(execution_id)
        if run is None:
            run = self._runs[execution_id] = _Run()
            if len(self._runs) > _MAX_RUNS:
                del self._runs[next(iter(self._runs))]
        return run

    def _attempts(self, execution_id: str) -> dict[str, _Attempt]:
        run = self._runs.get(execution_id)
        return {} if run is None else run.attempts

    def _on_transition(self, execution_id: str, at: float, event: events.LifecycleTransition) -> None:
        self._registry.count("portico_lifecycle_transitions_total", event.from_state or NO_VALUE, event.to_state)
        if event.from_state in _STARTING_STATES:
            self._run(execution_id).started_at = at

    def _on_fallback(self, _execution_id: str, _at: float, event: events.FallbackTransition) -> None:
        self._registry.count("portico_fallback_transitions_total", event.from_state, event.to_state, event.fsm_event)

    def _on_inference_start(self, execution_id: str, at: float, event: events.InferenceStart) -> None:
        self._run(execution_id).attempts[event.segment] = _Attempt(event.provider, at)

    def _on_delta(self, execution_id: str, at: float, event: events.InferenceDelta) -> None:
        self._registry.count("portico_inference_deltas_total")
        if event.offset:
            return
        attempt = self._attempts(execution_id).get(event.segment)
        if attempt is not None and not attempt.has_delta:
            attempt.has_delta = True
            self._registry.observe("portico_inference_first_delta_seconds", at - attempt.started_at, attempt.provider)

    def _on_retraction(self, execution_id: str, _at: float, event: events.InferenceRetracted) -> None:
        self._attempts(execution_id).pop(event.segment, None)
        self._registry.count("portico_inference_retractions_total")

    def _on_inference_end(self, execution_id: str, _at: float, event: events.InferenceEnd) -> None:
        attempt = self._attempts(execution_id).pop(event.segment, None)
        provider = NO_VALUE if attempt is None else attempt.provider
        self._registry.count("portico_inferences_total", provider, event.finish_reason)
        self._registry.observe("portico_inference_duration_seconds", event.duration_ms / 1000, provider)
        self._registry.count("portico_tokens_total", provider, "in", amount=event.tokens_in)
        self._registry.count("portico_tokens_total", provider, "out", amount=event.tokens_out)

    def _on_tool_end(self, _execution_id: str, _at: float, event: events.ToolEnd) -> None:
        success = "true" if event.success else "false"
        self._registry.count("portico_tool_calls_total", event.tool_name, success, event.error_code or NO_VALUE)
        self._registry.observe("portico_tool_duration_seconds", event.duration_ms / 1000, event.tool_name)

    def _on_step_end(self, _execution_id: str, _at: float, event: events.StepEnd) -> None:
        self._registry.count("portico_steps_total", event.step_type, event.status, event.error_code or NO_VALUE)
        self._registry.observe("portico_step_duration_seconds", event.duration_ms / 1000, event.step_type)

    def _on_execution_end(
        self, execution_id: str, at: float, event: events.TerminalEvent | events.ExecutionSuspended
    ) -> None:
        response = event.response
        code = NO_VALUE if response.error is None else response.error.code
        self._registry.count("portico_executions_total", response.mode, response.state, code)
        run = self._runs.pop(execution_id, None)
        if run is not None and run.started_at is not None:
            self._registry.observe("portico_execution_duration_seconds", at - run.started_at, response.mode)
