"""The HTTP server that comes with llama-cpp-python, through the OpenAI-compatible dialect and its `grammar` field."""

import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL
from types import ModuleType

import anyio
import pytest

from portico.adapters.engines.http.engine import HttpEngine
from portico.capabilities.output.grammar import Grammar
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import HELLO, engine
from tests.llamacpp.engine_calls import MISSING
from tests.llamacpp.grammars import GRAMMARS
from tests.support.engine_calls import RecordedProgress

pytest.importorskip("gguf", reason=MISSING)
pytest.importorskip("llama_cpp.server.app", reason="needs the extra `server` of llama-cpp-python: make test-llamacpp")
Files = Callable[..., Path]
SENT_GRAMMARS = ("a choice", "dates", "balanced brackets", "letters beyond ASCII", "JSON")


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[HttpEngine]:
    """The server on a port of its own, ended by its id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "llama_cpp.server",
        "--model",
        str(path),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    async with await anyio.open_process(
        [*command, "--n_ctx", "2048"], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    ) as server:
        try:
            async with engine(f"http://127.0.0.1:{port}/v1") as asker:
                await _up(asker)
                yield asker
        finally:
            server.terminate()


async def _up(asker: HttpEngine) -> None:
    with anyio.fail_after(60):
        while True:
            with suppress(EngineError):
                await asker.ping()
                return
            await anyio.sleep(0.2)


@pytest.mark.parametrize("stream", [False, True])
async def test_its_answers_keep_the_grammar_that_was_sent(model_file: Files, tiny: ModuleType, stream: bool):
    async with served(model_file(favour=tiny.TERSE)) as asker:
        for name in SENT_GRAMMARS:
            heard = RecordedProgress()
            asked = EngineCall(
                HELLO, (), ExecutionHints(max_tokens=1500, temperature=1, seed=3), grammar=GRAMMARS[name]
            )
            reply = await asker.attempt(asked, heard, stream=stream)
            assert Grammar(GRAMMARS[name]).check(reply.text).accepted, (name, reply)
            assert reply.finish_reason == "stop"
            assert "".join(heard.texts) == (reply.text if stream else "")


async def test_without_a_grammar_it_says_anything(model_file: Files, tiny: ModuleType):
    async with served(model_file(favour=tiny.ENDLESS)) as asker:
        reply = await asker.attempt(
            EngineCall(HELLO, (), ExecutionHints(max_tokens=30)), RecordedProgress(), stream=False
        )
    assert (reply.finish_reason, reply.usage.output_tokens) == ("length", 30)
