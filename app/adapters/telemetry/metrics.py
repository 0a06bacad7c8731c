"""Prometheus series, fed by events and a few calls of the composition root.

`SERIES` is the whole list, `closed_sets` says which values a label may have. Anything else is folded, so that no
client, model or provider can add a series: ids, model names and error texts are never labels. A label's child is bound
once and then found by its values, because `labels()` is dearer than counting. What a fork keeps was counted before.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, get_args

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from app.domain import fallback, lifecycle
from app.domain.contract.response import StepStatus
from app.domain.failures import Code
from app.domain.journal import events
from app.domain.journal.events import FinishReason, InheritedEvent, LiveDelta, StoredEvent
from app.domain.plan.plan import StepType

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_MOST_RUNS = 20_000
_BEGINNINGS = frozenset({None, lifecycle.State.SUSPENDED})
NO_VALUE = "none"


@dataclass(frozen=True, slots=True)
class Series:
    """One metric: its name, its labels, what it means, and its buckets where it is a histogram."""

    name: str
    kind: type[Counter] | type[Gauge] | type[Histogram]
    labels: tuple[str, ...]
    description: str
    buckets: tuple[float, ...] = ()


# fmt: off
SERIES: tuple[Series, ...] = (
    Series("portico_executions_total", Counter, ("mode", "state", "code"),
           "Executions that ended or were suspended here, by their state then and the code of their failure"),
    Series("portico_execution_duration_seconds", Histogram, ("mode",),
           "From INIT, or a resume, to the end or the next suspension", _SECONDS),
    Series("portico_executions_in_flight", Gauge, (),
           "Executions that run right now"),
    Series("portico_requests_refused_total", Counter, ("code",),
           "Requests that never became an execution"),
    Series("portico_inferences_total", Counter, ("provider", "finish_reason"),
           "Attempts on a provider that ended"),
    Series("portico_inference_duration_seconds", Histogram, ("provider",),
           "One attempt on a provider", _SECONDS),
    Series("portico_inference_first_delta_seconds", Histogram, ("provider",),
           "From the start of a streamed attempt to its first delta", _SECONDS),
    Series("portico_inference_deltas_total", Counter, (),
           "Pieces of answers published live"),
    Series("portico_inference_retractions_total", Counter, (),
           "Segments whose streamed text was declared void"),
    Series("portico_tokens_total", Counter, ("provider", "direction"),
           "Tokens read and written, all attempts"),
    Series("portico_tool_calls_total", Counter, ("tool", "success", "code"),
           "Attempts at tool calls that ended"),
    Series("portico_tool_duration_seconds", Histogram, ("tool",),
           "One attempt at a tool call", _SECONDS),
    Series("portico_steps_total", Counter, ("step_type", "status", "code"),
           "Attempts at steps of plans that ended"),
    Series("portico_step_duration_seconds", Histogram, ("step_type",),
           "One attempt at a step of a plan", _SECONDS),
    Series("portico_lifecycle_transitions_total", Counter, ("from_state", "to_state"),
           "Edges of the lifecycle taken"),
    Series("portico_fallback_transitions_total", Counter, ("from_fsm", "to_fsm", "fsm_event"),
           "Edges of the fallback machine taken"),
    Series("portico_records_dropped_total", Counter, (),
           "Executions that ended in memory and whose record was not kept"),
    Series("portico_readers_dropped_total", Counter, (),
           "Live readers dropped because they fell behind"),
    Series("portico_bugs_total", Counter, ("place",),
           "Exceptions that nobody expected, in an execution or in a telemetry sink"),
    Series("portico_event_loop_lag_seconds", Histogram, (),
           "How late the event loop runs what is due", _LAG_SECONDS),
)
# fmt: on


def label_values(providers: Collection[str], tools: Collection[str]) -> Mapping[str, frozenset[str]]:
    """The values each label may have, beside the one that stands for all others."""
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
        "tool": frozenset(tools),
        "success": frozenset({"true", "false"}),
        "step_type": frozenset(StepType),
        "status": frozenset(StepStatus),
        "direction": frozenset({"in", "out"}),
        "place": frozenset({"execution", "sink", "writer"}),
    }


def other_value(label: str) -> str:
    """What stands for all values outside the closed set of that label."""
    return "unknown" if label == "tool" else "other"


_Child = TypeVar("_Child")


class _Count:
    """One child of a counter, which learns what was counted when somebody asks for it.

    A counter takes a lock and six calls whenever it is told; this happens a dozen times a request, in one thread.
    """

    __slots__ = ("_counter", "_untold")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._untold = 0.0

    def inc(self, amount: float = 1) -> None:
        self._untold += amount

    def tell(self) -> None:
        self._counter.inc(self._untold)
        self._untold = 0.0


class _Family(dict[tuple[str, ...], _Child], Generic[_Child]):
    """The children of one labelled metric by their label values, in the order of the table.

    What stands outside the closed sets is found folded, and never kept.
    """

    def __init__(self, bind: Callable[..., _Child], sets: Sequence[tuple[str, frozenset[str]]]) -> None:
        self._bind = bind
        self._sets = sets

    def __missing__(self, values: tuple[str, ...]) -> _Child:
        kept = tuple(
            str(value) if value in known else other_value(label)
            for value, (label, known) in zip(values, self._sets, strict=True)
        )
        if kept not in self:
            self[kept] = self._bind(*kept)
        return self[kept]


class _Book:
    """Makes the metrics of the table on a registry of its own."""

    def __init__(self, sets: Mapping[str, frozenset[str]]) -> None:
        self.registry = CollectorRegistry()
        self.counts: list[_Count] = []
        self._sets = sets
        self._table = {series.name: series for series in SERIES}
        ProcessCollector(registry=self.registry)

    def counter(self, name: str) -> _Count:
        return self._count(self._counter(name))

    def gauge(self, name: str) -> Gauge:
        series = self._table[name]
        return Gauge(name, series.description, series.labels, registry=self.registry)

    def histogram(self, name: str) -> Histogram:
        series = self._table[name]
        return Histogram(name, series.description, series.labels, buckets=series.buckets, registry=self.registry)

    def counters(self, name: str) -> _Family[_Count]:
        counter = self._counter(name)
        return _Family(lambda *values: self._count(counter.labels(*values)), self._closed(name))

    def histograms(self, name: str) -> _Family[Histogram]:
        return _Family(self.histogram(name).labels, self._closed(name))

    def _counter(self, name: str) -> Counter:
        series = self._table[name]
        return Counter(name, series.description, series.labels, registry=self.registry)

    def _count(self, counter: Counter) -> _Count:
        self.counts.append(_Count(counter))
        return self.counts[-1]

    def _closed(self, name: str) -> list[tuple[str, frozenset[str]]]:
        return [(label, self._sets[label]) for label in self._table[name].labels]


@dataclass(slots=True)
class _Attempt:
    """An attempt on a provider that has not ended; `silent` until its first delta."""

    provider: str
    began: float
    silent: bool = True


@dataclass(slots=True)
class _Run:
    """What later events of one execution are measured against; `attempts` by segment."""

    began: float | None = None
    attempts: dict[str, _Attempt] = field(default_factory=dict)


class MetricsSink:
    """Implements `ports.EventSink`; what has no event is told by the methods after `publish`.

    `providers` and `tools` are the configured names. Executions that end without a word here, because another
    process took them over, are forgotten when too many are held.
    """

    def __init__(self, *, providers: Collection[str], tools: Collection[str]) -> None:
        book = _Book(label_values(providers, tools))
        self._registry, self._counts = book.registry, book.counts
        self._runs: dict[str, _Run] = {}
        self._executions = book.counters("portico_executions_total")
        self._execution_seconds = book.histograms("portico_execution_duration_seconds")
        self._in_flight = book.gauge("portico_executions_in_flight")
        self._refused = book.counters("portico_requests_refused_total")
        self._inferences = book.counters("portico_inferences_total")
        self._inference_seconds = book.histograms("portico_inference_duration_seconds")
        self._first_delta_seconds = book.histograms("portico_inference_first_delta_seconds")
        self._deltas = book.counter("portico_inference_deltas_total")
        self._retractions = book.counter("portico_inference_retractions_total")
        self._tokens = book.counters("portico_tokens_total")
        self._tool_calls = book.counters("portico_tool_calls_total")
        self._tool_seconds = book.histograms("portico_tool_duration_seconds")
        self._steps = book.counters("portico_steps_total")
        self._step_seconds = book.histograms("portico_step_duration_seconds")
        self._lifecycle = book.counters("portico_lifecycle_transitions_total")
        self._fallback = book.counters("portico_fallback_transitions_total")
        self._records_dropped = book.counter("portico_records_dropped_total")
        self._readers_dropped = book.counter("portico_readers_dropped_total")
        self._bugs = book.counters("portico_bugs_total")
        self._lag = book.histogram("portico_event_loop_lag_seconds")
        self._handlers: Mapping[type[Any], Callable[[str, float, Any], None]] = {
            events.LifecycleTransition: self._moved,
            events.FallbackTransition: self._fell_back,
            events.InferenceStart: self._inference_began,
            events.InferenceDelta: self._streamed,
            events.InferenceRetracted: self._retracted,
            events.InferenceEnd: self._inference_ended,
            events.ToolEnd: self._tool_ended,
            events.StepEnd: self._step_ended,
            events.ExecutionSuspended: self._ended,
            events.ExecutionCompleted: self._ended,
            events.ExecutionFailed: self._ended,
            events.ExecutionCancelled: self._ended,
        }

    def publish(self, execution_id: str, items: Sequence[StoredEvent | LiveDelta]) -> None:
        for item in items:
            handler = self._handlers.get(type(item.event))
            if handler is not None and type(item) is not InheritedEvent:
                handler(execution_id, item.at, item.event)

    def count_refused(self, code: Code) -> None:
        """A request was refused before it became an execution."""
        self._refused[code,].inc()

    def count_dropped_record(self) -> None:
        """The record of an execution that ended in memory was not kept."""
        self._records_dropped.inc()

    def count_dropped_reader(self) -> None:
        """A live reader fell behind."""
        self._readers_dropped.inc()

    def count_bug(self, place: Literal["execution", "sink", "writer"]) -> None:
        """Something raised that nobody expected."""
        self._bugs[place,].inc()

    def observe_lag(self, seconds: float) -> None:
        """The event loop was that late."""
        self._lag.observe(seconds)

    def observe_in_flight(self, read: Callable[[], int]) -> None:
        """Asks `read` for the executions in flight whenever metrics are rendered."""
        self._in_flight.set_function(read)

    def render(self) -> tuple[bytes, str]:
        """All series in the text format, and its content type."""
        for count in self._counts:
            count.tell()
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def _run(self, execution_id: str) -> _Run:
        run = self._runs.get(execution_id)
        if run is None:
            run = self._runs[execution_id] = _Run()
            if len(self._runs) > _MOST_RUNS:
                del self._runs[next(iter(self._runs))]
        return run

    def _attempts(self, execution_id: str) -> dict[str, _Attempt]:
        run = self._runs.get(execution_id)
        return {} if run is None else run.attempts

    def _moved(self, execution_id: str, at: float, event: events.LifecycleTransition) -> None:
        self._lifecycle[event.from_state or NO_VALUE, event.to_state].inc()
        if event.from_state in _BEGINNINGS:
            self._run(execution_id).began = at

    def _fell_back(self, _execution_id: str, _at: float, event: events.FallbackTransition) -> None:
        self._fallback[event.from_state, event.to_state, event.fsm_event].inc()

    def _inference_began(self, execution_id: str, at: float, event: events.InferenceStart) -> None:
        self._run(execution_id).attempts[event.segment] = _Attempt(event.provider, at)

    def _streamed(self, execution_id: str, at: float, event: events.InferenceDelta) -> None:
        self._deltas.inc()
        if event.offset:
            return
        attempt = self._attempts(execution_id).get(event.segment)
        if attempt is not None and attempt.silent:
            attempt.silent = False
            self._first_delta_seconds[attempt.provider,].observe(at - attempt.began)

    def _retracted(self, execution_id: str, _at: float, event: events.InferenceRetracted) -> None:
        self._attempts(execution_id).pop(event.segment, None)
        self._retractions.inc()

    def _inference_ended(self, execution_id: str, _at: float, event: events.InferenceEnd) -> None:
        attempt = self._attempts(execution_id).pop(event.segment, None)
        provider = NO_VALUE if attempt is None else attempt.provider
        self._inferences[provider, event.finish_reason].inc()
        self._inference_seconds[provider,].observe(event.duration_ms / 1000)
        self._tokens[provider, "in"].inc(event.tokens_in)
        self._tokens[provider, "out"].inc(event.tokens_out)

    def _tool_ended(self, _execution_id: str, _at: float, event: events.ToolEnd) -> None:
        success = "true" if event.success else "false"
        self._tool_calls[event.tool_name, success, event.error_code or NO_VALUE].inc()
        self._tool_seconds[event.tool_name,].observe(event.duration_ms / 1000)

    def _step_ended(self, _execution_id: str, _at: float, event: events.StepEnd) -> None:
        self._steps[event.step_type, event.status, event.error_code or NO_VALUE].inc()
        self._step_seconds[event.step_type,].observe(event.duration_ms / 1000)

    def _ended(self, execution_id: str, at: float, event: events.TerminalEvent | events.ExecutionSuspended) -> None:
        response = event.response
        code = NO_VALUE if response.error is None else response.error.code
        self._executions[response.mode, response.state, code].inc()
        run = self._runs.pop(execution_id, None)
        if run is not None and run.began is not None:
            self._execution_seconds[response.mode,].observe(at - run.began)
