"""Detection of an Ollama server on this machine."""

import socket
from typing import Any

import anyio.to_thread
import pytest

from portico.settings.ollama_probe import find_ollama_model
from tests.support.upstream import ScriptedUpstream, reply

MODELS = {"models": [{"name": "qwen3:8b"}, {"name": "older"}]}


async def asked(body: Any) -> str | None:
    async with ScriptedUpstream(reply(body)) as upstream:
        port = int(upstream.url.rpartition(":")[2])
        return await anyio.to_thread.run_sync(find_ollama_model, port)


async def test_the_newest_model_of_the_server_is_found() -> None:
    assert await asked(MODELS) == "qwen3:8b"


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"models": []}', b'{"models": [{"name": 1}]}', b'{"models": 3}']
)
async def test_another_server_on_that_port_is_ignored(body: bytes) -> None:
    assert await asked(body) is None


def test_without_a_server_there_is_no_model() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert find_ollama_model(taken.getsockname()[1]) is None
