"""Tracing: the queue of finished spans, and the provider for the instrumentation of the HTTP server."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal

import anyio
from anyio import to_thread
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from portico.adapters.telemetry.tracing.exporters import Exporter, silence_exporters
from portico.adapters.telemetry.tracing.readable_spans import SpanReader
from portico.adapters.telemetry.tracing.sampler import is_sampled
from portico.adapters.telemetry.tracing.sink import SpanConfig, SpanSink
from portico.adapters.telemetry.tracing.span_draft import SpanDraft
from portico.adapters.telemetry.tracing.span_queue import DEFAULT_LIMITS, ExportLimits, ExportReports, SpanQueue
from portico.domain.ids import TraceId
from portico.domain.journal.header import ExecutionHeader
from portico.domain.value import value

FLUSH_SECONDS = 5.0


@value
class TracingConfig:
    """Configuration of traces: the collector, the share of the traces that are recorded, and the service's name."""

    endpoint: str
    protocol: Literal["http", "grpc"]
    headers: Callable[[], Mapping[str, str]]
    sample_ratio: float
    spans: SpanConfig
    service_version: str
    service_instance: str


class Tracing:
    """Everything that makes spans of one process.

    `sink` builds the spans of executions, and `queue` takes finished ones. `provider` is that of the SERVER spans. It
    records all of them, since the sampler is asked before one is started; its processors put what they build into the
    queue.
    """

    def __init__(self, config: TracingConfig, queue: SpanQueue) -> None:
        self.config = config
        self.queue = queue
        self.resource = resource_of(config)
        self.provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=self.resource,
            shutdown_on_exit=False,
            meter_provider=NoOpMeterProvider(),
        )
        self.sink = SpanSink(config.spans, self._export)
        self._reader = SpanReader(self.resource, config.service_version)

    def is_sampled(self, trace_id: TraceId, caller_flags: int | None = None) -> bool:
        """Return True if the trace is recorded."""
        return is_sampled(trace_id, caller_flags, self.config.sample_ratio)

    def _export(self, header: ExecutionHeader, finished: Sequence[SpanDraft]) -> None:
        self.queue.put(list(self._reader.read(header, finished)))


def resource_of(config: TracingConfig) -> Resource:
    """Return the resource of all spans; `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` add to it."""
    own = {
        "service.name": "portico",
        "service.version": config.service_version,
        "service.instance.id": config.service_instance,
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
    }
    return Resource(own).merge(OTELResourceDetector().detect())


@asynccontextmanager
async def open_tracing(
    config: TracingConfig, reports: ExportReports, limits: ExportLimits = DEFAULT_LIMITS
) -> AsyncIterator[Tracing]:
    """Export spans until the context ends; what is queued then is sent within 5 s, or dropped."""
    silence_exporters()
    exporter = Exporter(config.endpoint, config.protocol, config.headers)
    queue = SpanQueue(exporter.current, reports, limits)
    queue.start()
    try:
        yield Tracing(config, queue)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(partial(queue.close, FLUSH_SECONDS, exporter.close))
