"""What the engines' tests ask, and who hears what arrives."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.adapters.engines.answer import Answer
from app.adapters.engines.dialect import Dialect
from app.adapters.engines.http_engine import Endpoint, HttpEngine, Timeouts
from app.adapters.engines.http_session import open_session
from app.adapters.engines.openai_compatible import ChatCompletions
from app.domain.boundary import ExecutionHints, TokenUsage
from app.domain.effects import EngineCall, Reason, Reply
from app.domain.messages import Message
from app.domain.tools import ToolDefinition
from app.ports import EngineFault, EngineProfile
from tests.support.virtual_time import VirtualClock

KEY = "sk-canary-5f0c"
HELLO = (Message(role="user", content="Hello"),)
SAID = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}


@dataclass
class Heard:
    """A `Progress` that remembers."""

    texts: list[str] = field(default_factory=list)
    reasonings: list[str] = field(default_factory=list)
    usages: list[TokenUsage] = field(default_factory=list)

    def text(self, piece: str) -> None:
        self.texts.append(piece)

    def reasoning(self, piece: str) -> None:
        self.reasonings.append(piece)

    def usage(self, usage: TokenUsage) -> None:
        self.usages.append(usage)


def call(
    messages: Sequence[Message] = HELLO, tools: Sequence[ToolDefinition] = (), hints: ExecutionHints | None = None
) -> EngineCall:
    return EngineCall(messages, tools, hints or ExecutionHints())


def profile(model: str = "some-model", options: frozenset[str] = frozenset()) -> EngineProfile:
    return EngineProfile("primary", model, "openai", 128_000, 4_096, options)


@asynccontextmanager
async def engine(base_url: str, timeouts: Timeouts | None = None, key: str | None = KEY) -> AsyncIterator[HttpEngine]:
    endpoint = Endpoint(base_url, lambda: key, timeouts or Timeouts())
    async with open_session() as session:
        yield HttpEngine(profile(), ChatCompletions(), endpoint=endpoint, session=session, clock=VirtualClock())


def encode(body: Any) -> bytes:
    """The body as it is when it is bytes, else as JSON."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@dataclass(frozen=True)
class Reader:
    """Reads in one dialect what a test says that a provider sends."""

    dialect: Dialect

    def whole(self, body: Any) -> Reply:
        """The reply that one JSON body is."""
        answer = Answer(self.dialect.finishes)
        answer.add(self.dialect.decode(encode(body)))
        return answer.reply("asked")

    def streamed(self, *chunks: Any) -> Reply:
        """The reply that these pieces of a stream are."""
        answer = Answer(self.dialect.finishes)
        for chunk in chunks:
            answer.add(self.dialect.decode_chunk(encode(chunk)))
        return answer.reply("asked")


def fault(read: Callable[..., object], *bodies: Any) -> Reason:
    """Why reading these fails."""
    with pytest.raises(EngineFault) as caught:
        read(*bodies)
    return caught.value.reason


def said(text: str | None = None, finish: str | None = None, **members: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    delta = {} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": delta | members, "finish_reason": finish}]}
