"""Metrics of a whole service: no value that a client controls makes a new series."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import orjson

from tests.support.http_server import RunningServer, request_bytes
from tests.support.portico import chat, portico

VALUES = 25
FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    **{
        name: lambda junk, name=name: {name: junk}
        for name in ("request_id", "session_id", "trace_id", "model", "agent", "mode", "flow", "on_limit", "after")
    },
    "unknown": lambda junk: {junk: junk},
    "tools": lambda junk: {"tools": [junk]},
    "metadata": lambda junk: {"metadata": {junk: junk}},
    "hints": lambda junk: {"hints": {"options": {junk: junk}}},
    "content": lambda junk: {"messages": [{"role": "user", "content": f"Please use {junk}"}]},
    "role": lambda junk: {"messages": [{"role": junk, "content": "Hi"}]},
    "step": lambda junk: {"mode": "plan", "plan": {"steps": [{"name": junk[:40], "type": "infer", "prompt": junk}]}},
    "step type": lambda junk: {"mode": "plan", "plan": {"steps": [{"name": "a", "type": junk}]}},
    "rule": lambda junk: {"output": {"rules": [{"type": junk, "name": junk}]}},
}
HEADERS = ("User-Agent", "Accept", "Prefer", "Idempotency-Key", "traceparent", "Authorization", "X-Request-Id", "Host")


def requests(junk: str) -> Iterator[bytes]:
    """Yield requests that have the junk in one place each."""
    json = {"Content-Type": "application/json"}
    for changes in FIELDS.values():
        body = {"messages": [{"role": "user", "content": "Hi"}], **changes(junk)}
        yield request_bytes("POST", "/v1/execute", json, orjson.dumps(body))
    for header in HEADERS:
        yield request_bytes("POST", "/v1/execute", {**json, header: junk}, chat("Hi"))
    yield request_bytes("POST", "/v1/execute", {"Content-Type": f"application/{junk}"}, chat("Hi"))
    yield request_bytes("GET", f"/{quote(junk)}", {})
    yield request_bytes("GET", f"/v1/executions/{quote(junk)}?{quote(junk)}={quote(junk)}", {})
    yield request_bytes(re.sub(r"\W", "", junk).upper(), "/v1/execute", {})


async def series(served: RunningServer) -> set[str]:
    """Return the names and labels of all series."""
    exposition = (await served.get("/metrics")).body.decode()
    return {line.rpartition(" ")[0] for line in exposition.splitlines() if not line.startswith("#")}


async def test_junk_in_every_place_of_a_request_makes_no_new_series() -> None:
    async with portico() as (served, _):
        for request in requests("first-junk"):
            await served.ask(request)
        before = await series(served)
        for number in range(VALUES):
            for request in requests(f"junk-{number}.{number * 7919}"):
                await served.ask(request)
        after = await series(served)
    assert after == before
    assert not [each for each in after if "junk" in each]
