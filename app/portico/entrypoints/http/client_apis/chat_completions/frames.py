"""Streams of chat completions: chunks, and `data: [DONE]` at the end of a stream that ends well.

The chunks are the role; text as it comes; a call as two chunks, its id with its name and then all of its arguments; the
reason of the end; and the usage, if it was asked for, in a chunk without choices.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from portico.domain.ids import RequestId
from portico.entrypoints.http.client_apis.chat_completions.answer import (
    BETWEEN_TURNS,
    completion_id,
    usage_of,
    whole_call,
)
from portico.entrypoints.http.client_apis.chat_completions.request import ChatShown
from portico.entrypoints.http.client_apis.errors import ClientError, ErrorShape, error_body
from portico.entrypoints.http.client_apis.extension import EXTENSION, extension_of
from portico.entrypoints.http.client_apis.ids import created_at
from portico.entrypoints.http.client_apis.turn import (
    ClientCallItem,
    ItemStarted,
    TextAdded,
    TextItem,
    Turn,
    TurnChange,
    TurnEnded,
)

DONE: Final = b"data: [DONE]\n\n"
_FRAME: Final = b"data: %b\n\n"


class ChatFrames:
    """Implements `Frames`. A delta is encoded by itself; what stands before and behind it is the same in all chunks."""

    def __init__(self, request_id: RequestId, shown: ChatShown) -> None:
        self._shown = shown
        head = {
            "id": completion_id(request_id),
            "object": "chat.completion.chunk",
            "created": created_at(request_id),
            "model": shown.model,
        }
        self._head = orjson.dumps(head)[:-1]
        usage = b',"usage":null' if shown.includes_usage else b""
        self._text = (
            b"data: " + self._head + b',"choices":[{"index":0,"delta":{"content":',
            b'},"logprobs":null,"finish_reason":null}]' + usage + b"}\n\n",
        )
        self._usage = usage
        self._begun = False
        self._texts = 0
        self._calls = 0

    def encode(self, changes: Sequence[TurnChange]) -> bytes:
        """Return the chunks of these changes. Calls that ran here, and reasoning, are not shown."""
        frames = [] if self._begun or not changes else [self._begin()]
        for change in changes:
            match change:
                case TextAdded(_, text):
                    frames.append(orjson.dumps(text).join(self._text))
                case ItemStarted(_, TextItem()):
                    self._texts += 1
                    if self._texts > 1:
                        frames.append(orjson.dumps(BETWEEN_TURNS).join(self._text))
                case ItemStarted(_, ClientCallItem() as call):
                    frames += self._call(call)
                case TurnEnded(turn):
                    frames += self._end(turn)
                case _:
                    pass
        return b"".join(frames)

    def failed(self, failed: ClientError) -> bytes:
        """Return the error, without `[DONE]`."""
        return _FRAME % orjson.dumps(error_body(failed, ErrorShape.OPENAI))

    def _begin(self) -> bytes:
        self._begun = True
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def _call(self, call: ClientCallItem) -> list[bytes]:
        number, whole = self._calls, whole_call(call)
        self._calls += 1
        name = {"name": call.name, "arguments": ""}
        arguments = {"arguments": whole["function"]["arguments"]}
        return [
            self._chunk({"tool_calls": [{"index": number, "id": call.id, "type": "function", "function": name}]}),
            self._chunk({"tool_calls": [{"index": number, "function": arguments}]}),
        ]

    def _end(self, turn: Turn) -> list[bytes]:
        extension = b""
        if self._shown.has_extension:
            extension = b',"%b":%b' % (EXTENSION.encode(), orjson.dumps(extension_of(turn.response)))
        last = [self._chunk({}, turn.finish, extension)]
        if self._shown.includes_usage:
            last.append(_FRAME % (self._head + b',"choices":[],"usage":' + orjson.dumps(usage_of(turn.usage)) + b"}"))
        return [*last, DONE]

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None, extension: bytes = b"") -> bytes:
        choice = orjson.dumps([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])
        return _FRAME % (self._head + b',"choices":' + choice + self._usage + extension + b"}")
