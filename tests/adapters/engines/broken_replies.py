"""Broken forms of a provider's answer, as bad servers and bad connections produce them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import orjson

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.dialect import Dialect, EncodedRequest
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.http.engine import Endpoint, HttpEngine, ReplyLimits
from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.adapters.engines.timeouts import Timeouts
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall, Reply
from portico.ports.model import EngineError
from tests.adapters.engines.cases import DICE, NOW
from tests.adapters.engines.dialects import DIALECTS, DialectCase
from tests.adapters.engines.engine_calls import HELLO, KEY
from tests.support.emulators import anthropic, gemini, ollama, openai_chat, openai_responses
from tests.support.emulators.answers import EmulatedAnswer, EmulatedCall, EmulatedResponse
from tests.support.emulators.server import Respond, http_engine
from tests.support.engine_calls import RecordedProgress
from tests.support.upstream import Script, ScriptedUpstream, event_stream

CANARY = "upstream-canary-77"
LEAKY = f"<html>{CANARY} {KEY}</html>".encode()
"""Texts that no fault may repeat: a provider's own, and our key as some of them echo it."""
EVENT_END = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)")
LINE_END = re.compile(rb"(?<=\n)")
DATA = re.compile(rb"(?m)^(?:data: ?)?((?!event:|id:|retry:|:|data:).+)$")
ODD_VALUES = (b"NaN", b"9" * 5000, b"[" * 2000 + b"]" * 2000, b'1,"x":2', b"'a'", b"1e999", b"01")
EMULATORS: Mapping[type[Dialect], Respond] = MappingProxyType(
    {
        ChatCompletionsDialect: openai_chat.respond,
        ResponsesDialect: openai_responses.respond,
        AnthropicDialect: anthropic.respond,
        GeminiDialect: gemini.respond,
        OllamaDialect: ollama.respond,
    }
)
ANSWER = EmulatedAnswer(
    "Würfel 🎲 fällt.",
    reasoning="A die.",
    calls=(EmulatedCall("call_1", "roll_dice", {"sides": 6}), EmulatedCall("call_2", "now", {"zone": "ü"})),
)
DEEP: Mapping[bytes, bytes] = MappingProxyType(
    {b'"deep list"': b"[" * 300 + b"]" * 300, b'"deep object"': b'{"a":' * 300 + b"1" + b"}" * 300}
)
"""Deeper than what we write, and not as deep as what we read."""
WRONG: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 2**63, "", "x", [], {}, [None], [[]], ["x"], {"a": 1}, {"type": "x"}),
    *("deep list", "deep object"),
)
"""Values of a wrong type."""


@dataclass(frozen=True)
class EmulatedProvider:
    """One dialect and its emulated provider, with one answer as that provider sends it."""

    name: str
    row: DialectCase
    respond: Respond

    @cached_property
    def streamed(self) -> EmulatedResponse:
        return self.answer_to(self.row.dialect.encode(self.asked(), self.row.profile(), stream=True))

    @cached_property
    def whole(self) -> EmulatedResponse:
        return self.answer_to(self.row.dialect.encode(self.asked(), self.row.profile(), stream=False))

    @cached_property
    def events(self) -> list[bytes]:
        """The stream, one piece an event with what ends it."""
        end = EVENT_END if self.content_type == "text/event-stream" else LINE_END
        return [event for event in end.split(b"".join(self.streamed.pieces)) if event]

    @property
    def content_type(self) -> str:
        return self.streamed.headers["Content-Type"].partition(";")[0]

    @property
    def body(self) -> bytes:
        """The answer as one JSON body."""
        return b"".join(self.whole.pieces)

    def asked(self) -> EngineCall:
        return EngineCall(HELLO, (DICE, NOW), ExecutionHints())

    def stream(self, *events: bytes, **how: Any) -> Script:
        """These events instead, each a chunk of its own."""
        return event_stream(*events, content_type=self.content_type, **how)

    def event(self, data: bytes) -> bytes:
        """Any data as one event."""
        return b"data: " + data + b"\n\n" if self.content_type == "text/event-stream" else data + b"\n"

    def answer_to(self, sent: EncodedRequest) -> EmulatedResponse:
        """Return the provider's response to a request."""
        headers = self.row.dialect.headers(KEY) | {"Content-Type": "application/json"}
        lower = {name.lower(): value for name, value in headers.items()}
        response = self.respond(sent.path, lower, orjson.dumps(sent.body), ANSWER)
        assert response.status == 200, response.pieces
        return response


def emulator_of(dialect: Dialect) -> Respond | None:
    """The emulator in the module that is called as the dialect's own; None while there is none."""
    return EMULATORS.get(type(dialect))


EMULATED_PROVIDERS = [
    EmulatedProvider(name, row, respond)
    for name, row in DIALECTS.items()
    if (respond := emulator_of(row.dialect)) is not None
]


@dataclass(frozen=True)
class AttemptOutcome:
    """The result of one attempt, and its progress."""

    result: Reply | EngineError
    progress: RecordedProgress


async def attempt_outcomes(
    speaker: EmulatedProvider,
    *scripts: Script,
    stream: bool = True,
    times: Timeouts | None = None,
    caps: ReplyLimits | None = None,
) -> list[AttemptOutcome]:
    """Make one attempt for each script. No fault and no request repeats a secret."""
    async with ScriptedUpstream(*scripts) as upstream:
        endpoint = Endpoint(upstream.url, lambda: KEY, times or Timeouts(), caps or ReplyLimits())
        async with http_engine(speaker.row.profile(), speaker.row.dialect, endpoint) as engine:
            found = [await _outcome(engine, speaker.asked(), stream=stream) for _ in scripts]
    assert len(upstream.requests) == len(scripts)
    assert not any(KEY in request.path or KEY.encode() in request.body for request in upstream.requests)
    return found


async def _outcome(engine: HttpEngine, call: EngineCall, *, stream: bool) -> AttemptOutcome:
    progress = RecordedProgress()
    try:
        reply = await engine.attempt(call, progress, stream=stream)
    except EngineError as fault:
        assert_tells_no_secret(fault)
        return AttemptOutcome(fault, progress)
    return AttemptOutcome(reply, progress)


def assert_tells_no_secret(fault: BaseException) -> None:
    """Neither the fault nor what led to it repeats the key or a provider's text."""
    cause: BaseException | None = fault
    while cause is not None:
        assert not {KEY, CANARY} & set(re.findall(f"{KEY}|{CANARY}", f"{cause} {cause!r} {cause.args}"))
        cause = cause.__cause__ or cause.__context__


def data_of(event: bytes) -> bytes:
    """The data of an event; nothing where it has none."""
    found = DATA.search(event)
    return b"" if found is None else found[1].strip()


def parsed(data: bytes) -> Any:
    """Data that is JSON; None for any other."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def with_data(event: bytes, data: bytes) -> bytes:
    """The event with other data in its place."""
    return event.replace(data_of(event), data, 1)


def garbled(event: bytes) -> Iterator[bytes]:
    """The event with data that is no JSON, or none that may be taken."""
    text = data_of(event)
    if parsed(text) is None:
        return
    quote = text.index(b'"') + 1
    broken = [text[:-1], text[: len(text) // 2], text + b"}", text + text, LEAKY]
    broken += [text[:quote] + odd + text[quote:] for odd in (b"\xff", b"\xc3", b"\\ud800", b"\x00")]
    broken += [text[:-1] + b',"x":' + odd + b"}" for odd in ODD_VALUES]
    yield from (with_data(event, data) for data in broken)


def misshapen(data: bytes) -> Iterator[bytes]:
    """The JSON with one value anywhere in it replaced by another kind, or one member missing."""
    for value in _misshapen(orjson.loads(data)):
        text = orjson.dumps(value)
        for name, deep in DEEP.items():
            text = text.replace(name, deep)
        yield text


def _misshapen(value: Any) -> Iterator[Any]:
    yield from WRONG
    if isinstance(value, dict):
        for key, member in value.items():
            rest = {name: other for name, other in value.items() if name != key}
            yield rest
            yield from (rest | {key: changed} for changed in _misshapen(member))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            for changed in _misshapen(member):
                yield [*value[:index], changed, *value[index + 1 :]]
