"""What a dialect is: how a provider is asked, and how what it says is read.

A dialect is pure. Whatever arrives, one JSON body or the pieces of a stream, it turns into `Delta`s, and `Answer` puts
these together and judges whether they are a whole reply: a JSON body is a stream of one piece. So a new provider is
one file with `encode`, `decode`, `decode_chunk` and two tables, and what makes a reply whole is decided here, once.

Decoding keeps what the provider said and judges form only: an empty answer is a reply, and whether it will do is the
failover's question. Arguments of a tool call that are not one JSON object are kept as text, for the tool executor to
refuse, so that the model hears of its mistake.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from app.adapters.engines.counts import Count, Told
from app.adapters.engines.strict_json import loads
from app.domain.boundary import TokenUsage
from app.domain.effects import EngineCall, Reason, Reply
from app.domain.messages import UNREADABLE_ARGUMENTS, Message, ModelMessage, ToolCall
from app.ports import EngineFault, EngineProfile

ARGUMENT_DEPTH: Final = 64
NAME_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request in a dialect: `path` stands behind the base URL, `body` becomes JSON.

    `withheld` names what the call held and the request does not, by dotted name.
    """

    path: str
    body: dict[str, Any]
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A tool call or the next fragment of one. `arguments` is JSON text; `index` is None where none was given.

    `whole` is for providers that never send fragments: such a piece begins a call whatever came before. `elsewhere`
    begins one that the provider runs by itself, which is none of ours. `signature` is what the provider wants to see
    again with the call; `Answer` keeps it as a block of `call` and `signature`.
    """

    index: int | None
    id: str
    name: str
    arguments: str
    signature: str = ""
    whole: bool = False
    elsewhere: bool = False


class KeptPiece(NamedTuple):
    """Part of a block that only the provider can read. Pieces of one number are one block: of a key that comes again
    texts are joined, and anything else replaces what was there.
    """

    number: int
    data: Mapping[str, Any]


class Delta(NamedTuple):
    """What one piece of a reply adds. `finish` is the provider's own word, None while the reply goes on.

    `refused` says that the model declined.
    `done` is the end of a stream, behind which nothing follows; `unclosed` says that it has yet to come, so that
    `finish` alone makes no reply whole.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[CallPiece, ...] = ()
    finish: str | None = None
    usage: Told | None = None
    model: str = ""
    refused: bool = False
    done: bool = False
    kept: tuple[KeptPiece, ...] = ()
    unclosed: bool = False


class Dialect(Protocol):
    """How one family of providers is spoken to. Holds no state and does no I/O.

    `finishes` says what the provider's words for an ending mean: `stop`, `length`, or why it is a failure; words
    that it lacks mean `stop`. `probe` is a path that answers without spending tokens.
    """

    @property
    def base_url(self) -> str:
        """Where it is reached unless configured otherwise."""
        ...

    @property
    def probe(self) -> str: ...

    @property
    def finishes(self) -> Mapping[str, str | Reason]: ...

    def headers(self, key: str | None) -> dict[str, str]:
        """What says who asks. A key never stands in a URL."""
        ...

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> Encoded:
        """The request. Only options that the profile lists are sent; what is not is named beside it."""
        ...

    def decode(self, body: bytes) -> Delta:
        """A whole JSON reply. Raises: EngineFault."""
        ...

    def decode_chunk(self, data: bytes) -> Delta:
        """One event of a stream. Raises: EngineFault, also for an error that the provider put into the stream."""
        ...

    def reason(self, status: int, body: bytes) -> Reason:
        """Why a reply that is no success came. `body` may be anything and may be cut."""
        ...


@runtime_checkable
class EmbeddingDialect(Protocol):
    """How vectors of texts are asked for, where a provider has them."""

    def encode_embeddings(self, texts: Sequence[str], model: str) -> Encoded: ...

    def decode_embeddings(self, body: bytes) -> list[list[float]]:
        """The vectors in the order of the texts. Raises: EngineFault."""
        ...


@runtime_checkable
class CountingDialect(Protocol):
    """How a provider is asked what a call would cost in tokens, where it says so."""

    def encode_count(self, call: EngineCall, profile: EngineProfile) -> Encoded: ...

    def decode_count(self, body: bytes) -> int:
        """Tokens. Raises: EngineFault."""
        ...


@runtime_checkable
class WaitingDialect(Protocol):
    """Where a provider says in the body of its refusal, not in a header, how long it wants to be left alone."""

    def retry_after(self, body: bytes) -> float | None:
        """Seconds; None where it says nothing."""
        ...


class _Texts(list[str]):
    """Pieces of one text of a kept block, joined once all of them are there."""


@dataclass(slots=True)
class _OpenCall:
    id: str
    name: str
    signature: str
    arguments: list[str] = field(default_factory=list)


class Answer:
    """One reply, put together from what has arrived."""

    def __init__(self, finishes: Mapping[str, str | Reason]) -> None:
        self._finishes = finishes
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []
        self._slots: dict[int, _OpenCall] = {}
        self._finish: str | None = None
        self._unclosed = False
        self._count = Count()
        self._model = ""
        self._kept: dict[int, dict[str, Any]] = {}
        self._refused = False
        self.done = False
        """Whether the end of the stream was seen; nothing behind it counts."""

    @property
    def begun(self) -> bool:
        """Whether the model has said anything yet."""
        return bool(self._text or self._reasoning or self._calls or self.whole)

    @property
    def usage(self) -> TokenUsage:
        """What is known to have been used."""
        return self._count.usage()

    @property
    def whole(self) -> bool:
        """Whether the terminal marker has been seen."""
        return self.done or (self._finish is not None and not self._unclosed)

    def add(self, delta: Delta) -> None:
        """Takes the next piece."""
        text, reasoning, calls, finish, usage, model, refused, done, kept, unclosed = delta
        if text:
            self._text.append(text)
        if reasoning:
            self._reasoning.append(reasoning)
        for piece in calls:
            self._add_call(piece)
        for number, data in kept:
            self._keep(self._kept.setdefault(number, {}), data)
        if finish is not None:
            self._finish, self._unclosed = finish, unclosed
        if usage is not None:
            self._count.add(usage)
        if model and not self._model:
            self._model = model
        if refused:
            self._refused = True
        if done:
            self.done = True

    def reply(self, model: str) -> Reply:
        """The whole reply; `model` is the one that was asked, for providers that do not say which one answered.

        Raises: EngineFault when it is not whole, not well formed, or its ending means a failure.
        """
        if not self.whole:
            raise malformed("the reply ended before its terminal marker")
        raw = self._finish or ""
        ending = Reason.CONTENT_FILTERED if self._refused else self._finishes.get(raw, "stop")
        if isinstance(ending, Reason):
            raise EngineFault(ending, "the provider ended its reply as a failure")
        calls = self._tool_calls(truncated=ending == "length")
        return Reply(
            text="".join(self._text),
            tool_calls=calls,
            finish_reason="tool" if calls and ending == "stop" else ending,
            raw_finish="" if raw in self._finishes else raw,
            usage=self.usage,
            model=self._model or model,
            reasoning="".join(self._reasoning),
            kept=(*map(_joined, self._kept.values()), *self._signatures(calls)),
        )

    @staticmethod
    def _keep(block: dict[str, Any], data: Mapping[str, Any]) -> None:
        for key, value in data.items():
            if not isinstance(value, str):
                block[key] = value
            elif isinstance(texts := block.get(key), _Texts):
                texts.append(value)
            else:
                block[key] = _Texts([value])

    def _signatures(self, calls: Sequence[ToolCall]) -> Iterator[dict[str, Any]]:
        for call, told in zip(self._calls, calls, strict=True):
            if call.signature:
                yield {"call": told.id, "signature": call.signature}

    def _add_call(self, piece: CallPiece) -> None:
        call = None if piece.whole else self._continued(piece)
        if call is None:
            call = _OpenCall(piece.id, piece.name, piece.signature)
            if not piece.elsewhere:
                self._calls.append(call)
        if piece.index is not None:
            self._slots[piece.index] = call
        call.id = call.id or piece.id
        call.name = call.name or piece.name
        call.signature = call.signature or piece.signature
        call.arguments.append(piece.arguments)

    def _continued(self, piece: CallPiece) -> _OpenCall | None:
        """The call that a piece goes on with, None when it begins one.

        A piece without a name goes on. One with a name begins a call where the index is new, and also where it is
        missing or not counted up, as some servers do, unless id or name say that it only repeats itself.
        """
        numbered = piece.index is not None
        call = self._slots.get(piece.index) if piece.index is not None else self._calls[-1] if self._calls else None
        if call is None or not piece.name or not call.name:
            return call
        if piece.id:
            return call if piece.id == call.id else None
        return call if numbered and piece.name == call.name else None

    def _tool_calls(self, *, truncated: bool) -> tuple[ToolCall, ...]:
        calls = tuple(
            ToolCall(id=call.id or f"call_{number}", name=call.name, arguments=_arguments(call, truncated=truncated))
            for number, call in enumerate(self._calls)
            if _well_named(call)
        )
        if len({call.id for call in calls}) < len(calls):
            raise malformed("the reply holds two tool calls with one id")
        return calls


def _joined(block: Mapping[str, _Texts | Any]) -> dict[str, Any]:
    return {key: "".join(value) if isinstance(value, _Texts) else value for key, value in block.items()}


def kept_of(message: Message) -> Sequence[dict[str, Any]]:
    """What this provider said in that message and wants to be told again; nothing for other people's messages."""
    return message.kept if isinstance(message, ModelMessage) else ()


def malformed(message: str) -> EngineFault:
    """The fault of a reply that is not whole or not of its protocol."""
    return EngineFault(Reason.MALFORMED, message)


def _well_named(call: _OpenCall) -> bool:
    if not 1 <= len(call.name) <= NAME_CHARACTERS or len(call.id) > NAME_CHARACTERS:
        raise malformed("the reply holds a tool call without a usable name or id")
    return True


def _arguments(call: _OpenCall, *, truncated: bool) -> dict[str, Any]:
    text = "".join(call.arguments)
    if not text.strip() and not truncated:
        return {}
    arguments = _object(text)
    if arguments is None and truncated:
        raise malformed("the reply was cut within a tool call")
    return {UNREADABLE_ARGUMENTS: text} if arguments is None else arguments


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that the text is; None when it is none, or one that could not be passed on unchanged."""
    try:
        value = loads(text.encode())
    except ValueError:
        return None
    deep = text.count("{") + text.count("[") > ARGUMENT_DEPTH and _is_deeper(value, ARGUMENT_DEPTH)
    return value if isinstance(value, dict) and not deep else None


def _is_deeper(value: Any, levels: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if children is None:
        return False
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)
