"""The engine of every provider that is reached over HTTP, for all dialects.

One attempt is one request. Nothing is retried or redirected here, and a compressed reply, which is never asked for, is
refused.

Four times bound an attempt:

- `connect`: name resolution, connection and TLS together. Nothing was sent, so exceeding it means unreachable.
- `attempt`: everything.
- `first_token`, for streams: from the start to the first text, reasoning or call. Comments and empty deltas that keep
  a connection alive are not tokens.
- `idle`: between two reads of a body, from the first token of a stream or the first byte of a JSON body on; it may be
  exceeded by `IDLE_TOLERANCE`. Any byte resets it, since a server that still writes is not idle; one that only keeps
  the connection alive ends with `attempt`.

A stream is left at its end marker. A connection failure after a terminal marker does not change the reply.
"""

from asyncio import get_running_loop
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Final, Protocol

import anyio
import anyio.to_thread
import orjson

from portico.adapters.engines.dialect import Dialect, EmbeddingDialect, RetryDelayDialect
from portico.adapters.engines.http.transport import HttpRequest, HttpResponse, Transport, TransportError
from portico.adapters.engines.timeouts import Timeouts
from portico.adapters.engines.wire.deltas import UNKNOWN_FRAME
from portico.adapters.engines.wire.error_frames import error_in_event
from portico.adapters.engines.wire.event_stream import EventStreamParser
from portico.adapters.engines.wire.faults import BYTE_ORDER_MARK, malformed_reply, parse_retry_after
from portico.adapters.engines.wire.json_lines import JsonLinesParser
from portico.adapters.engines.wire.rate_limits import seconds_until_reset
from portico.adapters.engines.wire.reply_builder import ReplyBuilder
from portico.adapters.engines.wire.usage import UsageBounds
from portico.domain.contract.response import NO_USAGE
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.value import value
from portico.ports.memory import Embeddings
from portico.ports.model import EngineError, EngineProfile, Progress
from portico.ports.runtime import Clock

ERROR_BYTES: Final = 64 * 2**10
ERROR_SECONDS: Final = 2.0
OFF_LOOP_BYTES: Final = 64 * 2**10
IDLE_TOLERANCE: Final = 0.02
TOKENS_PER_BYTE: Final = 4
HIDDEN_INPUT_TOKENS: Final = 100_000
"""The input that a provider may add, such as prompts of its own and the tokens of images."""
MOST_OUTPUT_TOKENS: Final = 1_000_000
"""Also the largest `max_tokens` of a request."""


class StreamParser(Protocol):
    """Parser of a streamed body."""

    @property
    def error(self) -> bytes | None:
        """The error that ended the stream, after which nothing is parsed; None without one."""
        ...

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that these bytes complete, in order. Raises: EngineError."""
        ...


PING_STATUSES: Final = frozenset({200, 404})
STREAM_PARSERS: Final[Mapping[str, Callable[[int], StreamParser]]] = {
    "text/event-stream": EventStreamParser,
    "application/x-ndjson": JsonLinesParser,
}
"""The parser of a streamed body by its media type. A body of any other type is one JSON text."""


@value
class ReplyLimits:
    """The largest reply that is read."""

    response_bytes: int = 32 * 2**20
    line_bytes: int = 4 * 2**20


@value
class Endpoint:
    """The address of an engine, its credentials and limits. `api_key` is read for every request.

    `stream_parsers` has the parser of a streamed body by its media type.

    `headers` are added to each request, and replace those of the same name.
    """

    base_url: str
    api_key: Callable[[], str | None]
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: ReplyLimits = field(default_factory=ReplyLimits)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    stream_parsers: Mapping[str, Callable[[int], StreamParser]] = field(default_factory=lambda: STREAM_PARSERS)


class HttpEngine:
    """Implements `Engine`, and `EmbeddingEngine` where the dialect has embeddings."""

    def __init__(
        self,
        profile: EngineProfile,
        dialect: Dialect,
        *,
        endpoint: Endpoint,
        transport: Transport,
        clock: Clock,
        on_unknown_frames: Callable[[str, int], None],
        on_used_up: Callable[[float], None] | None = None,
    ) -> None:
        """Create the engine. `on_unknown_frames` is called after each attempt with its name and their number.

        `on_used_up` is called with the seconds until the provider's limits are reset that a reply says are used up.
        """
        self.profile = profile
        self._dialect = dialect
        self._endpoint = endpoint
        self._transport = transport
        self._clock = clock
        self._on_unknown_frames = on_unknown_frames
        self._on_used_up = on_used_up

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        encoded = self._dialect.encode(call, self.profile, stream=stream)
        request = self._request("POST", encoded.path, orjson.dumps(encoded.body), call.traceparent)
        withheld = encoded.withheld
        bounds = UsageBounds(TOKENS_PER_BYTE * len(request.body) + HIDDEN_INPUT_TOKENS, MOST_OUTPUT_TOKENS)
        reader = _ReplyReader(self._dialect, progress, self._endpoint, bounds, streamed=stream)
        exchange = self._exchange(request, reader)
        del encoded, request  # what was sent need not be in memory while a long reply arrives
        try:
            await exchange
        except TransportError:
            if not reader.builder.is_complete:
                raise
        finally:
            reader.report_usage()
            if reader.unknown_frames:
                self._on_unknown_frames(self.profile.name, reader.unknown_frames)
        return reader.reply(self.profile.model, withheld)

    async def _exchange(self, request: HttpRequest, reader: "_ReplyReader") -> None:
        with reader.timeout as timeout:
            exchange = self._transport.exchange(request)
            del request
            async with exchange as response:
                if self._on_used_up is not None:
                    self._report_limits(response, self._on_used_up)
                await self._raise_for_status(response)
                await reader.read(response)
        if timeout.cancelled_caught:
            raise _timed_out()

    def _report_limits(self, response: HttpResponse, on_used_up: Callable[[float], None]) -> None:
        seconds = seconds_until_reset(response.headers, self._clock.now())
        if seconds is not None:
            on_used_up(seconds)

    async def embed(self, texts: Sequence[str], dimension: int | None) -> Embeddings:
        dialect = self._dialect
        if not isinstance(dialect, EmbeddingDialect):
            raise EngineError(AttemptFailureReason.REFUSED, "the provider has no embeddings")
        encoded = dialect.encode_embeddings(texts, self.profile, dimension)
        request = self._request("POST", encoded.path, orjson.dumps(encoded.body))
        with anyio.move_on_after(self._endpoint.timeouts.attempt_seconds):
            async with self._transport.exchange(request) as response:
                await self._raise_for_status(response)
                body = await self._whole(response)
            return await anyio.to_thread.run_sync(dialect.decode_embeddings, body, abandon_on_cancel=True)
        raise _timed_out()

    async def ping(self) -> str:
        with anyio.move_on_after(self._endpoint.timeouts.idle_seconds):
            async with self._transport.exchange(self._request("GET", self._dialect.probe_path)) as response:
                if response.status not in PING_STATUSES:
                    raise await self._refusal(response)
                return "answered"
        raise _timed_out()

    def _request(self, method: str, path: str, body: bytes = b"", traceparent: str | None = None) -> HttpRequest:
        endpoint = self._endpoint
        headers = self._dialect.headers(endpoint.api_key())
        if body:
            headers = {**headers, "Content-Type": "application/json"}
        if traceparent is not None:
            headers = {**headers, "traceparent": traceparent}
        if endpoint.headers:
            replaced = {name.lower() for name in endpoint.headers}
            headers = {name: value for name, value in headers.items() if name.lower() not in replaced}
            headers.update(endpoint.headers)
        return HttpRequest(method, endpoint.base_url.rstrip("/") + path, headers, body)

    async def _whole(self, response: HttpResponse) -> bytes:
        """Return the body of a response that is read at once."""
        body, limit = bytearray(), self._endpoint.limits.response_bytes
        while data := await response.read():
            body += data
            if len(body) > limit:
                raise malformed_reply(f"the reply is longer than {limit} bytes")
        return bytes(body.removeprefix(BYTE_ORDER_MARK))

    async def _raise_for_status(self, response: HttpResponse) -> None:
        if not 200 <= response.status < 300:
            raise await self._refusal(response)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise malformed_reply("the reply is compressed, which was not asked for")

    async def _refusal(self, response: HttpResponse) -> EngineError:
        """Return the fault that a failure status stands for; it repeats nothing of the body."""
        body = bytearray()
        with anyio.move_on_after(ERROR_SECONDS), suppress(TransportError):
            while len(body) < ERROR_BYTES and (data := await response.read()):
                body += data
        content = bytes(body)
        delay = parse_retry_after(response.headers, self._clock.now())
        if delay is None and isinstance(self._dialect, RetryDelayDialect):
            delay = self._dialect.retry_delay(content)
        if delay is None and self._on_used_up is not None:
            delay = seconds_until_reset(response.headers, self._clock.now())
        reason = self._dialect.failure_reason(response.status, content)
        return EngineError(reason, f"the provider answered with status {response.status}", delay, response.status)


class _ReplyReader:
    """One reply as it arrives: builds it, publishes its deltas, and moves the deadline of the attempt."""

    def __init__(
        self, dialect: Dialect, progress: Progress, endpoint: Endpoint, usage_bounds: UsageBounds, *, streamed: bool
    ) -> None:
        self._dialect = dialect
        self._progress = progress
        self._streamed = streamed
        self._endpoint = endpoint
        self._now = get_running_loop().time
        now = self._now()
        self._end = now + endpoint.timeouts.attempt_seconds
        self.timeout = anyio.CancelScope(
            deadline=min(self._end, now + endpoint.timeouts.first_token_seconds) if streamed else self._end
        )
        self.builder = ReplyBuilder(dialect.finish_reasons, usage_bounds)
        self.unknown_frames = 0
        self._idle_restart_at = now
        """The time until which the idle time does not begin anew."""
        self._is_unpublished = False
        self._usage = NO_USAGE

    async def read(self, response: HttpResponse) -> None:
        """Read the body up to its end or its end marker. Raises: EngineError."""
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        parser = self._endpoint.stream_parsers.get(media_type)
        if parser is not None:
            await self._read_stream(response, parser(self._endpoint.limits.line_bytes))
        else:
            await self._read_document(response)

    async def _read_stream(self, response: HttpResponse, parser: StreamParser) -> None:
        builder, progress, decode = self.builder, self._progress, self._dialect.decode_chunk
        size = 0
        while True:
            data = await response.read()
            size += len(data)
            if size > self._endpoint.limits.response_bytes:
                raise self._too_long()
            for event in parser.feed(data):
                delta = decode(event)
                self.unknown_frames += delta is UNKNOWN_FRAME
                builder.add(delta)
                if delta.text:
                    progress.text(delta.text)
                if delta.reasoning:
                    progress.reasoning(delta.reasoning)
                if builder.done:
                    return
            if parser.error is not None:
                raise self._dialect.reported_fault(error_in_event(parser.error))
            if not data:
                return
            if self._now() >= self._idle_restart_at and builder.has_started:
                self._restart_idle_timeout()

    async def _read_document(self, response: HttpResponse) -> None:
        """Read a JSON body. A large one is decoded on a worker thread, so that it does not block the event loop."""
        if self._streamed:
            self.timeout.deadline = self._end
        body = bytearray()
        while data := await response.read():
            body += data
            if len(body) > self._endpoint.limits.response_bytes:
                raise self._too_long()
            if not response.is_complete and self._now() >= self._idle_restart_at:
                self._restart_idle_timeout()
        document, decode = bytes(body.removeprefix(BYTE_ORDER_MARK)), self._dialect.decode
        if len(document) <= OFF_LOOP_BYTES:
            delta = decode(document)
        else:
            delta = await anyio.to_thread.run_sync(decode, document, abandon_on_cancel=True)
        self.builder.add(delta)
        self._is_unpublished = self._streamed

    def reply(self, model: str, withheld: tuple[str, ...]) -> Reply:
        """Return the whole reply. A JSON body in place of a stream is published here, once it is known to be sound."""
        reply = self.builder.build(model, withheld, self._usage)
        if self._is_unpublished and reply.text:
            self._progress.text(reply.text)
        if self._is_unpublished and reply.reasoning:
            self._progress.reasoning(reply.reasoning)
        return reply

    def report_usage(self) -> None:
        """Report the tokens that were used, as far as the provider has named them."""
        self._usage = self.builder.token_counts.usage()
        if self._usage is not NO_USAGE:
            self._progress.usage(self._usage)

    def _too_long(self) -> EngineError:
        return malformed_reply(f"the reply is longer than {self._endpoint.limits.response_bytes} bytes")

    def _restart_idle_timeout(self) -> None:
        """Begin the idle time anew. The deadline moves seldom, since moving it costs as much as decoding an event."""
        idle_seconds = self._endpoint.timeouts.idle_seconds
        self._idle_restart_at = self._now() + idle_seconds * IDLE_TOLERANCE
        self.timeout.deadline = min(self._end, self._idle_restart_at + idle_seconds)


def _timed_out() -> TransportError:
    return TransportError(AttemptFailureReason.TIMED_OUT, "the provider did not answer in time")
