"""OTLP receivers in the process of the test: real servers for both protocols, which decode what arrives."""

import gzip
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SERVER, CLIENT = 2, 3
Respond = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as a collector sees it. Times are in nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start: int
    end: int
    attributes: Mapping[str, Any]
    events: Sequence[tuple[str, Mapping[str, Any]]]
    links: Sequence[tuple[str, str]]
    is_error: bool


@dataclass
class Collector:
    """Record of what a collector has received: all bytes, the headers, the spans of executions and of HTTP requests."""

    endpoint: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    requests: list[ReceivedSpan] = field(default_factory=list)
    resources: list[Mapping[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    arrived: Event = field(default_factory=Event)

    def take(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Decode a request."""
        self.bodies.append(body)
        self.headers.append(headers)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(_attributes(resource.resource.attributes))
            found = [_received(span) for scope in resource.scope_spans for span in scope.spans]
            self.requests += [each for each in found if each.kind == SERVER]
            self.spans += [each for each in found if each.kind != SERVER]
        self.arrived.set()

    def named(self, name: str) -> ReceivedSpan:
        """Return the only span of that name."""
        [span] = [each for each in self.spans if each.name == name]
        return span

    def trees(self) -> list[str]:
        """Return the tree of each trace in one line a span; every span has to be below the root of its trace."""
        return [_tree(spans) for spans in _by_trace(self.spans).values()]

    def check(self) -> None:
        """Fail unless every span has an id of its own, lies within a tree with one root, and ends after its start."""
        for spans in _by_trace(self.spans).values():
            ids = [each.span_id for each in spans]
            assert len(set(ids)) == len(ids), sorted(each.name for each in spans)
            roots = [each for each in spans if each.parent_id not in ids]
            assert [each.name.split(" ")[0] for each in roots] in (["invoke_agent"], ["invoke_workflow"]), _tree(spans)
            assert all(each.start <= each.end for each in spans)


@contextmanager
def http_collector(respond: Respond | None = None) -> Iterator[Collector]:
    """Run a receiver of OTLP over HTTP; `respond` answers in its own way, and nothing is received then."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if respond is not None:
                respond(self)
                return
            assert self.path == "/v1/traces"
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(body, dict(self.headers.items()))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the base class gives
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """Run a receiver of OTLP over gRPC."""
    collector = Collector()

    class Servicer(TraceServiceServicer):
        def Export(  # noqa: N802 - the name that the protocol gives
            self, request: ExportTraceServiceRequest, context: Any
        ) -> ExportTraceServiceResponse:
            collector.take(request.SerializeToString(), dict(context.invocation_metadata()))
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(Servicer(), server)
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


def _received(span: Span) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        events=[(event.name, _attributes(event.attributes)) for event in span.events],
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        is_error=span.status.code == 2,
    )


def _attributes(given: Sequence[KeyValue]) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in given}


def _value(given: AnyValue) -> Any:
    kind = given.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in given.array_value.values]
    return getattr(given, kind) if kind else None


def _by_trace(spans: Sequence[ReceivedSpan]) -> Mapping[str, list[ReceivedSpan]]:
    found: dict[str, list[ReceivedSpan]] = defaultdict(list)
    for span in spans:
        found[span.trace_id].append(span)
    return found


def _tree(spans: Sequence[ReceivedSpan]) -> str:
    ids = {each.span_id for each in spans}
    lines: list[str] = []

    def add(span: ReceivedSpan, depth: int) -> None:
        error = f"  ! {span.attributes['error.type']}" if "error.type" in span.attributes else ""
        lines.append("  " * depth + span.name + error)
        below = [each for each in spans if each.parent_id == span.span_id]
        for each in sorted(below, key=lambda found: (found.start, found.end, found.name)):
            add(each, depth + 1)

    for root in spans:
        if root.parent_id not in ids:
            add(root, 0)
    return "\n".join(lines)
