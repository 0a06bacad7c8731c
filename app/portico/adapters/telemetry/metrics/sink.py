"""Event sink that fills the series of the catalogue, from events and from a few calls of the composition root.

Inherited events of a fork are ignored, because its origin counted them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import ceil, log
from types import MappingProxyType
from typing import Any, Final, Literal

from prometheus_client import CONTENT_TYPE_LATEST

from portico.adapters.telemetry.genai import ModelName
from portico.adapters.telemetry.metrics.catalogue import BUG_PLACES, NO_ERROR, NO_VALUE, label_values
from portico.adapters.telemetry.metrics.registry import MetricsRegistry
from portico.capabilities.models.recent_attempts import CLASS_RATIO, CODES, MINUTE_S, RecentAttempts
from portico.domain import fallback, lifecycle
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal import events
from portico.domain.journal.events import InheritedEvent, LiveDelta, StoredEvent
from portico.domain.lifecycle import Mode
from portico.domain.model_call import UNSENT

_MAX_RUNS: Final = 20_000
_STARTING_STATES = frozenset({None, lifecycle.State.SUSPENDED})
_WORKFLOWS = frozenset({Mode.PLAN, Mode.FLOW})
_USAGE = tuple(
    f"gen_ai_client_inference_usage_{kind}_tokens_total"
    for kind in ("input", "output", "cache_read_input", "cache_write_input", "reasoning_output")
)
_UNKNOWN_MODEL = ModelName("other", "other")
_UNANSWERED = frozenset({"error", "cancelled"})
_LOG_RATIO: Final = log(CLASS_RATIO)


@dataclass(slots=True)
class _Attempt:
    """A provider attempt that has not ended, and the configured model that it asks."""

    provider: str
    model: ModelName
    started_at: float
    deployment: str | None = None


@dataclass(slots=True)
class _Run:
    """State of a running execution that later events are measured against; `attempts` by segment."""

    started_at: float | None = None
    attempts: dict[str, _Attempt] = field(default_factory=dict)


class MetricsSink:
    """Implementation of the `EventSink` and `StreamSink` ports that counts events; the methods after `streamed` count
    everything else.

    `models` are those of the configured engines by name, `tools` the names that are registered at the time, `guards`
    the configured names, `step_types` the types of modules, and `deployments` those of each engine. An execution that
    another process took over never ends here; its state is dropped once there are more than 20,000 running executions.
    """

    def __init__(
        self,
        *,
        models: Mapping[str, ModelName],
        tools: Collection[str],
        currency: str,
        step_types: Collection[str] = (),
        guards: Collection[str] = (),
        deployments: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        names = chain.from_iterable(deployments.values())
        self._registry = MetricsRegistry(label_values(models.items(), tools, currency, step_types, guards, names))
        self._totals, self._distributions = self._registry.totals, self._registry.distributions
        for place in BUG_PLACES:
            # An alert compares with a value before, so the first one must not be the first bug.
            self._totals["portico_bugs_total"][(place,)].value = 0
        addresses = [f"{name}/{each}" for name, members in deployments.items() for each in members]
        self.recent_attempts: Mapping[str, RecentAttempts] = {name: RecentAttempts() for name in (*models, *addresses)}
        """The attempts of the last hour by engine, and by `ENGINE/DEPLOYMENT`."""
        self._models = models
        self._currency = currency
        self._runs: dict[str, _Run] = {}
        self._handlers: Mapping[type[Any], Callable[[str, float, Any], None]] = {
            events.LifecycleTransition: self._on_transition,
            events.FallbackTransition: self._on_fallback,
            events.GuardEnd: self._on_guard_end,
            events.InferenceStart: self._on_inference_start,
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
        self.wanted = self._handlers.keys()

    def publish(self, execution_id: str, items: Sequence[StoredEvent | LiveDelta]) -> None:
        for item in items:
            handler = self._handlers.get(type(item.event))
            if handler is not None and type(item) is not InheritedEvent:
                handler(execution_id, item.at, item.event)

    def streamed(self, execution_id: str, segment: str, first_at: float | None, count: int) -> None:
        self._totals["portico_inference_deltas_total"][()].value += count
        run = self._runs.get(execution_id)
        attempt = None if run is None else run.attempts.get(segment)
        if attempt is not None and first_at is not None:
            seconds, name = max(0.0, first_at - attempt.started_at), attempt.model
            self._distributions["portico_inference_first_delta_seconds"][(attempt.provider,)].add(seconds)
            first_chunk = self._distributions["gen_ai_client_inference_time_to_first_chunk_seconds"]
            first_chunk[name.provider, name.model].add(seconds)

    def count_refused(self, code: Code) -> None:
        """Count a request that was refused before an execution began."""
        self._totals["portico_requests_refused_total"][(code,)].value += 1

    def count_limited(self, policy: str) -> None:
        """Count a refusal by the limit of that name."""
        self._totals["portico_limit_refusals_total"][(policy,)].value += 1

    def count_dropped(self, what: Literal["record", "reader"]) -> None:
        """Count an execution that ended in memory and could not be stored, or a subscription whose queue was full."""
        self._totals[f"portico_{what}s_dropped_total"][()].value += 1

    def count_audit_failure(self) -> None:
        """Count a line of the audit log that could not be written."""
        self._totals["portico_audit_failures_total"][()].value += 1

    def count_dropped_spans(self, spans: int) -> None:
        """Count spans that were not exported. Unlike all others it may be called by another thread, one at a time."""
        self._totals["portico_spans_dropped_total"][()].value += spans

    def count_unknown_frames(self, provider: str, frames: int) -> None:
        """Count frames of a provider's stream that were ignored because their form is not known."""
        self._totals["portico_unknown_frames_total"][(provider,)].value += frames

    def count_bug(self, place: Literal["execution", "sink", "timer", "writer"]) -> None:
        """Count an unexpected exception."""
        self._totals["portico_bugs_total"][(place,)].value += 1

    def observe_lag(self, seconds: float) -> None:
        """Record the delay of the event loop."""
        self._distributions["portico_event_loop_lag_seconds"][()].add(seconds)

    def observe(self, name: str, read: Callable[[], float], *labels: str) -> None:
        """Call `read` for the value of the gauge or the counter whenever metrics are rendered."""
        self._registry.read(name, read, *labels)

    def render(self) -> tuple[bytes, str]:
        """Return all metrics in the text format, and its content type."""
        return self._registry.render(), CONTENT_TYPE_LATEST

    def _begin(self, execution_id: str) -> _Run:
        run = self._runs[execution_id] = _Run()
        if len(self._runs) > _MAX_RUNS:
            del self._runs[next(iter(self._runs))]
        return run

    def _on_transition(self, execution_id: str, at: float, event: events.LifecycleTransition) -> None:
        self._totals["portico_lifecycle_transitions_total"][event.from_state or NO_VALUE, event.to_state].value += 1
        if event.from_state in _STARTING_STATES:
            run = self._runs.get(execution_id) or self._begin(execution_id)
            run.started_at = at

    def _on_guard_end(self, _execution_id: str, _at: float, event: events.GuardEnd) -> None:
        self._totals["portico_guards_total"][event.guard, event.action, str(event.tripped).lower()].value += 1

    def _on_fallback(self, _execution_id: str, at: float, event: events.FallbackTransition) -> None:
        self._totals["portico_fallback_transitions_total"][event.from_state, event.to_state, event.fsm_event].value += 1
        if event.from_state != fallback.State.ATTEMPTING or event.provider is None:
            return
        places = [event.provider]
        if event.deployment is not None:
            places.append(f"{event.provider}/{event.deployment}")
            outcome = event.provider, event.deployment, event.reason
            self._totals["portico_deployment_attempts_total"][outcome].value += 1
        if event.reason in UNSENT:
            return
        for place in places:
            recent = self.recent_attempts.get(place)
            if recent is not None:
                minute, code = recent[int(at // MINUTE_S)], CODES.get(event.reason)
                minute.attempts += 1
                if code is not None:
                    minute.failures += 1
                    minute.codes[code] += 1

    def _on_stage_end(self, _execution_id: str, _at: float, event: events.StageEnd) -> None:
        self._distributions["portico_stage_duration_seconds"][(event.stage,)].add(event.duration_ms / 1000)

    def _on_inference_start(self, execution_id: str, at: float, event: events.InferenceStart) -> None:
        model = self._models.get(event.provider, _UNKNOWN_MODEL)
        run = self._runs.get(execution_id) or self._begin(execution_id)
        run.attempts[event.segment] = _Attempt(event.provider, model, at, event.deployment)

    def _on_retraction(self, execution_id: str, _at: float, event: events.InferenceRetracted) -> None:
        run = self._runs.get(execution_id)
        if run is not None:
            run.attempts.pop(event.segment, None)
        self._totals["portico_inference_retractions_total"][()].value += 1

    def _on_inference_end(self, execution_id: str, at: float, event: events.InferenceEnd) -> None:
        run = self._runs.get(execution_id)
        attempt = None if run is None else run.attempts.pop(event.segment, None)
        provider, name = (NO_VALUE, _UNKNOWN_MODEL) if attempt is None else (attempt.provider, attempt.model)
        seconds = event.duration_ms / 1000
        cache = (event.tokens_cached, event.tokens_cache_written)
        usage = (event.tokens_in, event.tokens_out, *cache, event.tokens_reasoning)
        self._totals["portico_inferences_total"][provider, event.finish_reason].value += 1
        self._distributions["portico_inference_duration_seconds"][(provider,)].add(seconds)
        self._totals["portico_tokens_total"][provider, "in"].value += event.tokens_in
        self._totals["portico_tokens_total"][provider, "out"].value += event.tokens_out
        if event.cost is not None:
            self._totals["portico_cost_total"][provider, self._currency].value += event.cost
        self._distributions["gen_ai_client_inference_duration_seconds"][name.provider, name.model].add(seconds)
        if provider in self.recent_attempts and event.finish_reason not in _UNANSWERED:
            duration_class = ceil(log(max(1.0, event.duration_ms)) / _LOG_RATIO)
            self.recent_attempts[provider][int(at // MINUTE_S)].durations[duration_class] += 1
            if attempt is not None and attempt.deployment is not None:
                recent = self.recent_attempts.get(f"{provider}/{attempt.deployment}")
                if recent is not None:
                    recent[int(at // MINUTE_S)].durations[duration_class] += 1
        for series, tokens in zip(_USAGE, usage, strict=True):
            if tokens:
                self._totals[series][name.provider, name.model].value += tokens

    def _on_tool_end(self, _execution_id: str, _at: float, event: events.ToolEnd) -> None:
        success, seconds, code = "true" if event.success else "false", event.duration_ms / 1000, event.error_code
        self._totals["portico_tool_calls_total"][event.tool_name, success, code or NO_VALUE].value += 1
        self._distributions["portico_tool_duration_seconds"][(event.tool_name,)].add(seconds)
        self._distributions["gen_ai_execute_tool_duration_seconds"][event.tool_name, code or NO_ERROR].add(seconds)

    def _on_step_end(self, _execution_id: str, _at: float, event: events.StepEnd) -> None:
        self._totals["portico_steps_total"][event.step_type, event.status, event.error_code or NO_VALUE].value += 1
        self._distributions["portico_step_duration_seconds"][(event.step_type,)].add(event.duration_ms / 1000)

    def _on_suspension(self, execution_id: str, at: float, event: events.ExecutionSuspended) -> None:
        self._count_rest(execution_id, at, event.response)

    def _on_execution_end(self, execution_id: str, at: float, event: events.TerminalEvent) -> None:
        response = event.response
        seconds = self._count_rest(execution_id, at, response)
        kind = "workflow" if response.mode in _WORKFLOWS else "agent"
        if seconds is not None:
            error = NO_ERROR if response.error is None else response.error.code
            self._distributions[f"gen_ai_invoke_{kind}_duration_seconds"][(error,)].add(seconds)

    def _count_rest(self, execution_id: str, at: float, response: SystemResponse) -> float | None:
        """Count an execution that ended or was suspended, and return for how many seconds it ran, if that is known."""
        code = NO_VALUE if response.error is None else response.error.code
        self._totals["portico_executions_total"][response.mode, response.state, code].value += 1
        run = self._runs.pop(execution_id, None)
        if run is None or run.started_at is None:
            return None
        seconds = max(0.0, at - run.started_at)
        self._distributions["portico_execution_duration_seconds"][(response.mode,)].add(seconds)
        return seconds
