"""Calls to a local engine in its tests."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from portico.adapters.engines.llama_cpp.engine import LlamaCppEngine
from portico.adapters.engines.timeouts import Timeouts
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall, Reply
from portico.ports.model import EngineError, EngineProfile
from tests.support.engine_calls import RecordedProgress

HELLO = Message(role="user", content="Hello")
MISSING = "needs the extra llamacpp and gguf: make test-llamacpp"
PATIENCE = Timeouts(attempt_seconds=300, first_token_seconds=300, idle_seconds=300)


def local(
    path: Path, *options: str, window: int = 2048, reserve: int = 200, timeouts: Timeouts = PATIENCE
) -> LlamaCppEngine:
    profile = EngineProfile("local", str(path), "llamacpp", window, reserve, frozenset(options))
    return LlamaCppEngine(profile, timeouts)


def call(
    *messages: Message, schema: Mapping[str, Any] | None = None, grammar: str | None = None, **hints: Any
) -> EngineCall:
    return EngineCall(messages or (HELLO,), (), ExecutionHints(**hints), schema, grammar)


async def ask(engine: LlamaCppEngine, *messages: Message, **what: Any) -> Reply:
    return await engine.attempt(call(*messages, **what), RecordedProgress(), stream=False)


async def loaded(engine: LlamaCppEngine) -> None:
    """Wait for the model, for any timeouts: a load continues without its caller."""
    reached = ""
    while not reached:
        with suppress(EngineError):
            reached = await engine.ping()


class StartedProgress(RecordedProgress):
    """A `Progress` that can be waited for: `heard` is set when the first text arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = anyio.Event()

    def text(self, piece: str) -> None:
        super().text(piece)
        self.heard.set()
