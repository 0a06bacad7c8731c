"""Exporters: the OTLP exporters of the SDK, with the current headers of the file that authenticates them."""

import logging
from collections.abc import Callable, Mapping
from typing import Literal

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace.export import SpanExporter

_ATTEMPT_SECONDS = 10.0
_TRACES_PATH = "/v1/traces"
_LOGGERS = ("opentelemetry.exporter", "opentelemetry.sdk", "urllib3", "grpc")


class Exporter:
    """Source of the exporter that sends the next batch: another one once the headers have changed."""

    def __init__(
        self, endpoint: str, protocol: Literal["http", "grpc"], headers: Callable[[], Mapping[str, str]]
    ) -> None:
        self._endpoint = endpoint
        self._build = _http if protocol == "http" else _grpc
        self._read_headers = headers
        self._headers: Mapping[str, str] = {}
        self._exporter: SpanExporter | None = None

    def current(self) -> SpanExporter:
        """Return the exporter with the current headers."""
        headers = self._read_headers()
        if self._exporter is None or headers != self._headers:
            self.close()
            self._exporter, self._headers = self._build(self._endpoint, headers), headers
        return self._exporter

    def close(self) -> None:
        """End the attempt that runs, and the connections."""
        if self._exporter is not None:
            self._exporter.shutdown()
            self._exporter = None


def silence_exporters() -> None:
    """Let the SDK log nothing: its lines quote what a collector answers, and a dead one would fill the log."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _http(endpoint: str, headers: Mapping[str, str]) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - only one protocol is imported
        OTLPSpanExporter,
    )

    return OTLPSpanExporter(
        endpoint + _TRACES_PATH, headers=dict(headers), timeout=_ATTEMPT_SECONDS, meter_provider=NoOpMeterProvider()
    )


def _grpc(endpoint: str, headers: Mapping[str, str]) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415 - only one protocol is imported
        OTLPSpanExporter,
    )

    return OTLPSpanExporter(
        endpoint,
        headers=tuple((name.lower(), value) for name, value in headers.items()),
        timeout=_ATTEMPT_SECONDS,
        meter_provider=NoOpMeterProvider(),
    )
