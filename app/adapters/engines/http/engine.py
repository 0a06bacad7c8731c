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

A stream is left at its end marker. What goes wrong with a connection behind a terminal marker changes nothing any more.
"""

from asyncio import get_running_loop
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import orjson

from app.adapters.engines.dialect import CountingDialect, Dialect, EmbeddingDialect, EncodedRequest, RetryDelayDialect
from app.adapters.engines.http.connection import ConnectionFault, UpstreamConnection
from app.adapters.engines.http.session import UpstreamSession, address_of, request
from app.adapters.engines.http.stream_reader import StreamReader
from app.adapters.engines.timeouts import Timeouts
from app.adapters.engines.wire.deltas import Delta
from app.adapters.engines.wire.event_stream import EventStreamParser
from app.adapters.engines.wire.faults import malformed_reply, parse_retry_after
from app.adapters.engines.wire.json_lines import JsonLinesParser
from app.adapters.engines.wire.reply_builder import ReplyBuilder
from app.domain.model_call import AttemptFailureReason, EngineCall, Reply
from app.ports.model import EngineError, EngineProfile, Progress
from app.ports.runtime import Clock

ERROR_BYTES = 64 * 2**10
ERROR_SECONDS = 2.0
OFF_LOOP_BYTES = 64 * 2**10
REACHED = frozenset({200, 404})
STREAMED: Final[Mapping[str, Callable[[int], EventStreamParser | JsonLinesParser]]] = {
    "text/event-stream": EventStreamParser,
    "application/x-ndjson": JsonLinesParser,
}
"""What cuts a stream, by its media type. Anything else is read as one JSON body."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """How much is read of one reply, in bytes."""

    response_bytes: int = 32 * 2**20
    line_bytes: int = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine is reached, how long it is waited and how much read. `api_key` is asked anew every attempt."""

    base_url: str
    api_key: Callable[[], str | None]
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: ReplyLimits = ReplyLimits()


class HttpEngine:
    """Implements `Engine` for every provider that is spoken to over HTTP. The session belongs to whoever made it."""

    def __init__(
        self, profile: EngineProfile, dialect: Dialect, *, endpoint: Endpoint, session: UpstreamSession, clock: Clock
    ) -> None:
        self.profile = profile
        self._dialect = dialect
        self._endpoint = endpoint
        self._session = session
        self._clock = clock

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        reading = _Reading(self._dialect, progress, self._endpoint, streamed=stream)
        try:
            with await self._connected() as connection:
                encoded = self._dialect.encode(call, self.profile, stream=stream)
                reading.withheld = encoded.withheld
                await connection.ask(self._post(encoded), reading.due)
                await self._refuse_failures(connection)
                await reading.read(connection)
        except ConnectionFault:
            if not reading.answer.is_complete:
                raise
        finally:
            reading.account()
        return reading.reply(self.profile.model)

    async def ping(self) -> str:
        due = get_running_loop().time() + self._endpoint.timeouts.idle_seconds
        with await self._connected() as connection:
            await connection.ask(self._request("GET", self._dialect.probe_path), due)
            if connection.head.status not in REACHED:
                raise await self._refusal(connection)
        return "answered"

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        dialect = self._dialect
        if not isinstance(dialect, EmbeddingDialect):
            raise EngineError(AttemptFailureReason.REFUSED, "this provider makes no embeddings")
        vectors = await self._asked(dialect.encode_embeddings(texts, self.profile.model), dialect.decode_embeddings)
        if len(vectors) != len(texts):
            raise malformed_reply("the reply has not one vector a text")
        return vectors

    async def count(self, call: EngineCall) -> int | None:
        dialect = self._dialect
        if not isinstance(dialect, CountingDialect):
            return None
        return await self._asked(dialect.encode_count(call, self.profile), dialect.decode_count)

    async def _asked(self, encoded: EncodedRequest, decode: Callable[[bytes], _T]) -> _T:
        """What a JSON reply says that is no answer of a model."""
        body = bytearray()

        def take(piece: bytes) -> bool:
            body.extend(piece)
            return False

        due = get_running_loop().time() + self._endpoint.timeouts.attempt_seconds
        with await self._connected() as connection:
            await connection.ask(self._post(encoded), due)
            await self._refuse_failures(connection)
            await connection.pour(take, self._endpoint.limits.response_bytes)
        return await _off_loop(decode, bytes(body))

    async def _connected(self) -> UpstreamConnection:
        return await self._session.connection(
            address_of(self._endpoint.base_url), self._endpoint.timeouts.connect_seconds
        )

    def _post(self, encoded: EncodedRequest) -> Sequence[bytes]:
        return self._request("POST", encoded.path, orjson.dumps(encoded.body))

    def _request(self, method: str, path: str, body: bytes = b"") -> Sequence[bytes]:
        headers = self._dialect.headers(self._endpoint.api_key())
        return request(method, address_of(self._endpoint.base_url), path, headers=headers, body=body)

    async def _refuse_failures(self, connection: UpstreamConnection) -> None:
        status, headers = connection.head
        if not 200 <= status < 300:
            raise await self._refusal(connection)
        if headers.get("content-encoding", "identity") != "identity":
            raise malformed_reply("the reply is compressed, which was not asked for")

    async def _refusal(self, connection: UpstreamConnection) -> EngineError:
        """What a status that is no success means. Nothing of the body leaves here."""
        body = bytearray()

        def take(piece: bytes) -> bool:
            body.extend(piece)
            return len(body) >= ERROR_BYTES

        connection.wait_until(get_running_loop().time() + ERROR_SECONDS)
        with suppress(ConnectionFault):
            await connection.pour(take, self._endpoint.limits.response_bytes)
        (status, headers), told = connection.head, bytes(body)
        wait = parse_retry_after(headers, self._clock.now())
        if wait is None and isinstance(self._dialect, RetryDelayDialect):
            wait = self._dialect.retry_delay(told)
        return EngineError(
            self._dialect.failure_reason(status, told), f"the provider answered with status {status}", wait
        )


class _Reading:
    """One reply as it arrives: what it says so far, who is told of it, and how long it is still waited for."""

    def __init__(self, dialect: Dialect, progress: Progress, endpoint: Endpoint, *, streamed: bool) -> None:
        self._dialect = dialect
        self._progress = progress
        self._streamed = streamed
        self._caps = endpoint.limits
        timeouts = endpoint.timeouts
        self._idle = timeouts.idle_seconds
        self._now = get_running_loop().time
        now = self._now()
        self._end = now + timeouts.attempt_seconds
        self.due = min(self._end, now + timeouts.first_token_seconds) if streamed else self._end
        self.answer = ReplyBuilder(dialect.finish_reasons)
        self.withheld: tuple[str, ...] = ()
        self._late: Delta | None = None

    def reply(self, model: str) -> Reply:
        """The whole reply. A JSON body that was to be a stream is published here, once it is known to be sound."""
        reply = self.answer.build(model)
        if self._late is not None:
            self._publish(self._late)
        return replace(reply, withheld=self.withheld) if self.withheld else reply

    async def read(self, connection: UpstreamConnection) -> None:
        media_type = connection.head.headers.get("content-type", "").partition(";")[0].strip().lower()
        frames = STREAMED.get(media_type)
        if frames is not None:
            dialect = self._dialect
            stream = StreamReader(
                frames(self._caps.line_bytes), texts=dialect.text_template, decode=dialect.decode_chunk
            )
            take = partial(self._take_events, connection, stream)
            await connection.pour(take, self._caps.response_bytes)
        else:
            await self._read_document(connection)

    def _take_events(self, connection: UpstreamConnection, stream: StreamReader, piece: bytes) -> bool:
        """Reads a piece of a stream, the empty one at its end too; whether its end marker was there."""
        for said in stream.feed(piece):
            self.answer.add(said)
            self._publish(said)
            if self.answer.done:
                return True
        if self.answer.has_started:
            self._rest(connection)
        return False

    async def _read_document(self, connection: UpstreamConnection) -> None:
        connection.wait_until(self._end)
        pieces: list[bytes] = []

        def take(piece: bytes) -> bool:
            pieces.append(piece)
            self._rest(connection)
            return False

        await connection.pour(take, self._caps.response_bytes)
        delta = await _off_loop(self._dialect.decode, b"".join(pieces))
        self.answer.add(delta)
        self._late = delta if self._streamed else None

    def account(self) -> None:
        """Says what was used, as far as the provider has told it."""
        if self.answer.has_usage:
            self._progress.usage(self.answer.usage)

    def _publish(self, delta: Delta | str) -> None:
        if isinstance(delta, str):
            self._progress.text(delta)
            return
        if delta.text:
            self._progress.text(delta.text)
        if delta.reasoning:
            self._progress.reasoning(delta.reasoning)

    def _rest(self, connection: UpstreamConnection) -> None:
        connection.wait_until(min(self._end, self._now() + self._idle))


async def _off_loop(decode: Callable[[bytes], _T], body: bytes) -> _T:
    """Decodes a large body on a worker thread, so that it does not hold up all others."""
    if len(body) <= OFF_LOOP_BYTES:
        return decode(body)
    return await anyio.to_thread.run_sync(decode, body, abandon_on_cancel=True)
