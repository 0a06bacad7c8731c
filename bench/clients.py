"""Client APIs beside the native one: one request, one chunk of a stream, and a round that continues the record.

The native request names the model and no tools, as what a client sends through a route becomes. So the difference is
what the client API costs, and nothing of what its clients ask for.
"""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import aiohttp

from bench.client_text import client_text
from bench.load import NATIVE_END, open_connections, open_stream_client, request
from bench.processes import MeasuredProcess, open_portico
from bench.scenarios import (
    CONNECTIONS,
    ROUNDS,
    STREAMS,
    WARM_UP,
    BenchEnvironment,
    Numbers,
    Scenario,
    cpu_per_request,
    stream_wave,
)
from bench.upstream import CHUNKS, ROLL, TEXT

WAVES: Final = 5
_QUESTION: Final[Mapping[str, object]] = MappingProxyType(
    {"messages": [{"role": "user", "content": "What is the answer?"}]}
)
_STORY: Final[Mapping[str, object]] = MappingProxyType({"messages": [{"role": "user", "content": "Tell me more."}]})
_ROUTE: Final[Mapping[str, object]] = MappingProxyType({"model": "default", "tools": []})
_RUN: Final[Mapping[str, object]] = MappingProxyType(
    {
        "threadId": "t",
        "runId": "r",
        "protocolVersion": "1.0",
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
        "messages": [{"id": "m", "role": "user", "content": "Tell me more."}],
    }
)
_MCP_VERSION: Final = "2026-07-28"
_MCP_HEAD: Final = f"\r\nMCP-Protocol-Version: {_MCP_VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: execute\r\n\r\n"
_CHAT: Final = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class _Api:
    """Requests of one API: for an answer, if it has any, and for a stream, which ends as `StreamClient` says."""

    answer: bytes | None
    stream: bytes
    ends: Sequence[bytes]


def _requests(path: str, question: Mapping[str, object], story: Mapping[str, object], *ends: bytes) -> _Api:
    named = {"model": "default"}
    return _Api(request({**named, **question}, path=path), request({**named, **story, "stream": True}, path=path), ends)


NATIVE: Final = "native"
APIS: Final[Mapping[str, _Api]] = MappingProxyType(
    {
        NATIVE: _Api(request({**_ROUTE, **_QUESTION}), request({**_ROUTE, **_STORY}, stream=True), (NATIVE_END,)),
        "chat": _requests(_CHAT, _QUESTION, _STORY, b"data: [DONE]"),
        "responses": _requests(
            "/v1/responses",
            {"input": "What is the answer?"},
            {"input": "Tell me more."},
            *(b"event: response.output_text.done", b"data: [DONE]"),
        ),
        "messages": _requests("/v1/messages", _QUESTION, _STORY, b"event: message_stop"),
        "ag_ui": _Api(None, request({**_RUN}, path="/v1/ag-ui/default"), (b"TEXT_MESSAGE_END", b"RUN_FINISHED")),
    }
)


async def clients(bench: BenchEnvironment) -> Numbers:
    """Measure the answers of each API, in turn with the native one, and a round that continues the record."""
    async with (
        open_portico(bench.cores, bench.upstream.port, configuration="[mcp]\nenabled = true\n") as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        new, continued = await _rounds(portico)
        answers = {name: api.answer for name, api in APIS.items() if api.answer is not None}
        sent = {**answers, "new": new, "continued": continued, "mcp": _tool_call()}
        for body in sent.values():
            await connections.run(body, WARM_UP, expected=TEXT.encode())
        costs: dict[str, list[float]] = {name: [] for name in sent}
        for _ in range(ROUNDS):
            for name, body in sent.items():
                costs[name].append(await cpu_per_request(portico, connections, body))
    return {
        **{f"clients_{name}_more_ms": _more(costs[name], costs[NATIVE]) * 1000 for name in answers if name != NATIVE},
        "clients_continued_more_ms": _more(costs["continued"], costs["new"]) * 1000,
        "clients_mcp_ratio": statistics.median(
            above / below for above, below in zip(costs["mcp"], costs[NATIVE], strict=True)
        ),
    }


async def client_streams(bench: BenchEnvironment) -> Numbers:
    """Measure 100 streams of 50 chunks of each API, in turn with the native one."""
    async with open_portico(bench.cores, bench.upstream.port) as portico:
        for api in APIS.values():
            warm = [await open_stream_client(portico.port, api.stream, api.ends) for _ in range(2)]
            await asyncio.gather(*(reader.done for reader in warm))
        costs: dict[str, list[float]] = {name: [] for name in APIS}
        for _ in range(WAVES):
            for name, api in APIS.items():
                costs[name].append((await stream_wave(portico, api.stream, api.ends)).cpu_seconds)
    a_chunk_us = 1e6 / (STREAMS * CHUNKS)
    return {
        f"clients_{name}_chunk_more_us": _more(costs[name], costs[NATIVE]) * a_chunk_us
        for name in APIS
        if name != NATIVE
    }


async def _rounds(portico: MeasuredProcess) -> tuple[bytes, bytes]:
    """Return two requests that send the same conversation with the result of a call: new here, and of this service."""
    function = {"name": "roll_dice", "parameters": {"type": "object"}}
    asked: dict[str, Any] = {
        "model": "default",
        "messages": [{"role": "user", "content": f"{ROLL}: roll two dice"}],
        "tools": [{"type": "function", "function": function}],
    }
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{portico.port}") as session,
        session.post(_CHAT, json=asked) as answer,
    ):
        message = (await answer.json())["choices"][0]["message"]
    [call] = message["tool_calls"]

    def with_result(call_id: str) -> bytes:
        result = {"role": "tool", "tool_call_id": call_id, "content": "[3, 4]"}
        called = {**message, "tool_calls": [{**call, "id": call_id}]}
        return request({**asked, "messages": [*asked["messages"], called, result]}, path=_CHAT)

    return with_result("call_of_another_service_0000000000000_00"), with_result(call["id"])


def _tool_call() -> bytes:
    """Return a call of the tool `execute` over MCP."""
    client = {"clientInfo": {"name": "bench", "version": "1"}, "clientCapabilities": {}}
    meta = {
        f"io.modelcontextprotocol/{name}": each for name, each in {"protocolVersion": _MCP_VERSION, **client}.items()
    }
    params = {"name": "execute", "arguments": {"message": "What is the answer?"}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    sent = request(body, path="/mcp").replace(
        b"Accept: application/json", b"Accept: application/json, text/event-stream", 1
    )
    return sent.replace(b"\r\n\r\n", _MCP_HEAD.encode(), 1)


def _more(costs: Sequence[float], beside: Sequence[float]) -> float:
    """Return the median of the differences of values that were measured in turn."""
    return statistics.median(above - below for above, below in zip(costs, beside, strict=True))


CLIENT_SCENARIOS: Final[tuple[Scenario, ...]] = (clients, client_streams, client_text)
