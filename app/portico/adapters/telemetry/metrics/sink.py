"""Event sink that fills the series of the catalogue, from events and from a few calls of the composition root.

Inherited events of a fork are ignored, because its origin counted them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from prometheus_client import CONTENT_TYPE_LATEST

from portico.adapters.telemetry.genai import ModelName
from portico.adapters.telemetry.metrics.catalogue import BUG_PLACES, NO_ERROR, NO_VALUE, label_values
from portico.adapters.telemetry.metrics.registry import MetricsRegistry
from portico.domain import lifecycle
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal import events
from portico.domain.journal.events import InheritedEvent, LiveDelta, StoredEvent
from portico.domain.lifecycle import Mode

_MAX_RUNS: Final = 20_000
_STARTING_STATES = frozenset({None, lifecycle.State.SUSPENDED})
_WORKFLOWS = frozenset({Mode.PLAN, Mode.FLOW})
_USAGE = tuple(
    f"gen_ai_client_inference_usage_{kind}_tokens_total"
    for kind in ("input", "output", "cache_read_input", "cache_write_input", "reasoning_output")
)
_UNKNOWN_MODEL = ModelName("other", "other")


@dataclass(slots=True)
class _Attempt:
    """A provider attempt that has not ended, and the configured model that it asks."""

    provider: str
    model: ModelName
    started_at: float
    has_delta: bool = False


@dataclass(slots=True)
class _Run:
    """State of a running execution that later events are measured against; `attempts` by segment."""

    started_at: float | None = None
    attempts: dict[str, _Attempt] = field(default_factory=dict)


class MetricsSink:
    """Implementation of the `EventSink` port that counts events; the methods after `publish` count everything else.

    `models` are those of the configured engines by name, `tools` the names that are registered at the time, `guards`
    the configured names, and `step_types` the types of modules. An execution that another process took over never ends
    here; its state is dropped once there are more than 20,000 running executions.
    """

    def __init__(
        self,
        *,
        models: Mapping[str, ModelName],
        tools: Collection[str],
        currency: str,
        step_types: Collection[str] = (),
        guards: Collection[str] = (),
    ) -> None:
        self._registry = MetricsRegistry(label_values(models.items(), tools, currency, step_types, guards))
        for place in BUG_PLACES:
            # An alert compares with a value before, so the first one must not be the first bug.
            self._registry.count("portico_bugs_total", place, amount=0)
        self._models = models
        self._currency = currency
        self._runs: dict[str, _Run] = {}
        self._handlers: Mapping[type[Any], Callable[[str, float, Any], None]] = {
            events.LifecycleTransition: self._on_transition,
            events.FallbackTransition: self._on_fallback,
            events.GuardEnd: self._on_guard_end,
            events.InferenceStart: self._on_inference_start,
            events.InferenceDelta: self._on_delta,
            events.InferenceRetracted: self._on_retraction,
            events.InferenceEnd: self._on_inference_end,
            events.StageEnd: self._on_stage_end,
            events.ToolEnd: self._on_tool_end,
            events.StepEnd: self._on_step_end,
            events.ExecutionSuspended: self._on_suspension,
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

    def count_dropped_spans(self, spans: int) -> None:
        """Count spans that were not exported. Unlike all others it may be called by another thread, one at a time."""
        self._registry.count("portico_spans_dropped_total", amount=spans)

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

    def _on_guard_end(self, _execution_id: str, _at: float, event: events.GuardEnd) -> None:
        self._registry.count("portico_guards_total", event.guard, event.action, str(event.tripped).lower())

    def _on_fallback(self, _execution_id: str, _at: float, event: events.FallbackTransition) -> None:
        self._registry.count("portico_fallback_transitions_total", event.from_state, event.to_state, event.fsm_event)

    def _on_stage_end(self, _execution_id: str, _at: float, event: events.StageEnd) -> None:
        self._registry.observe("portico_stage_duration_seconds", event.duration_ms / 1000, event.stage)

    def _on_inference_start(self, execution_id: str, at: float, event: events.InferenceStart) -> None:
        model = self._models.get(event.provider, _UNKNOWN_MODEL)
        self._run(execution_id).attempts[event.segment] = _Attempt(event.provider, model, at)

    def _on_delta(self, execution_id: str, at: float, event: events.InferenceDelta) -> None:
        self._registry.count("portico_inference_deltas_total")
        if event.offset:
            return
        attempt = self._attempts(execution_id).get(event.segment)
        if attempt is not None and not attempt.has_delta:
            attempt.has_delta = True
            seconds, name = max(0.0, at - attempt.started_at), attempt.model
            self._registry.observe("portico_inference_first_delta_seconds", seconds, attempt.provider)
            first_chunk = "gen_ai_client_inference_time_to_first_chunk_seconds"
            self._registry.observe(first_chunk, seconds, name.provider, name.model)

    def _on_retraction(self, execution_id: str, _at: float, event: events.InferenceRetracted) -> None:
        self._attempts(execution_id).pop(event.segment, None)
        self._registry.count("portico_inference_retractions_total")

    def _on_inference_end(self, execution_id: str, _at: float, event: events.InferenceEnd) -> None:
        attempt = self._attempts(execution_id).pop(event.segment, None)
        provider, name = (NO_VALUE, _UNKNOWN_MODEL) if attempt is None else (attempt.provider, attempt.model)
        registry, seconds = self._registry, event.duration_ms / 1000
        cache = (event.tokens_cached, event.tokens_cache_written)
        usage = (event.tokens_in, event.tokens_out, *cache, event.tokens_reasoning)
        registry.count("portico_inferences_total", provider, event.finish_reason)
        registry.observe("portico_inference_duration_seconds", seconds, provider)
        registry.count("portico_tokens_total", provider, "in", amount=event.tokens_in)
        registry.count("portico_tokens_total", provider, "out", amount=event.tokens_out)
        if event.cost is not None:
            registry.count("portico_cost_total", provider, self._currency, amount=event.cost)
        registry.observe("gen_ai_client_inference_duration_seconds", seconds, name.provider, name.model)
        for series, tokens in zip(_USAGE, usage, strict=True):
            if tokens:
                registry.count(series, name.provider, name.model, amount=tokens)

    def _on_tool_end(self, _execution_id: str, _at: float, event: events.ToolEnd) -> None:
        success, seconds, code = "true" if event.success else "false", event.duration_ms / 1000, event.error_code
        self._registry.count("portico_tool_calls_total", event.tool_name, success, code or NO_VALUE)
        self._registry.observe("portico_tool_duration_seconds", seconds, event.tool_name)
        self._registry.observe("gen_ai_execute_tool_duration_seconds", seconds, event.tool_name, code or NO_ERROR)

    def _on_step_end(self, _execution_id: str, _at: float, event: events.StepEnd) -> None:
        self._registry.count("portico_steps_total", event.step_type, event.status, event.error_code or NO_VALUE)
        self._registry.observe("portico_step_duration_seconds", event.duration_ms / 1000, event.step_type)

    def _on_suspension(self, execution_id: str, at: float, event: events.ExecutionSuspended) -> None:
        self._count_rest(execution_id, at, event.response)

    def _on_execution_end(self, execution_id: str, at: float, event: events.TerminalEvent) -> None:
        response = event.response
        seconds = self._count_rest(execution_id, at, response)
        kind = "workflow" if response.mode in _WORKFLOWS else "agent"
        if seconds is not None:
            error = NO_ERROR if response.error is None else response.error.code
            self._registry.observe(f"gen_ai_invoke_{kind}_duration_seconds", seconds, error)

    def _count_rest(self, execution_id: str, at: float, response: SystemResponse) -> float | None:
        """Count an execution that ended or was suspended, and return for how many seconds it ran, if that is known."""
        code = NO_VALUE if response.error is None else response.error.code
        self._registry.count("portico_executions_total", response.mode, response.state, code)
        run = self._runs.pop(execution_id, None)
        if run is None or run.started_at is None:
            return None
        seconds = max(0.0, at - run.started_at)
        self._registry.observe("portico_execution_duration_seconds", seconds, response.mode)
        return seconds
