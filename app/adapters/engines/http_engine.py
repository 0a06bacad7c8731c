"""Asks a provider over HTTP, once, and reads its answer as it arrives, whatever dialect it is in.

Nothing is retried or redirected here, and a compressed answer, which is never asked for, is refused rather than
unpacked.

Four times bound an attempt, each counted on its own:

- `connect`: name, connection and TLS together. Nothing was sent, so passing it means unreachable.
- `attempt`: everything.
- `first_token`, for streams: from the start to the first text, reasoning or call. Comments and empty deltas that keep
  a connection alive are no token.
- `idle`: between two reads of a body, from the first token of a stream or the first byte of a JSON body on. Any byte
  resets it, since a server that still writes is not idle; one that only ever keeps alive ends with `attempt`.

A stream is left at its end marker; its connection is kept when the body ends within `LINGER` seconds, and aborted like
that of every reply that was refused, cut off or given up. What goes wrong with a connection behind a terminal marker
changes nothing any more.
"""

import io
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import aiohttp
import anyio
import anyio.to_thread
import orjson

from app.adapters.engines.dialect import (
    Answer,
    CountingDialect,
    Delta,
    Dialect,
    EmbeddingDialect,
    Encoded,
    WaitingDialect,
    malformed,
)
from app.adapters.engines.event_stream import EventStream
from app.adapters.engines.http_session import fault_of
from app.adapters.engines.json_lines import JsonLines
from app.adapters.engines.retry_after import retry_after
from app.domain.effects import EngineCall, Reason, Reply
from app.ports import Clock, EngineFault, EngineProfile, Progress

ERROR_BYTES = 64 * 2**10
ERROR_SECONDS = 2.0
LINGER = 0.1
OFF_LOOP_BYTES = 64 * 2**10
WHOLE_BODY_BYTES = 2**20
REACHED = frozenset({200, 404})
_Splitter: TypeAlias = type[EventStream] | type[JsonLines]
STREAMED: Final[Mapping[str, _Splitter]] = {"text/event-stream": EventStream, "application/x-ndjson": JsonLines}
"""What cuts a stream, by its media type. Anything else is read as one JSON body."""
_T = TypeVar("_T")
_Request: TypeAlias = AbstractAsyncContextManager[aiohttp.ClientResponse]
_Read: TypeAlias = Callable[[aiohttp.ClientResponse], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long is waited for what, in seconds."""

    connect: float = 5
    attempt: float = 120
    first_token: float = 60
    idle: float = 30


@dataclass(frozen=True, slots=True)
class Caps:
    """How much is read of one reply, in bytes."""

    response: int = 32 * 2**20
    line: int = 4 * 2**20

    def check(self, received: int) -> None:
        """Raises: EngineFault when more was received of one reply than may be."""
        if received > self.response:
            raise malformed(f"the reply is longer than {self.response} bytes")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine is reached, how long it is waited and how much read. `api_key` is asked anew every attempt."""

    base_url: str
    api_key: Callable[[], str | None]
    timeouts: Timeouts = Timeouts()
    caps: Caps = Caps()


class HttpEngine:
    """Implements `Engine` for every provider that is spoken to over HTTP. The session belongs to whoever made it."""

    def __init__(
        self,
        profile: EngineProfile,
        dialect: Dialect,
        *,
        endpoint: Endpoint,
        session: aiohttp.ClientSession,
        clock: Clock,
    ) -> None:
        self._profile = profile
        self._dialect = dialect
        self._endpoint = endpoint
        self._base = endpoint.base_url.rstrip("/")
        self._session = session
        self._clock = clock
        self._patience = aiohttp.ClientTimeout(total=None, connect=endpoint.timeouts.connect)

    @property
    def profile(self) -> EngineProfile:
        return self._profile

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        reading = _Reading(self._dialect, progress, self._endpoint, streamed=stream)
        with reading.scope:
            read = partial(self._read, reading)
            fault = await self._exchange(self._asking(call, reading, stream=stream), read)
            if fault is not None and not reading.answer.whole:
                raise fault
        return reading.reply(self._profile.model)

    def _asking(self, call: EngineCall, reading: "_Reading", *, stream: bool) -> _Request:
        encoded = self._dialect.encode(call, self._profile, stream=stream)
        reading.withheld = encoded.withheld
        return self._post(encoded)

    async def reach(self) -> str:
        with anyio.move_on_after(self._endpoint.timeouts.idle):
            headers = self._dialect.headers(self._endpoint.api_key())
            fault = await self._exchange(self._request("GET", self._dialect.probe, headers), self._reached)
            if fault is not None:
                raise fault
            return "answered"
        raise EngineFault(Reason.TIMED_OUT, "the provider did not answer in time")

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        dialect = self._dialect
        if not isinstance(dialect, EmbeddingDialect):
            raise EngineFault(Reason.REFUSED, "this provider makes no embeddings")
        vectors = await self._asked(dialect.encode_embeddings(texts, self._profile.model), dialect.decode_embeddings)
        if len(vectors) != len(texts):
            raise malformed("the reply has not one vector a text")
        return vectors

    async def count(self, call: EngineCall) -> int | None:
        dialect = self._dialect
        if not isinstance(dialect, CountingDialect):
            return None
        return await self._asked(dialect.encode_count(call, self._profile), dialect.decode_count)

    async def _asked(self, encoded: Encoded, decode: Callable[[bytes], _T]) -> _T:
        """What a JSON reply says that is no answer of a model."""
        body = bytearray()

        async def read(response: aiohttp.ClientResponse) -> None:
            await self._refuse_failures(response)
            while piece := await response.content.readany():
                body.extend(piece)
                self._endpoint.caps.check(len(body))

        with anyio.move_on_after(self._endpoint.timeouts.attempt):
            fault = await self._exchange(self._post(encoded), read)
            if fault is not None:
                raise fault
            return await _off_loop(decode, bytes(body))
        raise EngineFault(Reason.TIMED_OUT, "the provider did not answer in time")

    def _post(self, encoded: Encoded) -> _Request:
        """The request, not yet sent; nobody else holds what it says, so that it is gone once it was."""
        headers = self._dialect.headers(self._endpoint.api_key()) | {"Content-Type": "application/json"}
        return self._request("POST", encoded.path, headers, _payload(encoded.body))

    def _request(
        self, method: str, path: str, headers: dict[str, str], body: bytes | io.BytesIO | None = None
    ) -> _Request:
        return self._session.request(
            method, self._base + path, data=body, headers=headers, allow_redirects=False, timeout=self._patience
        )

    async def _exchange(self, request: _Request, read: _Read) -> EngineFault | None:
        """Sends the request; `read` gets the response. Returns what went wrong with the connection or with HTTP."""
        try:
            async with request as response:
                try:
                    await read(response)
                finally:
                    if not response.content.at_eof():
                        response.close()
        except (aiohttp.ClientError, OSError) as cause:
            return fault_of(cause)
        return None

    async def _reached(self, response: aiohttp.ClientResponse) -> None:
        if response.status not in REACHED:
            raise await self._refusal(response)

    async def _refuse_failures(self, response: aiohttp.ClientResponse) -> None:
        if not 200 <= response.status < 300:
            raise await self._refusal(response)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise malformed("the reply is compressed, which was not asked for")

    async def _read(self, reading: "_Reading", response: aiohttp.ClientResponse) -> None:
        await self._refuse_failures(response)
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if media_type in STREAMED:
            await reading.events(response.content, STREAMED[media_type])
        else:
            await reading.document(response.content)

    async def _refusal(self, response: aiohttp.ClientResponse) -> EngineFault:
        """What a status that is no success means. Nothing of the body leaves here."""
        body = b""
        with suppress(aiohttp.ClientError), anyio.move_on_after(ERROR_SECONDS):
            while len(body) < ERROR_BYTES and (piece := await response.content.readany()):
                body += piece
        reason = self._dialect.reason(response.status, body)
        wait = retry_after(response.headers, self._clock.now())
        if wait is None and isinstance(self._dialect, WaitingDialect):
            wait = self._dialect.retry_after(body)
        return EngineFault(reason, f"the provider answered with status {response.status}", wait)


class _Reading:
    """One reply as it arrives: what it says so far, who is told of it, and how long it is still waited for."""

    def __init__(self, dialect: Dialect, progress: Progress, endpoint: Endpoint, *, streamed: bool) -> None:
        self._dialect = dialect
        self._progress = progress
        self._streamed = streamed
        self._caps = endpoint.caps
        timeouts = endpoint.timeouts
        self._idle = timeouts.idle
        self._now = get_running_loop().time
        now = self._now()
        self._end = now + timeouts.attempt
        first = min(self._end, now + timeouts.first_token) if streamed else self._end
        self.answer = Answer(dialect.finishes)
        self.withheld: tuple[str, ...] = ()
        self.scope = anyio.CancelScope(deadline=first)
        self._late: Delta | None = None
        self._moves_at = 0.0

    def reply(self, model: str) -> Reply:
        """The whole reply. A JSON body that was to be a stream is published here, once it is known to be sound."""
        if self.scope.cancelled_caught and not self.answer.whole:
            raise EngineFault(Reason.TIMED_OUT, "the provider did not answer in time")
        reply = self.answer.reply(model)
        if self._late is not None:
            self._publish(self._late)
        return replace(reply, withheld=self.withheld) if self.withheld else reply

    async def events(self, content: aiohttp.StreamReader, splitter: _Splitter) -> None:
        """Reads a stream to its end marker. The empty piece at the end of a body is for the splitter too."""
        stream = splitter(self._caps.line)
        received = 0
        while True:
            piece = await content.readany()
            received = self._counted(received, piece)
            for data in stream.feed(piece):
                delta = self._dialect.decode_chunk(data)
                self._take(delta)
                self._publish(delta)
                if self.answer.done:
                    await _linger(content)
                    return
            if not piece:
                return
            if self.answer.begun:
                self._rest()

    async def document(self, content: aiohttp.StreamReader) -> None:
        """Reads a JSON body."""
        if self._streamed:
            self.scope.deadline = self._end
        pieces: list[bytes] = []
        received = 0
        while not content.at_eof() and (piece := await content.readany()):
            received = self._counted(received, piece)
            pieces.append(piece)
            if not content.at_eof():
                self._rest()
        delta = await _off_loop(self._dialect.decode, b"".join(pieces))
        self._take(delta)
        self._late = delta if self._streamed else None

    def _take(self, delta: Delta) -> None:
        self.answer.add(delta)
        if delta.usage is not None:
            self._progress.usage(self.answer.usage)

    def _publish(self, delta: Delta) -> None:
        if delta.text:
            self._progress.text(delta.text)
        if delta.reasoning:
            self._progress.reasoning(delta.reasoning)

    def _counted(self, received: int, piece: bytes) -> int:
        received += len(piece)
        self._caps.check(received)
        return received

    def _rest(self) -> None:
        """Waits `idle` from now on, or a fiftieth more, for moving the deadline at every read costs 10 µs each."""
        now = self._now()
        if now >= self._moves_at:
            self._moves_at = now + self._idle / 50
            self.scope.deadline = min(self._end, self._moves_at + self._idle)


def _payload(body: dict[str, Any]) -> bytes | io.BytesIO:
    """Large bodies are written in pieces, so that one does not hold up all others.

    The copy is exact: orjson's own bytes keep up to four times the room they need, for as long as an answer streams.
    """
    data = bytes(memoryview(orjson.dumps(body)))
    return data if len(data) <= WHOLE_BODY_BYTES else io.BytesIO(data)


async def _off_loop(decode: Callable[[bytes], _T], body: bytes) -> _T:
    """Decodes a large body on a worker thread, so that it does not hold up all others."""
    if len(body) <= OFF_LOOP_BYTES:
        return decode(body)
    return await anyio.to_thread.run_sync(decode, body, abandon_on_cancel=True)


async def _linger(content: aiohttp.StreamReader) -> None:
    if not content.at_eof():
        with anyio.move_on_after(LINGER):
            await content.readany()
