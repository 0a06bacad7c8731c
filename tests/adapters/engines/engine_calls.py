"""Calls, engines and progress for the tests of the engines."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.http.engine import Endpoint, HttpEngine
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.timeouts import Timeouts
from portico.adapters.engines.wire.reply_builder import ReplyBuilder
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineError, EngineProfile
from tests.support.emulators.server import http_engine

KEY = "sk-canary-5f0c"
HELLO = (Message(role="user", content="Hello"),)
HI_REPLY = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}


def call(
    messages: Sequence[Message] = HELLO, tools: Sequence[ToolDefinition] = (), hints: ExecutionHints | None = None
) -> EngineCall:
    return EngineCall(messages, tools, hints or ExecutionHints())


def profile(model: str = "some-model", options: frozenset[str] = frozenset()) -> EngineProfile:
    return EngineProfile("primary", model, "openai", 128_000, 4_096, options)


@asynccontextmanager
async def engine(base_url: str, timeouts: Timeouts | None = None, key: str | None = KEY) -> AsyncIterator[HttpEngine]:
    endpoint = Endpoint(base_url, lambda: key, timeouts or Timeouts())
    async with http_engine(profile(), ChatCompletionsDialect(), endpoint) as built:
        yield built


def encode(body: Any) -> bytes:
    """The body as it is when it is bytes, else as JSON."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@dataclass(frozen=True)
class DialectReader:
    """Reads in one dialect what a test says that a provider sends."""

    dialect: Dialect

    def whole(self, body: Any) -> Reply:
        """The reply that one JSON body is."""
        answer = ReplyBuilder(self.dialect.finish_reasons)
        answer.add(self.dialect.decode(encode(body)))
        return answer.build("asked")

    def streamed(self, *chunks: Any) -> Reply:
        """The reply that these pieces of a stream are."""
        answer = ReplyBuilder(self.dialect.finish_reasons)
        for chunk in chunks:
            answer.add(self.dialect.decode_chunk(encode(chunk)))
        return answer.build("asked")


def fault_reason(read: Callable[..., object], *bodies: Any) -> AttemptFailureReason:
    """Return the reason of the fault that reading raises."""
    with pytest.raises(EngineError) as caught:
        read(*bodies)
    return caught.value.reason


def chat_chunk(text: str | None = None, finish: str | None = None, **members: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    delta = {} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": delta | members, "finish_reason": finish}]}
