"""A collector in this process: an OTLP/HTTP endpoint that decodes the spans it is sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it arrived; ids are hex, an absent parent is empty."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    kind: int
    attributes: dict[str, Any]
    events: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    status: int
    seconds: float


@dataclass
class OtlpReceiver:
    """The endpoint: its base URL, the spans that arrived, and the raw bytes of every request."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    raw: bytes = b""

    def of_kind(self, kind: int) -> list[ReceivedSpan]:
        """Return the spans of that kind of OTLP: 1 is INTERNAL, 2 SERVER, 3 CLIENT."""
        return [span for span in self.spans if span.kind == kind]

    def take(self, body: bytes) -> None:
        """Decode one request."""
        self.raw += body
        request = ExportTraceServiceRequest.FromString(body)
        self.spans.extend(
            _received(span)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        )


def _received(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        kind=span.kind,
        attributes={each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes},
        events=tuple(event.name for event in span.events),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        status=span.status.code,
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Receive spans on a loopback port until the context ends."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
