"""Serves an emulated provider over loopback, for an official client and for our engine alike."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.http.aiohttp_transport import AiohttpTransport, Route, open_session
from portico.adapters.engines.http.engine import Endpoint, HttpEngine
from portico.ports.model import EngineCapabilities, EngineProfile
from tests.support.emulators.answers import EmulatedAnswer, EmulatedResponse
from tests.support.upstream import Script, ScriptedUpstream, chunk
from tests.support.virtual_time import VirtualClock

KEY = "sk-canary-5f0c"
Respond: TypeAlias = Callable[[str, Mapping[str, str], bytes, EmulatedAnswer], EmulatedResponse]


class EmulatedServer(ScriptedUpstream):
    """Answers each request, one after the other, as the emulator does that is asked with it.

    What it refused is in `refusals`: pairs of status and body.
    """

    def __init__(self, respond: Respond, answer: EmulatedAnswer) -> None:
        super().__init__(())
        self._respond = respond
        self._answer = answer
        self.refusals: list[tuple[int, bytes]] = []

    def _next(self) -> Script:
        received = self.requests[-1]
        response = self._respond(received.path, received.headers, received.body, self._answer)
        if response.status >= 400:
            self.refusals.append((response.status, b"".join(response.pieces)))
        return _script(response)


@asynccontextmanager
async def engine_at(
    base_url: str,
    dialect: Dialect,
    *,
    model: str = "some-model",
    capabilities: EngineCapabilities | None = None,
    options: frozenset[str] = frozenset(),
) -> AsyncIterator[HttpEngine]:
    """Our engine, asking that server in that dialect with `KEY`."""
    profile = EngineProfile(
        "primary", model, "emulated", 128_000, 4_096, options, None, capabilities or EngineCapabilities()
    )
    async with http_engine(profile, dialect, Endpoint(base_url, lambda: KEY)) as engine:
        yield engine


@asynccontextmanager
async def http_engine(
    profile: EngineProfile,
    dialect: Dialect,
    endpoint: Endpoint,
    on_unknown_frames: Callable[[str, int], None] = lambda _provider, _frames: None,
) -> AsyncIterator[HttpEngine]:
    """Yield an HTTP engine with connections of its own."""
    async with open_session() as session:
        transport = AiohttpTransport(session, Route(endpoint.timeouts.connect_seconds))
        yield HttpEngine(
            profile,
            dialect,
            endpoint=endpoint,
            transport=transport,
            clock=VirtualClock(),
            on_unknown_frames=on_unknown_frames,
        )


def _script(response: EmulatedResponse) -> Script:
    """One piece is a body of known length, several are chunks as they are sent."""
    body = response.pieces
    streamed = len(body) != 1
    framing = {"Transfer-Encoding": "chunked"} if streamed else {"Content-Length": str(len(body[0]))}
    lines = [f"{name}: {value}" for name, value in (dict(response.headers) | framing).items()]
    head = "\r\n".join([f"HTTP/1.1 {response.status} Emulated", *lines, "", ""]).encode()
    return [head, *(chunk(piece) for piece in body), b"0\r\n\r\n"] if streamed else [head + body[0]]
