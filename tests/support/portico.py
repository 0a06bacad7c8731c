"""A whole service behind HTTP, answered by the rehearsal engine, and what tests send to it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from portico.bootstrap.service import Service
from portico.entrypoints.http.app import create_app
from portico.settings import Settings
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes, running_server

EVENTS = {"Accept": "text/event-stream"}
RESPOND_ASYNC = {"Prefer": "respond-async"}
JSON_BODY = {"Content-Type": "application/json"}
IDEMPOTENCY_KEY = {"Idempotency-Key": "k-1"}
QUOTE = "/v1/quote"
ASK_PERSON = 'Use ask_person: "May I?"'
"""A text for which the rehearsal engine suspends the execution."""


@asynccontextmanager
async def portico(**tables: Any) -> AsyncIterator[tuple[RunningServer, Service]]:
    """Run a whole service with these tables of the configuration; its store is gone when it closes."""
    app = create_app(Settings.model_validate({"storage": {"url": "sqlite://"}} | tables))
    async with running_server(app) as served:
        yield served, app.state.service


def chat(text: str, **changes: Any) -> bytes:
    """Return the body of a request with one user message."""
    return orjson.dumps({"messages": [{"role": "user", "content": text}], **changes})


def events(answer: HttpAnswer) -> list[dict[str, Any]]:
    """Return the data of every frame."""
    frames = answer.body.decode().split("\n\n")
    return [orjson.loads(line[6:]) for frame in frames for line in frame.split("\n") if line.startswith("data: ")]


def sequence_numbers(logged: Sequence[dict[str, Any]]) -> list[int]:
    """Return the sequence numbers of the events that have one."""
    return [event["sequence_number"] for event in logged if "sequence_number" in event]


async def resume(served: RunningServer, headers: dict[str, str] | None = None, **answer: Any) -> HttpAnswer:
    """Answer the suspension of the execution `q`."""
    body = orjson.dumps({"tool_id": "ask_person", "payload": "yes"} | answer)
    return await served.post(body, headers, path="/v1/executions/q/resume")


async def send_command(served: RunningServer, command: str, request_id: str = "q") -> HttpAnswer:
    """Cancel or replay an execution, without a body or a content type."""
    return await served.ask(request_bytes("POST", f"/v1/executions/{request_id}/{command}", {}))


async def listed_ids(served: RunningServer, query: str) -> list[str]:
    """Return the request ids of a listed page."""
    page = (await served.get(f"/v1/executions{query}")).json
    return [each["request_id"] for each in page["data"]]
