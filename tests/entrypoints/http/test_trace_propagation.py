"""Trace context on its way to providers: the span of each attempt as the parent, and nothing else of the caller's."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from portico.settings import Secret
from tests.adapters.engines.engine_calls import chat_chunk
from tests.support.http_server import HttpAnswer
from tests.support.portico import EVENTS, chat, events, portico
from tests.support.upstream import ReceivedRequest, ScriptedUpstream, event, event_stream, reply

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CANARY = "canary-9d1e"
ANSWER = event_stream(event(chat_chunk("Hello.", "stop")), event("[DONE]"))
BROKEN = reply(b"", status=500)


async def asked(
    *scripts: Any, telemetry: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> tuple[HttpAnswer, list[ReceivedRequest]]:
    """Ask an engine that plays these scripts, and return the answer and what the provider received."""
    async with ScriptedUpstream(*scripts) as upstream:
        only = {"model": "openai://some-model", "base_url": upstream.url}
        async with portico(engines={"only": only}, telemetry=telemetry or {}) as (served, _):
            answer = await served.post(chat("Hi", tools=[]), {**EVENTS, **(headers or {})})
        return answer, upstream.requests


def spans(answer: HttpAnswer) -> list[str]:
    """Return the spans of the attempts."""
    return [event["span_id"] for event in events(answer) if event["type"] == "inference.start"]


@pytest.mark.parametrize("flags", ["00", "01", "03"])
async def test_each_attempt_is_the_parent_of_what_its_provider_does(flags: str) -> None:
    caller = {"traceparent": f"00-{TRACE}-{CALLER}-{flags}"}
    answer, requests = await asked(BROKEN, ANSWER, headers=caller)
    assert len(requests) == 2
    sampled = "00" if flags == "00" else "01"
    assert [each.headers["traceparent"] for each in requests] == [
        f"00-{TRACE}-{span_id}-{sampled}" for span_id in spans(answer)
    ]


async def test_a_new_trace_is_propagated_too() -> None:
    answer, [request] = await asked(ANSWER)
    [span_id] = spans(answer)
    assert request.headers["traceparent"] == f"00-{events(answer)[0]['trace_id']}-{span_id}-00"


async def test_nothing_else_of_the_callers_context_is_passed_on() -> None:
    caller = {
        "traceparent": f"00-{TRACE}-{CALLER}-01",
        "tracestate": f"vendor={CANARY}",
        "baggage": f"key={CANARY}",
        "X-Request-Id": CANARY,
    }
    _, [request] = await asked(ANSWER, headers=caller)
    assert CANARY not in str(request)
    assert not {"tracestate", "baggage"} & request.headers.keys()


async def test_it_can_be_turned_off() -> None:
    _, [request] = await asked(
        ANSWER, telemetry={"propagate": False}, headers={"traceparent": f"00-{TRACE}-{CALLER}-01"}
    )
    assert "traceparent" not in request.headers
    assert TRACE not in str(request)


async def test_a_header_of_the_configuration_takes_its_place() -> None:
    fixed = f"00-{TRACE}-{CALLER}-00"
    async with ScriptedUpstream(ANSWER) as upstream:
        engine = {"model": "openai://some-model", "base_url": upstream.url, "headers": {"Traceparent": Secret(fixed)}}
        async with portico(engines={"only": engine}) as (served, _):
            await served.post(chat("Hi", tools=[]))
    [request] = upstream.requests
    assert request.headers["traceparent"] == fixed


def test_without_an_endpoint_no_library_of_traces_is_loaded() -> None:
    program = "import sys, portico.entrypoints.http.app; print([name for name in sys.modules if name.startswith(%r)])"
    for library in ("opentelemetry.sdk", "opentelemetry.instrumentation", "opentelemetry.exporter", "grpc"):
        done = subprocess.run([sys.executable, "-c", program % library], capture_output=True, check=True, text=True)
        assert done.stdout.strip() == "[]", library
