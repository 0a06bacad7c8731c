"""The way of one chat through the service: every function of `portico` that runs, in order, without the adapters.

`python -m bench.walk` sends one chat to the ASGI application, with a scripted engine behind it, and records its calls.
The number of changes of file says how often a reader has to turn to another file.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import orjson
from fastapi import FastAPI
from starlette.types import Message

import portico
from bench.calls import Call, recorded_calls
from portico.bootstrap.service import open_service
from portico.entrypoints.http.app import create_app
from portico.settings import Settings, load_settings

TEXT = "The answer is forty-two."
BODY = orjson.dumps({"messages": [{"role": "user", "content": "What is the answer?"}]})
WARM_UP = 3


def changes_of_file(calls: Sequence[Call]) -> int:
    """Return how often a call is in another file than the call before it."""
    return sum(before.file != after.file for before, after in pairwise(calls))


def lines(calls: Sequence[Call]) -> Iterator[str]:
    """Yield the way, a function per line under the file that it is in, and its figures."""
    file = ""
    for call in calls:
        if call.file != file:
            yield call.file
        file = call.file
        yield f"    {'. ' * call.depth}{call.function}"
    files = len({call.file for call in calls})
    yield f"{len(calls)} calls in {files} files, {changes_of_file(calls)} changes of file"


async def walk() -> list[Call]:
    """Return the calls of one chat, without those of the adapters."""
    return [call for call in await chat_calls(portico) if not call.file.startswith("adapters/")]


async def chat_calls(*packages: ModuleType) -> list[Call]:
    """Return the calls of these packages for one chat, after some others have warmed up the service."""
    with tempfile.TemporaryDirectory(prefix="portico-walk-") as directory:
        app = create_app(_settings(Path(directory)), open_service)
        async with app.router.lifespan_context(app):
            for _ in range(WARM_UP):
                await _chat(app)
            with recorded_calls(*packages) as recorder:
                await _chat(app)
    return recorder.calls()


def _settings(directory: Path) -> Settings:
    script, path = directory / "script.json", directory / "portico.toml"
    reply = {"text": TEXT, "usage": {"input_tokens": 9, "output_tokens": 7, "total_tokens": 16}}
    script.write_bytes(orjson.dumps([reply] * (WARM_UP + 1)))
    path.write_text(
        f'[engines.script]\nmodel = "scripted://{script}"\n'
        f'[storage]\nurl = "sqlite:///{directory}/portico.db"\n'
        '[telemetry]\nlog_level = "error"\n',
        encoding="utf-8",
    )
    return load_settings({}, path, local_model=lambda: None)


async def _chat(app: FastAPI) -> None:
    """Send one chat and check its answer."""
    sent = await post_execution(app, BODY)
    assert sent[0]["status"] == 200, sent


async def post_execution(
    app: FastAPI, body: bytes, accept: bytes = b"*/*", *, path: str = "/v1/execute"
) -> list[Message]:
    """Send the body to that path, past the server, and return the messages of the answer."""
    sent: list[Message] = []
    request = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        message = next(request, None)
        if message is None:
            await asyncio.Event().wait()
        return message or {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"accept", accept)]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }
    await app(scope, receive, send)
    return sent


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines(asyncio.run(walk()))) + "\n")
