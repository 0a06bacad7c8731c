"""The export of spans: what leaves the process, and collectors that are dead, slow or answer nonsense."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from portico.adapters.telemetry.tracing.span_queue import ExportLimits, ExportReports, SpanQueue
from tests.support.collector import Collector, http_collector
from tests.support.portico import JSON_BODY, chat, portico

CANARY = "canary5e1f"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as running:
        yield running


class HeldExporter(SpanExporter):
    """An exporter that answers nothing until it is released."""

    def __init__(self) -> None:
        self.released = Event()
        self.spans = 0

    def export(self, spans: Any) -> SpanExportResult:
        self.released.wait()
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


async def ask(telemetry: dict[str, Any], text: str = "hello", **headers: str) -> str:
    """Run one request with these settings and return the metrics after the service has stopped."""
    async with portico(telemetry={"sample_ratio": 1} | telemetry) as (served, service):
        answer = await served.post(chat(text), {**JSON_BODY, **headers}, path="/v1/execute?key=" + CANARY)
        assert answer.status == 200
    return service.metrics()[0].decode()


@pytest.mark.parametrize("has_content", [False, True])
async def test_no_content_leaves_the_process_unless_it_is_captured(collector: Collector, *, has_content: bool) -> None:
    text = f'Use roll_dice: "{CANARY}" 2d6'
    headers = {"Authorization": f"Bearer {CANARY}", "X-Canary": CANARY, "tracestate": f"v={CANARY}"}
    await ask({"otlp_endpoint": collector.endpoint, "capture_content": has_content}, text, **headers)
    sent = b"".join(collector.bodies)
    assert (CANARY.encode() in sent) is has_content
    tool = collector.named("execute_tool roll_dice")
    assert ("gen_ai.tool.call.arguments" in tool.attributes) is has_content
    assert ("gen_ai.tool.call.result" in tool.attributes) is has_content


async def test_the_collector_gets_the_current_headers_of_the_file(collector: Collector, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer one\n")
    await ask({"otlp_endpoint": collector.endpoint, "otlp_headers_file": str(file)})
    assert collector.headers[0]["authorization"] == "Bearer one"


def _refuse(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(400)


def _garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\xff no HTTP at all " + CANARY.encode())


@pytest.mark.parametrize("respond", [_refuse, _garbage])
async def test_a_collector_that_takes_nothing_loses_only_spans(respond: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with http_collector(respond) as refusing:
        metrics = await ask({"otlp_endpoint": refusing.endpoint})
    assert "portico_spans_dropped_total 3.0" in metrics
    assert CANARY not in capfd.readouterr().err


async def test_a_collector_that_is_not_there_loses_only_spans(capfd: pytest.CaptureFixture[str]) -> None:
    metrics = await ask({"otlp_endpoint": "http://127.0.0.1:9"})
    assert "portico_spans_dropped_total 3.0" in metrics
    assert capfd.readouterr().err.count("traces.unavailable") <= 1


def test_more_spans_than_can_wait_are_dropped_and_counted() -> None:
    exporter, dropped = HeldExporter(), list[int]()
    limits = ExportLimits(capacity=10_000, batch=512, seconds=0.01)
    queue = SpanQueue(lambda: exporter, ExportReports(dropped.append, lambda _: None), limits)
    spans = [ReadableSpan(f"span {number}", resource=Resource.get_empty()) for number in range(12_000)]
    queue.put(spans)
    assert sum(dropped) == 2_000
    queue.start()
    exporter.released.set()
    queue.close(5, abort=exporter.released.set)
    assert exporter.spans == 10_000
    assert sum(dropped) == 2_000


def test_the_end_of_the_process_does_not_wait_for_a_collector_that_hangs() -> None:
    exporter, dropped = HeldExporter(), list[int]()
    queue = SpanQueue(
        lambda: exporter, ExportReports(dropped.append, lambda _: None), ExportLimits(batch=10, seconds=0.01)
    )
    queue.start()
    queue.put([ReadableSpan(f"span {number}", resource=Resource.get_empty()) for number in range(100)])
    queue.close(0.6, abort=exporter.released.set)
    assert sum(dropped) == 90
    assert exporter.spans == 10
