"""Puts a reply together from its pieces, and judges whether it is whole.

What makes a reply whole is decided here, once for all dialects. Form only is judged: an empty answer is a reply, and
whether it will do is the failover's question. Arguments of a tool call that are not one JSON object are kept as text,
for the tool executor to refuse, so that the model hears of its mistake.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.adapters.engines.wire.deltas import Delta, ToolCallFragment
from app.adapters.engines.wire.faults import malformed_reply
from app.adapters.engines.wire.json_fields import MAX_NESTING
from app.adapters.engines.wire.strict_json import loads
from app.adapters.engines.wire.usage import UsageAccumulator
from app.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from app.domain.contract.response import TokenUsage
from app.domain.model_call import AttemptFailureReason, Reply
from app.ports.model import EngineError

NAME_CHARACTERS: Final = 256


class _Texts(list[str]):
    """Pieces of one text of a kept block, joined once all of them are there."""


@dataclass(slots=True)
class _OpenCall:
    id: str
    name: str
    signature: str
    arguments: list[str] = field(default_factory=list)


class ReplyBuilder:
    """One reply, put together from what has arrived."""

    def __init__(self, finishes: Mapping[str, str | AttemptFailureReason]) -> None:
        self._finishes = finishes
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []
        self._slots: dict[int, _OpenCall] = {}
        self._finish: str | None = None
        self._unclosed = False
        self._count = UsageAccumulator()
        self._model = ""
        self._kept: dict[int, dict[str, Any]] = {}
        self._refused = False
        self.done = False
        """Whether the end of the stream was seen; nothing behind it counts."""

    @property
    def has_started(self) -> bool:
        """Whether the model has said anything yet."""
        return bool(self._text or self._reasoning or self._calls or self.is_complete)

    @property
    def has_usage(self) -> bool:
        """Whether the provider has said what was used."""
        return self._count.is_known

    @property
    def usage(self) -> TokenUsage:
        """What is known to have been used."""
        return self._count.usage()

    @property
    def is_complete(self) -> bool:
        """Whether the terminal marker has been seen."""
        return self.done or (self._finish is not None and not self._unclosed)

    def add(self, said: Delta | str) -> None:
        """Takes the next piece, of which most are a text and nothing else."""
        if isinstance(said, str):
            self._text.append(said)
        else:
            self._add(said)

    def _add(self, delta: Delta) -> None:
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

    def build(self, model: str) -> Reply:
        """The whole reply; `model` is the one that was asked, for providers that do not say which one answered.

        Raises: EngineFault when it is not whole, not well formed, or its ending means a failure.
        """
        if not self.is_complete:
            raise malformed_reply("the reply ended before its terminal marker")
        raw = self._finish or ""
        ending = AttemptFailureReason.CONTENT_FILTERED if self._refused else self._finishes.get(raw, "stop")
        if isinstance(ending, AttemptFailureReason):
            raise EngineError(ending, "the provider ended its reply as a failure")
        calls = self._tool_calls(truncated=ending == "length") if self._calls else ()
        return Reply(
            text="".join(self._text),
            tool_calls=calls,
            finish_reason="tool" if calls and ending == "stop" else ending,
            raw_finish="" if raw in self._finishes else raw,
            usage=self.usage,
            model=self._model or model,
            reasoning="".join(self._reasoning),
            kept=(*map(_joined, self._kept.values()), *self._signatures(calls)) if self._kept or calls else (),
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

    def _add_call(self, piece: ToolCallFragment) -> None:
        call = None if piece.is_complete else self._continued(piece)
        if call is None:
            call = _OpenCall(piece.id, piece.name, piece.signature)
            if not piece.runs_at_provider:
                self._calls.append(call)
        if piece.index is not None:
            self._slots[piece.index] = call
        call.id = call.id or piece.id
        call.name = call.name or piece.name
        call.signature = call.signature or piece.signature
        call.arguments.append(piece.arguments)

    def _continued(self, piece: ToolCallFragment) -> _OpenCall | None:
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
            raise malformed_reply("the reply holds two tool calls with one id")
        return calls


def _joined(block: Mapping[str, _Texts | Any]) -> dict[str, Any]:
    return {key: "".join(value) if isinstance(value, _Texts) else value for key, value in block.items()}


def _well_named(call: _OpenCall) -> bool:
    if not 1 <= len(call.name) <= NAME_CHARACTERS or len(call.id) > NAME_CHARACTERS:
        raise malformed_reply("the reply holds a tool call without a usable name or id")
    return True


def _arguments(call: _OpenCall, *, truncated: bool) -> dict[str, Any]:
    text = "".join(call.arguments)
    if not text.strip() and not truncated:
        return {}
    arguments = _object(text)
    if arguments is None and truncated:
        raise malformed_reply("the reply was cut within a tool call")
    return {UNREADABLE_ARGUMENTS: text} if arguments is None else arguments


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that the text is; None when it is none, or one that could not be passed on unchanged."""
    try:
        value = loads(text.encode())
    except ValueError:
        return None
    deep = text.count("{") + text.count("[") > MAX_NESTING and _is_deeper(value, MAX_NESTING)
    return value if isinstance(value, dict) and not deep else None


def _is_deeper(value: Any, levels: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if children is None:
        return False
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)
