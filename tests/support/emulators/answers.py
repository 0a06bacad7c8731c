"""Answers of an emulated provider, in no provider's words, and the responses that it sends."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import orjson

from portico.domain.model_call import Reply

JSON = MappingProxyType({"Content-Type": "application/json"})
EVENTS = MappingProxyType({"Content-Type": "text/event-stream"})


class EmulatedCall(NamedTuple):
    """A tool call that the model asks for."""

    id: str
    name: str
    arguments: Mapping[str, Any]


class EmulatedUsage(NamedTuple):
    """Tokens: `input` includes `cached`, `output` includes `reasoning`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


USED = EmulatedUsage(input=11, output=7, cached=3, reasoning=2)


@dataclass(frozen=True)
class EmulatedAnswer:
    """An answer of the model and its end; `filtered` is a refusal or a safety filter."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[EmulatedCall, ...] = ()
    finish: Literal["stop", "length", "filtered"] = "stop"
    usage: EmulatedUsage = USED
    model: str = "some-model-1"


@dataclass(frozen=True)
class EmulatedResponse:
    """A response: one piece for a whole body, several for a stream, each a write of its own."""

    status: int
    headers: Mapping[str, str]
    pieces: tuple[bytes, ...]


ANSWERS: Mapping[str, EmulatedAnswer] = MappingProxyType(
    {
        "text": EmulatedAnswer("Grüße aus 東京 🎲 “fine”.\nAnd\ta\u2028second line."),
        "reasoning": EmulatedAnswer("42", reasoning="Six times seven is what was asked."),
        "call": EmulatedAnswer(calls=(EmulatedCall("call_1", "roll_dice", {"sides": 6}),)),
        "call_without_arguments": EmulatedAnswer(calls=(EmulatedCall("call_1", "now", {}),)),
        "text_and_parallel_calls": EmulatedAnswer(
            "Both at once.",
            calls=(
                EmulatedCall("call_1", "roll_dice", {"sides": 6, "note": 'a "quoted" ü \\ line\n'}),
                EmulatedCall("call_2", "roll_dice", {"sides": 20, "more": [1, 2.5, None, {"deep": True}]}),
            ),
        ),
        "reasoning_and_call": EmulatedAnswer(
            reasoning="A die is needed.", calls=(EmulatedCall("call_1", "roll_dice", {"sides": 6}),)
        ),
        "cut_by_length": EmulatedAnswer("Once upon a", finish="length"),
    }
)
"""Answers that every provider can give. Not every one says its reasoning or counts cached tokens."""


def answer_of_reply(reply: Reply) -> EmulatedAnswer:
    """A reply that was read as the answer that was given."""
    usage = reply.usage
    return EmulatedAnswer(
        text=reply.text,
        reasoning=reply.reasoning,
        calls=tuple(EmulatedCall(call.id, call.name, call.arguments) for call in reply.tool_calls),
        finish="length" if reply.finish_reason == "length" else "stop",
        usage=EmulatedUsage(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens),
        model=reply.model,
    )


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] = JSON) -> EmulatedResponse:
    """A JSON body."""
    return EmulatedResponse(status, headers, (orjson.dumps(body),))


def text_pieces(text: str, size: int = 5) -> Iterator[str]:
    """The text in pieces of that many characters; nothing for an empty one."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def byte_pieces(body: bytes, size: int = 61) -> tuple[bytes, ...]:
    """A stream in writes of that many bytes, which end within events and within characters."""
    return tuple(body[start : start + size] for start in range(0, len(body), size))
