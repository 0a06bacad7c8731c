"""Catalogue of the Prometheus series: their names, labels, meaning, and what to do when they move.

`label_values` has the values that each label may have. Any other value is replaced by `other_value`, so that no client,
model or provider can create a time series: ids, model names as sent and error texts are never label values.

Series named `gen_ai_*` are those of the semantic conventions for generative AI, in the names that OpenTelemetry's
translation to Prometheus gives them. An absent `error_type` is an empty text, which Prometheus does not tell apart.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, get_args

from portico.adapters.telemetry.genai import ModelName
from portico.capabilities.models.deployments import DeploymentState
from portico.capabilities.models.health import BreakerState
from portico.domain import fallback, lifecycle
from portico.domain.access.limits import LimitKind
from portico.domain.context.guards import INPUT_RULES, GuardAction
from portico.domain.contract.response import StepStatus
from portico.domain.failures import Code
from portico.domain.journal.events import FinishReason
from portico.domain.model_call import AttemptFailureReason
from portico.domain.plan.steps import StepType
from portico.domain.tools import IsolationLevel
from portico.domain.value import value

NO_VALUE: Final = "none"
NO_ERROR: Final = ""
BUG_PLACES: Final = ("execution", "sink", "timer", "writer")
STAGES: Final = ("AuthResolve", "HistorySanitize", "ContextGuard", "ToolSplit", "Execute", "FailoverDecide")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_STAGE_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_INFERENCE_SECONDS = tuple(round(0.01 * 2**power, 2) for power in range(14))
_AGENT_SECONDS = tuple(round(0.1 * 2**power, 1) for power in range(13))
_WORKFLOW_SECONDS = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)
_MODEL = ("gen_ai_provider_name", "gen_ai_request_model")
SeriesType = Literal["counter", "gauge", "histogram"]


@value
class Series:
    """One series: its name, type and labels, its meaning, what to do when it moves, and a histogram's buckets."""

    name: str
    type: SeriesType
    labels: tuple[str, ...]
    meaning: str
    advice: str
    buckets: tuple[float, ...] = ()


# fmt: off
SERIES: Final[tuple[Series, ...]] = (
    Series("portico_executions_total", "counter", ("mode", "state", "code"),
           "Executions that ended or were suspended in this process, by state and failure code",
           "If the share of `ERROR` rises, look the `code` up in [errors](errors.md)"),
    Series("portico_execution_duration_seconds", "histogram", ("mode",),
           "Duration from INIT, or from a resume, to the end or the next suspension",
           "If it rises, compare the stages and the inferences to find where the time goes", _SECONDS),
    Series("portico_stage_duration_seconds", "histogram", ("stage",),
           "Duration of a stage of the pipeline; `Execute` is the work itself",
           "If a stage other than `Execute` rises, the service or its database is overloaded", _STAGE_SECONDS),
    Series("portico_executions_in_flight", "gauge", (),
           "Executions that are running",
           "Near `server.max_in_flight` requests are refused: add replicas or raise the limit"),
    Series("portico_executions_waiting", "gauge", (),
           "Background executions that wait in the queue, on all replicas together; measured every 15 seconds",
           "If it grows without end, add replicas or raise `queue.at_once`"),
    Series("portico_requests_refused_total", "counter", ("code",),
           "Requests that were refused before an execution began",
           "`REQUEST_OVERLOADED` asks for replicas, `ACCESS_*` for a look at the callers' keys"),
    Series("portico_limit_refusals_total", "counter", ("limit",),
           "Requests and first inferences that a limit of their key or tenant refused",
           "Find the caller in the logs (`request.refused`); raise its limit or let it wait"),
    Series("portico_limits_waiting", "gauge", ("limit",),
           "Executions that wait for a slot (`concurrency`), or for tokens or cost of their limits",
           "If it stays high, the limit is too low for the load of a tenant"),
    Series("portico_inferences_total", "counter", ("provider", "finish_reason"),
           "Provider attempts that ended",
           "If `error` rises, see the provider's status; if `length` does, raise `max_tokens`"),
    Series("portico_inference_duration_seconds", "histogram", ("provider",),
           "Duration of a provider attempt",
           "If it rises for one provider, put another one before it in the route", _SECONDS),
    Series("portico_inference_first_delta_seconds", "histogram", ("provider",),
           "Duration from the start of a streamed attempt to its first delta",
           "If it rises for one provider, it is queueing: lower `max_connections` or change the route", _SECONDS),
    Series("portico_inference_deltas_total", "counter", (),
           "Deltas that were published",
           "None: it shows how much is streamed"),
    Series("portico_inference_retractions_total", "counter", (),
           "Segments whose streamed text was retracted",
           "If it rises, streams break off: look at failovers and at restarts of replicas"),
    Series("portico_unknown_frames_total", "counter", ("provider",),
           "Frames of providers' streams that were ignored because their form is not known",
           "The provider has changed its API: look for a newer release"),
    Series("portico_tokens_total", "counter", ("provider", "direction"),
           "Input and output tokens of all provider attempts",
           "If it rises faster than the executions, histories or tool results have grown"),
    Series("portico_cost_total", "counter", ("provider", "currency"),
           "Cost of all provider attempts by the configured prices, in `telemetry.currency`",
           "If it rises faster than the executions, see tokens, failovers and tool rounds; limit tenants by `cost`"),
    Series("portico_tool_calls_total", "counter", ("tool", "success", "code"),
           "Tool call attempts that ended",
           "If failures of one tool rise, look its `code` up in [errors](errors.md)"),
    Series("portico_tool_duration_seconds", "histogram", ("tool",),
           "Duration of a tool call attempt",
           "If it rises to the tool's timeout, look at what the tool calls", _SECONDS),
    Series("portico_tool_threads_abandoned", "gauge", (),
           "Threads of blocking tool functions that were given up and have not returned",
           "If it does not go back to 0, a tool hangs: give its own calls a timeout, then restart"),
    Series("portico_sandbox_runs_total", "counter", ("level",),
           "Programs of tools that were started, by their level of isolation",
           "If `limits` rises, `portico check` says why no stronger level starts"),
    Series("portico_guards_total", "counter", ("guard", "action", "tripped"),
           "Guards of executions that ended; a request that one refuses at once counts as refused",
           "If a guard trips more often, look at what its clients send, or at its patterns"),
    Series("portico_steps_total", "counter", ("step_type", "status", "code"),
           "Plan step attempts that ended",
           "If failures of one type rise, look the `code` up in [errors](errors.md)"),
    Series("portico_step_duration_seconds", "histogram", ("step_type",),
           "Duration of a plan step attempt",
           "If it rises, compare it with inferences and tools", _SECONDS),
    Series("portico_lifecycle_transitions_total", "counter", ("from_state", "to_state"),
           "Transitions of the execution lifecycle",
           "If `VALIDATE` to `EXECUTE` rises, models miss the required format: see [modes](modes.md)"),
    Series("portico_fallback_transitions_total", "counter", ("from_fsm", "to_fsm", "fsm_event"),
           "Transitions of the fallback state machine",
           "If transitions to `SELECTING` from another state than `IDLE` rise, a provider fails: see its breaker"),
    Series("portico_records_dropped_total", "counter", (),
           "Executions that ended in memory and could not be stored",
           "The database does not keep up: see `portico_storage_up` and its disk"),
    Series("portico_readers_dropped_total", "counter", (),
           "Event subscriptions that were dropped because their queue was full",
           "Clients read too slowly; they continue with `Last-Event-ID`"),
    Series("portico_spans_dropped_total", "counter", (),
           "Spans that were not exported: the queue was full, or the collector did not take them",
           "See the log line `traces.unavailable`; if the collector is slow, lower `telemetry.sample_ratio`"),
    Series("portico_bugs_total", "counter", ("place",),
           "Unexpected exceptions in an execution, a telemetry sink, a timer or the journal writer",
           "Always a defect: report the log line `execution.bug`, `sink.fault`, `timer.fault` or `writer.fault`"),
    Series("portico_audit_failures_total", "counter", (),
           "Lines of the audit log that could not be written: changes were refused, reads were answered",
           "Make room for `audit.file`, or make its folder writable"),
    Series("portico_webhook_deliveries_total", "counter", ("result",),
           "Attempts to deliver webhooks: `delivered`, `failed` if it is tried again, `dead` if not",
           "If `failed` or `dead` rises, see `last_error` of `GET /v1/webhooks/deliveries`"),
    Series("portico_webhooks_dead", "gauge", (),
           "Deliveries of webhooks that are dead; counted every 15 seconds",
           "Mend the receiver, then retry them: `portico webhooks deliveries --state dead`"),
    Series("portico_breaker_state", "gauge", ("provider", "breaker"),
           "1 for the state that the circuit breaker of the provider is in",
           "While `open` is 1 the provider is not asked: see its status and credentials"),
    Series("portico_deployment_state", "gauge", ("provider", "deployment", "state"),
           "1 for the state that the deployment of the provider is in",
           "While `refused` is 1 its key is refused: replace it. While `ejected` is 1 see the provider's status"),
    Series("portico_deployment_attempts_total", "counter", ("provider", "deployment", "outcome"),
           "Attempts on a deployment that ended, by the reason for which they failed, or `answered`",
           "If `rate_limited` or `limited` rises, add a deployment or raise its limits"),
    Series("portico_storage_up", "gauge", (),
           "1 while the database answers",
           "At 0 the service is not ready: see the database and the log line `storage.fault`"),
    Series("portico_storage_bytes", "gauge", (),
           "Size of the database, without its write-ahead log; measured every 15 seconds",
           "Before the disk is full, lower `storage.event_retention_days`"),
    Series("portico_event_loop_lag_seconds", "histogram", (),
           "Delay of the event loop",
           "Above 0.1 s the process is overloaded or a module of yours blocks it", _LAG_SECONDS),
    Series("gen_ai_client_inference_duration_seconds", "histogram", _MODEL,
           "Duration of a provider attempt, by model",
           "As `portico_inference_duration_seconds`", _INFERENCE_SECONDS),
    Series("gen_ai_client_inference_time_to_first_chunk_seconds", "histogram", _MODEL,
           "Duration from the start of a streamed attempt to its first delta, by model",
           "As `portico_inference_first_delta_seconds`", _INFERENCE_SECONDS),
    Series("gen_ai_client_inference_usage_input_tokens_total", "counter", _MODEL,
           "Input tokens, with those read from and written to a cache",
           "As `portico_tokens_total`"),
    Series("gen_ai_client_inference_usage_output_tokens_total", "counter", _MODEL,
           "Output tokens, with those of reasoning",
           "As `portico_tokens_total`"),
    Series("gen_ai_client_inference_usage_cache_read_input_tokens_total", "counter", _MODEL,
           "Input tokens that the provider read from its cache",
           "If their share falls, the beginning of the prompts changes from call to call"),
    Series("gen_ai_client_inference_usage_cache_write_input_tokens_total", "counter", _MODEL,
           "Input tokens that the provider wrote to its cache",
           "If more are written than read, the cache does not pay"),
    Series("gen_ai_client_inference_usage_reasoning_output_tokens_total", "counter", _MODEL,
           "Output tokens that were used for reasoning",
           "If it rises, lower the reasoning effort in `hints.options`"),
    Series("gen_ai_invoke_agent_duration_seconds", "histogram", ("error_type",),
           "Duration of an execution in mode chat, structured or redundant, from INIT or a resume to its end",
           "As `portico_execution_duration_seconds`", _AGENT_SECONDS),
    Series("gen_ai_invoke_workflow_duration_seconds", "histogram", ("error_type",),
           "Duration of an execution in mode plan or flow, from INIT or a resume to its end",
           "As `portico_execution_duration_seconds`", _WORKFLOW_SECONDS),
    Series("gen_ai_execute_tool_duration_seconds", "histogram", ("gen_ai_tool_name", "error_type"),
           "Duration of a tool call attempt",
           "As `portico_tool_duration_seconds`", _INFERENCE_SECONDS),
)
# fmt: on


def label_values(
    models: Iterable[tuple[str, ModelName]],
    tools: Collection[str],
    currency: str,
    step_types: Collection[str] = (),
    guards: Collection[str] = (),
    deployments: Iterable[str] = (),
) -> Mapping[str, Collection[str]]:
    """Return the values that each label may have, apart from `other_value`; `models` are those of the engines."""
    engines = dict(models)
    return {
        "mode": frozenset(lifecycle.Mode),
        "state": frozenset(lifecycle.State) | frozenset(DeploymentState),
        "from_state": frozenset(lifecycle.State) | {NO_VALUE},
        "to_state": frozenset(lifecycle.State),
        "from_fsm": frozenset(fallback.State),
        "to_fsm": frozenset(fallback.State),
        "fsm_event": frozenset(fallback.Event),
        "code": frozenset(Code) | {NO_VALUE},
        "error_type": frozenset(Code) | {NO_ERROR},
        "finish_reason": frozenset(get_args(FinishReason)),
        "provider": frozenset(engines),
        "gen_ai_provider_name": frozenset(each.provider for each in engines.values()),
        "gen_ai_request_model": frozenset(each.model for each in engines.values()),
        "tool": tools,
        "gen_ai_tool_name": tools,
        "success": frozenset({"true", "false"}),
        "guard": frozenset({*guards, INPUT_RULES}),
        "action": frozenset(get_args(GuardAction)),
        "tripped": frozenset({"true", "false"}),
        "stage": frozenset(STAGES),
        "step_type": frozenset((*StepType, *step_types)),
        "status": frozenset(StepStatus),
        "direction": frozenset({"in", "out"}),
        "currency": frozenset({currency}),
        "breaker": frozenset(BreakerState),
        "level": frozenset(IsolationLevel),
        "deployment": frozenset(deployments),
        "outcome": frozenset(AttemptFailureReason) | {"answered", "stopped"},
        "limit": frozenset(prefix + kind for kind in LimitKind for prefix in ("", "tenant-")),
        "place": frozenset(BUG_PLACES),
        "result": frozenset({"delivered", "failed", "dead"}),
    }


def other_value(label: str) -> str:
    """Return the replacement for values that are not in `label_values`."""
    return "unknown" if label in {"tool", "gen_ai_tool_name"} else "other"
