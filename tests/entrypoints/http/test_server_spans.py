"""SERVER spans: which requests have one, what it says, and what it never says."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.propagate import get_global_textmap, set_global_textmap
from opentelemetry.propagators.composite import CompositePropagator

from portico.adapters.telemetry.tracing.server_spans import ATTRIBUTES
from portico.entrypoints.http.app import PorticoApi, create_app
from portico.settings import Settings
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes, running_server
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.support.portico import ASK_PERSON, EVENTS, chat, events, portico, resume

pytestmark = pytest.mark.usefixtures("real_time")
SERVER = 2
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
CANARY = "canary-5f2c"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


def endpoint(receiver: OtlpReceiver, ratio: float = 1.0) -> dict[str, Any]:
    """Return the settings of an export to the receiver."""
    return {"otlp_endpoint": receiver.url, "sample_ratio": ratio}


@asynccontextmanager
async def traced(receiver: OtlpReceiver, ratio: float = 1.0, **tables: Any) -> AsyncIterator[RunningServer]:
    """Run a service that exports to the receiver; everything has arrived when it has closed."""
    async with portico(telemetry=endpoint(receiver, ratio), **tables) as (served, _):
        yield served


def server_span(receiver: OtlpReceiver) -> ReceivedSpan:
    [span] = receiver.of_kind(SERVER)
    return span


def ids(answer: HttpAnswer) -> tuple[str, str, str]:
    """Return trace id, span id and flags of the response."""
    _, trace_id, span_id, flags = answer.headers["traceparent"].split("-")
    return trace_id, span_id, flags


async def test_a_request_is_one_server_span_below_its_caller(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as served:
        answer = await served.post(chat("Hello"), {**SAMPLED, "User-Agent": "probe/1", "Host": "localhost:1"})
    span = server_span(receiver)
    assert (span.name, span.trace_id, span.parent_span_id) == ("POST /v1/execute", TRACE, CALLER)
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/execute",
        "url.path": "/v1/execute",
        "url.scheme": "http",
        "server.address": "127.0.0.1",
        "server.port": served.port,
        "http.response.status_code": 200,
        "user_agent.original": "probe/1",
        "network.protocol.version": "1.1",
    }
    assert (ids(answer)[0], ids(answer)[2]) == (TRACE, "01")
    assert span.status == 0


async def test_the_execution_hangs_below_the_recorded_request(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as served:
        stream = await served.post(chat("Hello", request_id="q"), EVENTS)
        first = events(stream)[0]
    span = server_span(receiver)
    assert (first["trace_id"], first["parent_span_id"]) == (span.trace_id, span.span_id)
    assert ids(stream) == (span.trace_id, first["span_id"], "01")


@pytest.mark.parametrize(("flags", "is_recorded"), [("00", False), ("01", True), ("02", False), ("03", True)])
async def test_bit_0_of_the_callers_flags_decides_at_any_ratio(
    receiver: OtlpReceiver, flags: str, is_recorded: bool
) -> None:
    async with traced(receiver, 0.0 if is_recorded else 1.0) as served:
        answer = await served.post(chat("Hello"), {"traceparent": f"00-{TRACE}-{CALLER}-{flags}"})
    assert [span.trace_id for span in receiver.of_kind(SERVER)] == [TRACE] * is_recorded
    assert ids(answer)[::2] == (TRACE, "01" if is_recorded else "00")


@pytest.mark.parametrize("ratio", [0.0, 1.0])
async def test_without_a_caller_the_ratio_decides(receiver: OtlpReceiver, ratio: float) -> None:
    async with traced(receiver, ratio) as served:
        answer = await served.post(chat("Hello"))
    assert [(span.trace_id, span.parent_span_id) for span in receiver.of_kind(SERVER)] == [(ids(answer)[0], "")] * int(
        ratio
    )
    assert ids(answer)[2] == f"0{int(ratio)}"


@pytest.mark.parametrize(
    "traceparent",
    [
        f"00-{TRACE}-{CALLER}",
        f"00-{TRACE.upper()}-{CALLER}-01",
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{TRACE}-{CALLER}-01-more",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{CALLER}-0g",
        "",
        "x" * 4096,
    ],
)
async def test_a_malformed_traceparent_restarts_the_trace(receiver: OtlpReceiver, traceparent: str) -> None:
    async with traced(receiver) as served:
        answer = await served.post(chat("Hello"), {"traceparent": traceparent})
    span = server_span(receiver)
    assert span.trace_id == ids(answer)[0] != TRACE
    assert span.parent_span_id == ""


async def test_two_traceparents_restart_the_trace(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as served:
        request = request_bytes("GET", "/v1/agents", SAMPLED)
        twice = request.replace(b"traceparent", f"traceparent: 00-{'1' * 32}-{CALLER}-01\r\ntraceparent".encode(), 1)
        await served.ask(twice)
    assert server_span(receiver).trace_id not in {TRACE, "1" * 32}


async def test_no_byte_of_a_request_but_the_listed_attributes_is_exported(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUEST", "RESPONSE"):
        monkeypatch.setenv(f"OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_{name}", ".*")
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http/dup")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    headers = {
        "Authorization": f"Bearer {CANARY}",
        "Cookie": CANARY,
        "tracestate": f"vendor={CANARY}",
        "baggage": f"key={CANARY}",
        "X-Forwarded-For": CANARY,
        "traceparent": SAMPLED["traceparent"],
    }
    async with traced(receiver) as served:
        await served.post(chat(CANARY), headers, path=f"/v1/execute?secret={CANARY}")
        await served.get(f"/{CANARY}", headers)
        await served.get(f"/v1/agents?limit={CANARY}", headers)
    names = [span.name for span in receiver.of_kind(SERVER)]
    assert names == ["POST /v1/execute", "GET", "GET /v1/agents"]
    assert CANARY.encode() not in receiver.raw
    for span in receiver.of_kind(SERVER):
        assert set(span.attributes) <= ATTRIBUTES
        assert span.events == ()


async def test_an_execution_of_a_disabled_sdk_hangs_below_the_caller(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with traced(receiver) as served:
        answer = await served.post(chat("Hello"), {**EVENTS, **SAMPLED})
    assert receiver.of_kind(SERVER) == []
    assert events(answer)[0]["parent_span_id"] == CALLER


async def test_a_process_without_propagators_answers_and_records_all_the_same(
    receiver: OtlpReceiver,
) -> None:
    usual = get_global_textmap()
    set_global_textmap(CompositePropagator([]))
    try:
        async with traced(receiver) as served:
            answer = await served.post(chat("Hello"), {**EVENTS, **SAMPLED})
    finally:
        set_global_textmap(usual)
    span = server_span(receiver)
    assert (span.trace_id, span.parent_span_id) == (TRACE, CALLER)
    assert events(answer)[0]["parent_span_id"] == span.span_id


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/v1/executions/q/events"])
async def test_probes_and_long_reads_have_no_span_and_do_not_claim_one(receiver: OtlpReceiver, path: str) -> None:
    async with traced(receiver) as served:
        answer = await served.get(path, SAMPLED)
    assert receiver.of_kind(SERVER) == []
    assert ids(answer)[2] == "00"


async def test_a_host_header_cannot_hide_a_request(receiver: OtlpReceiver) -> None:
    async with traced(receiver, server={"allowed_hosts": ["*"]}) as served:
        for host in ("h/livez", "h/livez?", "h/v1/executions/q/events#"):
            await served.get("/v1/agents", {**SAMPLED, "Host": host})
    assert [span.name for span in receiver.of_kind(SERVER)] == ["GET /v1/agents"] * 3


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nothing", 404, "REQUEST_NOT_FOUND"), ("POST", "/v1/execute", 422, "REQUEST_INVALID")],
)
async def test_a_recorded_refusal_is_the_same_problem_document(
    receiver: OtlpReceiver, method: str, path: str, status: int, code: str
) -> None:
    async with traced(receiver) as served:
        recorded, plain = [
            await served.ask(
                request_bytes(
                    method,
                    path,
                    {"traceparent": f"00-{TRACE}-{CALLER}-{flags}", "Content-Type": "application/json"},
                    b"{}" if method == "POST" else b"",
                )
            )
            for flags in ("01", "00")
        ]
    span = server_span(receiver)
    assert (recorded.status, recorded.json["code"]) == (plain.status, plain.json["code"]) == (status, code)
    assert recorded.headers.keys() == plain.headers.keys()
    assert span.attributes["http.response.status_code"] == status
    assert ids(recorded) == (TRACE, span.span_id, "01")
    assert span.status == 0
    assert ("url.path" in span.attributes) is (path != "/nothing")


async def test_a_query_that_is_no_text_is_refused_by_us(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as served:
        raw = request_bytes("GET", "/v1/agents?limit=X", SAMPLED).replace(b"limit=X", b"limit=\xff")
        answer = await served.ask(raw)
    assert answer.status < 500


async def test_the_span_of_a_resume_stays_in_the_callers_trace_and_links_to_the_execution(
    receiver: OtlpReceiver,
) -> None:
    async with traced(receiver) as served:
        suspended = await served.post(chat(ASK_PERSON, request_id="q"))
        answered = await resume(served, SAMPLED)
    first, second = receiver.of_kind(SERVER)
    assert (suspended.status, answered.status) == (202, 200)
    assert (second.trace_id, second.parent_span_id) == (TRACE, CALLER)
    assert first.links == ()
    assert second.links == (ids(suspended)[:2],)


async def test_a_long_stream_is_one_span_that_ends_with_it(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as served:
        stream = await served.post(chat("Tell a long story. " * 50), {**EVENTS, **SAMPLED})
    assert stream.status == 200
    assert len(events(stream)) > 20
    assert server_span(receiver).seconds > 0


async def test_a_client_that_leaves_ends_its_span(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as served:
        async with served.connect() as connection:
            body = chat("Hello " * 200)
            headers: Mapping[str, str] = {**EVENTS, **SAMPLED, "Content-Type": "application/json"}
            await connection.send(request_bytes("POST", "/v1/execute", headers, body))
            await connection.head()
        await asyncio.sleep(0)
    assert server_span(receiver).name == "POST /v1/execute"


async def test_an_application_that_is_opened_again_exports_to_the_new_collector(receiver: OtlpReceiver) -> None:
    with otlp_receiver() as first:
        app = create_app(Settings.model_validate({"storage": {"url": "sqlite://"}, "telemetry": endpoint(first)}))
        async with running_server(app) as served:
            await served.get("/v1/agents", SAMPLED)
    again = create_app(Settings.model_validate({"storage": {"url": "sqlite://"}, "telemetry": endpoint(receiver)}))
    async with running_server(again) as served:
        await served.get("/v1/engines", SAMPLED)
    assert isinstance(app, PorticoApi)
    assert app.front is None
    assert [span.name for span in first.of_kind(SERVER)] == ["GET /v1/agents"]
    assert server_span(receiver).name == "GET /v1/engines"


async def test_without_an_endpoint_the_callers_trace_goes_on_and_nothing_claims_to_be_recorded() -> None:
    async with portico() as (served, service):
        answer = await served.post(chat("Hello"), {**EVENTS, **SAMPLED})
        assert service.server_spans is None
    assert ids(answer)[::2] == (TRACE, "00")
    assert events(answer)[0]["parent_span_id"] == CALLER
