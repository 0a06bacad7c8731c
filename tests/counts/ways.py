"""The ways whose calls are counted, each in a service of its own with a scripted engine.

A way runs three times before it is counted. The work of the database's thread is counted too: here it runs on the event
loop, in an order that is always the same. Virtual time stands still meanwhile, so that nothing periodic is counted.

The ways of a served request begin at the first byte that the server receives and end at the last one that it sends, and
the engine is an OpenAI server on loopback. Virtual time stands still there, too, except between two chunks of a stream.
"""

import asyncio
import gc
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple

import fastapi
import orjson
import starlette
from fastapi import FastAPI

import portico
from bench.calls import Call, recorded_calls
from bench.few_tools import FEW_TOOLS
from bench.load import request
from bench.passes import reasoning, replies
from bench.scenarios import CHAT_REQUEST, STREAM_REQUEST
from bench.upstream import ROLL, open_upstream
from bench.walk import changes_of_file, post_execution, walk
from portico.bootstrap.service import open_service
from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.domain.ids import IdempotencyKey
from portico.domain.lifecycle import State
from portico.entrypoints.http.app import create_app
from portico.orchestration.facade import CallOptions
from portico.settings import Settings
from tests.support.http_server import ClientConnection, running_server
from tests.support.inline_loop import InlineLoop

FRAMEWORK: Final = "FastAPI and Starlette"
"""The way without a bound: its calls depend on their release."""
WARM_UP: Final = 3
CHUNKS: Final = 10
DEPLOYMENTS: Final = 16
CHATS_BEFORE: Final = 200
"""Chats after which each deployment has answered one, so that none is counted as new."""
CONTEXT_WINDOW: Final = 1_000_000
TEXT: Final = {"text": "The answer is forty-two."}
CALL: Final = {"tool_calls": [{"name": FEW_TOOLS[0], "arguments": {"number": 1}}]}
CHAT: Final = {"messages": [{"role": "user", "content": "What is the answer?"}]}
FEATURES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "agents": {"counter": {"description": "Does sums.", "system_prompt": "You do sums."}},
        "planner": {"kind": "static", "steps": [{"name": "only", "type": "infer", "input": "Why?"}]},
        "flows": {"modules": ["tests.support.example_flows"]},
        "memory": {"dimensions": 64},
    }
)
SKILL: Final = "---\nname: answers\ndescription: How to answer\ntriggers: [answer]\n---\nAnswer briefly.\n"


class Way(NamedTuple):
    """The number of a way, and the calls that it comes from, by file and function."""

    number: int
    functions: Counter[str]


def measured_ways() -> Mapping[str, Way]:
    """Return all ways by name."""
    with asyncio.Runner(loop_factory=InlineLoop) as runner:
        return runner.run(_measure())


def unfreed_objects(requests: int) -> Mapping[str, int]:
    """Return how many objects so many chats, tool rounds and streams leave that only a collection of cycles frees."""
    with asyncio.Runner(loop_factory=InlineLoop) as runner:
        return runner.run(_unfreed_objects(requests))


def packages(way: Way) -> Mapping[str, int]:
    """Return the calls by package: a layer, or a folder of it."""
    parts = Counter[str]()
    for name, calls in way.functions.items():
        parts["/".join(name.split(":")[0].split("/")[:-1][:2])] += calls
    return parts


def functions(way: Way) -> str:
    """Return the functions of the way with their calls, most first, a line each."""
    return "\n".join(f"{calls:>6} {name}" for name, calls in way.functions.most_common())


async def _measure() -> dict[str, Way]:
    return {
        "chat": _way(chat := await _chat()),
        "features that a chat does not name": _way(_more(await _chat_beside_features(), chat)),
        "one more tool round": _way(_more(await _tool_rounds(2), await _tool_rounds(1))),
        "one more streamed chunk": _way(_more(await _stream(2 * CHUNKS), await _stream(CHUNKS)), CHUNKS),
        "journaled instead of in memory": _way(_more(await _chat(journaled=True), chat)),
        **await _pass_ways(),
        "changes of file": await _changes_of_file(),
        **await _served_ways(),
        FRAMEWORK: _way(await _framework()),
    }


def _way(functions: Counter[str], units: int = 1) -> Way:
    return Way(round(functions.total() / units), functions)


def _more(longer: Counter[str], shorter: Counter[str]) -> Counter[str]:
    """Return the difference; a function that the longer way calls less often counts against it."""
    more = Counter(longer)
    more.subtract(shorter)
    return Counter({name: calls for name, calls in more.items() if calls})


async def _chat(*, journaled: bool = False, **tables: Any) -> Counter[str]:
    async with _app([TEXT], **tables) as app:
        return await _executed(app, _request(), journaled=journaled)


async def _chat_beside_features() -> Counter[str]:
    with tempfile.TemporaryDirectory(prefix="portico-counts-") as directory:
        (Path(directory) / "answers.md").write_text(SKILL, encoding="utf-8")
        return await _chat(**FEATURES, skills={"directory": directory})


async def _tool_rounds(rounds: int) -> Counter[str]:
    async with _app([*[CALL] * rounds, TEXT], tools={"modules": ["bench.few_tools"]}) as app:
        return await _executed(app, _request(tools=list(FEW_TOOLS[:1])))


async def _passes(passes: int) -> Counter[str]:
    async with _app(list(replies(passes))) as app:
        return await _executed(app, reasoning(passes))


async def _pass_ways() -> dict[str, Way]:
    calls = {passes: await _passes(passes) for passes in (2, 3, 4, 19, 20)}
    third, twentieth = _more(calls[3], calls[2]), _more(calls[20], calls[19])
    percent = round(100 * twentieth.total() / third.total())
    return {
        "one more pass, of 2 to 4": _way(_more(calls[4], calls[2]), 2),
        "the 20th pass, in percent of the 3rd": Way(percent, _more(twentieth, third)),
    }


async def _stream(chunks: int) -> Counter[str]:
    async with _app([{"chunks": ["word "] * chunks}]) as app:

        async def stream() -> None:
            sent = await post_execution(app, orjson.dumps(CHAT), b"text/event-stream")
            assert b"".join(each.get("body", b"") for each in sent).count(b"event: inference.delta") == chunks

        return await _counted(stream)


async def _unfreed_objects(requests: int) -> dict[str, int]:
    sent = {"chat": CHAT_REQUEST, "tool round": _tool_request(1), "stream": STREAM_REQUEST}
    found = dict[str, int]()
    async with open_upstream() as upstream, _served(upstream.port) as client:
        upstream.chunks = CHUNKS
        for name, request in sent.items():
            for _ in range(WARM_UP):
                await _send(client, request)
            gc.collect()
            gc.disable()
            try:
                for _ in range(requests):
                    await _send(client, request)
                found[name] = gc.collect()
            finally:
                gc.enable()
    return found


async def _served_ways() -> dict[str, Way]:
    async with open_upstream() as upstream, _served(upstream.port) as client:
        chat = await _counted(partial(_send, client, CHAT_REQUEST))
        one_round = await _counted(partial(_send, client, _tool_request(1)))
        two_rounds = await _counted(partial(_send, client, _tool_request(2)))
        upstream.chunks = CHUNKS
        stream = await _counted(partial(_send, client, STREAM_REQUEST))
        upstream.chunks = 2 * CHUNKS
        longer_stream = await _counted(partial(_send, client, STREAM_REQUEST))
    async with open_upstream() as upstream, _served(upstream.port, DEPLOYMENTS) as client:
        for _ in range(CHATS_BEFORE):
            await _send(client, CHAT_REQUEST)
        # The first chat of a deployment in a minute of the real clock takes more calls.
        deployed = min([await _counted(partial(_send, client, CHAT_REQUEST)) for _ in range(3)], key=Counter.total)
    return {
        "served chat": _way(chat),
        "one more served tool round": _way(_more(two_rounds, one_round)),
        "one more served chunk": _way(_more(longer_stream, stream), CHUNKS),
        "served chat on 16 deployments, more": _way(_more(deployed, chat)),
    }


@asynccontextmanager
async def _served(upstream: int, deployments: int = 0) -> AsyncIterator[ClientConnection]:
    """Connect to a running server whose engine is the upstream at that port, behind so many deployments."""
    engine: dict[str, Any] = {"model": "openai://bench", "base_url": f"http://127.0.0.1:{upstream}/v1"}
    if deployments:
        engine["deployments"] = {f"d{number}": {"headers": {"X-Key": f"{number}"}} for number in range(deployments)}
    with tempfile.TemporaryDirectory(prefix="portico-counts-") as directory:
        app = _created(Path(directory), {"engines": {"openai": engine}})
        async with running_server(app) as server, server.connect() as client:
            yield client


def _tool_request(rounds: int) -> bytes:
    return request({"messages": [{"role": "user", "content": ROLL * rounds}], "tools": ["roll_dice"]})


async def _send(client: ClientConnection, data: bytes) -> None:
    await client.send(data)
    answer = await client.answer()
    assert answer.status == 200, answer
    assert b'"COMPLETE"' in answer.body or b"event: execution.completed" in answer.body, answer


async def _framework() -> Counter[str]:
    """Return the calls of the web framework for one chat."""
    async with _app([TEXT]) as app:

        async def chat() -> None:
            await post_execution(app, orjson.dumps(CHAT))

        return await _counted(chat, fastapi, starlette)


async def _changes_of_file() -> Way:
    calls = await walk()
    return Way(changes_of_file(calls), _by_function(calls))


async def _executed(app: FastAPI, request: SystemRequest, *, journaled: bool = False) -> Counter[str]:
    """Return the calls from the facade to the answer."""
    keys = count()

    async def execute() -> None:
        key = IdempotencyKey(f"key-{next(keys)}") if journaled else None
        handle = await app.state.service.facade.execute(request, LOCAL, CallOptions(idempotency_key=key))
        ended = asyncio.Event()
        handle.add_done_callback(ended.set)
        await ended.wait()
        assert handle.response.state is State.COMPLETE, handle.response

    return await _counted(execute)


async def _counted(run: Callable[[], Awaitable[None]], *packages: ModuleType) -> Counter[str]:
    """Return the calls of functions of the packages, by default of Portico, after others have warmed up the service."""
    for _ in range(WARM_UP):
        await run()
    with recorded_calls(*packages or (portico,)) as recorder:
        await run()
    return _by_function(recorder.calls())


def _request(**fields: Any) -> SystemRequest:
    return SystemRequest.model_validate({**CHAT, **fields})


def _by_function(calls: Sequence[Call]) -> Counter[str]:
    return Counter(f"{call.file}: {call.function}" for call in calls)


@asynccontextmanager
async def _app(script: Sequence[Mapping[str, Any]], **tables: Any) -> AsyncIterator[FastAPI]:
    """Open a service whose engine answers each run from the script."""
    with tempfile.TemporaryDirectory(prefix="portico-counts-") as directory:
        path = Path(directory) / "script.json"
        path.write_bytes(orjson.dumps([*script] * (WARM_UP + 1)))
        engine = {"model": f"scripted://{path}", "context_window": CONTEXT_WINDOW}
        app = _created(Path(directory), {"engines": {"script": engine}, **tables})
        async with app.router.lifespan_context(app):
            yield app


def _created(directory: Path, tables: Mapping[str, Any]) -> FastAPI:
    settings = {
        "storage": {"url": f"sqlite:///{directory}/portico.db"},
        "telemetry": {"log_level": "error"},
    }
    return create_app(Settings.model_validate({**settings, **tables}), open_service)
