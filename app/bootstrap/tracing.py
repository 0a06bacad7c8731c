"""Traces of the composition root: opened if a collector is configured, and only then are their libraries loaded."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from app.adapters.telemetry.logs import LogSink
from app.adapters.telemetry.metrics.sink import MetricsSink
from app.domain.ids import ReplicaId, TraceId
from app.ports.runtime import Entropy
from app.settings import Settings

if TYPE_CHECKING:
    from app.adapters.telemetry.tracing.provider import Tracing
    from app.adapters.telemetry.tracing.server_spans import ServerSpans


@asynccontextmanager
async def open_traces(
    settings: Settings, replica: ReplicaId, metrics: MetricsSink, logs: LogSink
) -> AsyncIterator["Tracing | None"]:
    """Open what makes and exports spans; None without a collector."""
    telemetry = settings.telemetry
    if telemetry.otlp_endpoint is None:
        yield None
        return
    from app.adapters.telemetry.tracing.provider import TracingConfig, open_tracing  # noqa: PLC0415 - see above
    from app.adapters.telemetry.tracing.span_queue import ExportReports  # noqa: PLC0415 - see above

    config = TracingConfig(
        endpoint=telemetry.otlp_endpoint,
        protocol=telemetry.otlp_protocol,
        headers=_headers(settings),
        sample_ratio=telemetry.sample_ratio,
        sample_errors=telemetry.sample_errors,
        capture_content=telemetry.capture_content,
        service_version=version("portico"),
        service_instance=replica,
    )
    async with open_tracing(config, ExportReports(metrics.count_dropped_spans, logs.log_export)) as tracing:
        yield tracing


def open_server_spans(tracing: "Tracing | None", entropy: Entropy) -> "ServerSpans | None":
    """Return what makes the spans of HTTP requests; None without a collector."""
    if tracing is None:
        return None
    from app.adapters.telemetry.tracing.server_spans import ServerSpans  # noqa: PLC0415 - see above

    return ServerSpans(tracing, lambda: TraceId(entropy.token(16)))


def _headers(settings: Settings) -> Callable[[], Mapping[str, str]]:
    file = settings.telemetry.otlp_headers_file
    return _no_headers if file is None else file.read


def _no_headers() -> Mapping[str, str]:
    return {}
