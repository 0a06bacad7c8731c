"""SERVER spans around an application: streams, exceptions, and spans of others."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from starlette.types import Message, Scope

from portico.adapters.telemetry.tracing.provider import Tracing, TracingConfig
from portico.adapters.telemetry.tracing.server_spans import ServerSpans
from portico.adapters.telemetry.tracing.sink import SpanConfig
from portico.adapters.telemetry.tracing.span_queue import DEFAULT_LIMITS, ExportReports, SpanQueue
from portico.domain.ids import TraceId
from portico.ports.tracing import TRACE_KEY
from tests.support.virtual_time import VirtualClock

TRACE = "0af7651916cd43dd8448eb211c80319c"
CANARY = "canary-77aa"


class Collected(SpanQueue):
    """Queue that sends nothing."""

    def __init__(self) -> None:
        super().__init__(_no_exporter, ExportReports(_ignore, _ignore), DEFAULT_LIMITS)
        self.spans: list[ReadableSpan] = []

    def put(self, spans: Sequence[ReadableSpan]) -> None:
        self.spans.extend(spans)


def _no_exporter() -> Any:
    raise AssertionError("nothing is sent")


def _ignore(_: object) -> None:
    return None


@pytest.fixture
def queue() -> Collected:
    return Collected()


@pytest.fixture
def tracing(queue: Collected) -> Tracing:
    config = TracingConfig(
        endpoint="http://127.0.0.1:1",
        protocol="http",
        headers=dict,
        sample_ratio=1.0,
        spans=SpanConfig(engines={}, sample_errors=True, capture_content=False),
        service_version="1",
        service_instance="replica",
    )
    return Tracing(config, queue)


@pytest.fixture
def spans(tracing: Tracing) -> ServerSpans:
    return ServerSpans(tracing, lambda: TraceId(TRACE))


def streaming(clock: VirtualClock, *, fails: bool = False) -> FastAPI:
    """Return an application that streams for ten minutes, or breaks off after the first."""
    app = FastAPI()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            await clock.sleep(60)
            yield b"piece"
            if fails:
                raise RuntimeError(CANARY)

    @app.get("/stream/{name}")
    async def stream(name: str) -> StreamingResponse:
        return StreamingResponse(pieces(), headers={"x-name": name})

    return app


def request(app: FastAPI, spans: ServerSpans) -> Scope:
    """Return the scope of a recorded request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "app": app,
        "method": "GET",
        "path": "/stream/a",
        "raw_path": b"/stream/a",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "server": ("127.0.0.1", 8080),
        "client": None,
        "scheme": "http",
        "http_version": "1.1",
        TRACE_KEY: spans.decide(None),
    }


async def receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def test_a_stream_of_ten_minutes_is_one_span_that_ends_with_its_last_byte(
    spans: ServerSpans, queue: Collected, clock: VirtualClock
) -> None:
    app, ended_before = streaming(clock), []

    async def send(_: Message) -> None:
        ended_before.append(len(queue.spans))

    began = clock.monotonic()
    with spans.instrumented(app) as stack:
        await stack(request(app, spans), receive, send)
    assert clock.monotonic() - began == pytest.approx(600)
    assert ended_before == [0] * 12
    [span] = queue.spans
    assert (span.name, span.end_time is not None) == ("GET /stream/{name}", True)


async def test_an_exception_that_escapes_ends_the_span_and_leaves_nothing_of_itself(
    spans: ServerSpans, queue: Collected, clock: VirtualClock
) -> None:
    app = streaming(clock, fails=True)

    async def send(_: Message) -> None:
        return None

    with spans.instrumented(app) as stack, pytest.raises(RuntimeError):
        await stack(request(app, spans), receive, send)
    [span] = queue.spans
    assert span.events == ()
    assert CANARY not in span.to_json()
    assert span.status.description is None


async def test_a_failure_is_an_error_by_its_status_alone(
    spans: ServerSpans, queue: Collected, clock: VirtualClock
) -> None:
    app = streaming(clock)

    async def send(_: Message) -> None:
        return None

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError(CANARY)

    with spans.instrumented(app) as stack, pytest.raises(RuntimeError):
        await stack({**request(app, spans), "path": "/broken"}, receive, send)
    [span] = queue.spans
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert span.attributes is not None
    assert span.attributes["error.type"] == "500"
    assert CANARY not in span.to_json()


def test_a_span_that_no_request_began_is_not_exported(spans: ServerSpans, tracing: Tracing, queue: Collected) -> None:
    with spans.instrumented(FastAPI()):
        tracing.provider.get_tracer("of-others").start_span(CANARY).end()
    assert queue.spans == []
