"""Traces of the composition root: opened if a collector is configured, and only then are their libraries loaded."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from portico.adapters.telemetry.genai import ModelName
from portico.adapters.telemetry.logs import LogSink
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.bootstrap.engine_urls import server_url
from portico.bootstrap.engines import endpoint_settings
from portico.domain.ids import ReplicaId, TraceId
from portico.domain.value import replace
from portico.orchestration.execution.environment import Environment
from portico.ports.runtime import Entropy
from portico.settings import Settings

if TYPE_CHECKING:
    from portico.adapters.telemetry.tracing.attributes import EngineFacts
    from portico.adapters.telemetry.tracing.provider import Tracing
    from portico.adapters.telemetry.tracing.server_spans import ServerSpans


@asynccontextmanager
async def open_traces(
    settings: Settings, replica: ReplicaId, metrics: MetricsSink, logs: LogSink
) -> AsyncIterator["Tracing | None"]:
    """Open what makes and exports spans; None without a collector."""
    telemetry = settings.telemetry
    if telemetry.otlp_endpoint is None:
        yield None
        return
    from portico.adapters.telemetry.tracing.provider import TracingConfig, open_tracing  # noqa: PLC0415 - see above
    from portico.adapters.telemetry.tracing.sink import SpanConfig  # noqa: PLC0415 - see above
    from portico.adapters.telemetry.tracing.span_queue import ExportReports  # noqa: PLC0415 - see above

    config = TracingConfig(
        endpoint=telemetry.otlp_endpoint,
        protocol=telemetry.otlp_protocol,
        headers=_headers(settings),
        sample_ratio=telemetry.sample_ratio,
        spans=SpanConfig(_engines(settings), telemetry.sample_errors, telemetry.capture_content),
        service_version=version("portico"),
        service_instance=replica,
    )
    async with open_tracing(config, ExportReports(metrics.count_dropped_spans, logs.log_export)) as tracing:
        yield tracing


def open_server_spans(tracing: "Tracing | None", entropy: Entropy) -> "ServerSpans | None":
    """Return what makes the spans of HTTP requests; None without a collector."""
    if tracing is None:
        return None
    from portico.adapters.telemetry.tracing.server_spans import ServerSpans  # noqa: PLC0415 - see above

    return ServerSpans(tracing, lambda: TraceId(entropy.token(16)))


def observed(environment: Environment, tracing: "Tracing | None") -> Environment:
    """Return the environment of executions, whose model calls are observed if there is a collector."""
    return environment if tracing is None else replace(environment, call_observer=tracing.sink)


def _engines(settings: Settings) -> "Mapping[str, EngineFacts]":
    """Return what spans show of each engine, by its name."""
    from portico.adapters.telemetry.tracing.attributes import EngineFacts  # noqa: PLC0415 - only for traces

    found = {}
    for name, endpoint in endpoint_settings(settings).items():
        model, address = ModelName.of(endpoint.model.scheme, endpoint.model.model), server_url(endpoint)
        server = urlsplit(address) if address else None
        found[name] = EngineFacts(
            model, None if server is None else server.hostname, None if server is None else server.port
        )
    return found


def _headers(settings: Settings) -> Callable[[], Mapping[str, str]]:
    file = settings.telemetry.otlp_headers_file
    return _no_headers if file is None else file.read


def _no_headers() -> Mapping[str, str]:
    return {}
