"""Streams of the Messages API: the changes of a turn as events, which fold to its message."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from portico.domain.ids import RequestId
from portico.entrypoints.http.client_apis.api import Shown
from portico.entrypoints.http.client_apis.errors import ClientError, ErrorShape, error_body
from portico.entrypoints.http.client_apis.extension import EXTENSION, extension_of
from portico.entrypoints.http.client_apis.messages.answer import STOP_REASONS, begun_message, block_of, usage_of
from portico.entrypoints.http.client_apis.turn import (
    ClientCallItem,
    Item,
    ItemEnded,
    ItemStarted,
    TextAdded,
    Turn,
    TurnChange,
    TurnEnded,
)

_STOP: Final = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_TEXT: Final = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
    b'"delta":{"type":"text_delta","text":%b}}\n\n'
)


class MessageFrames:
    """Implements `Frames`. Blocks have numbers of their own, since not every item is shown."""

    def __init__(self, request_id: RequestId, shown: Shown) -> None:
        self._request_id = request_id
        self._shown = shown
        self._begun = False
        self._blocks: dict[int, int] = {}
        """The number of the block of each item that is shown, by the position of the item."""

    def encode(self, changes: Sequence[TurnChange]) -> bytes:
        """Return the events of these changes. Calls that ran here, and reasoning, are not shown."""
        frames = [] if self._begun or not changes else [self._begin()]
        for change in changes:
            match change:
                case TextAdded(position, text) if position in self._blocks:
                    frames.append(_TEXT % (self._blocks[position], orjson.dumps(text)))
                case ItemStarted(position, item):
                    frames += self._start_block(position, item)
                case ItemEnded(position, item) if position in self._blocks:
                    frames += self._end_block(self._blocks[position], item)
                case TurnEnded(turn):
                    frames += self._end(turn)
                case _:
                    pass
        return b"".join(frames)

    def failed(self, failed: ClientError) -> bytes:
        """Return the error, which ends the stream."""
        return _frame(error_body(failed, ErrorShape.ANTHROPIC))

    def _begin(self) -> bytes:
        self._begun = True
        return _frame({"type": "message_start", "message": begun_message(self._request_id, self._shown)})

    def _start_block(self, position: int, item: Item) -> list[bytes]:
        block = block_of(item)
        if block is None:
            return []
        number = self._blocks[position] = len(self._blocks)
        empty: Mapping[str, Any] = {"input": {}} if isinstance(item, ClientCallItem) else {"text": ""}
        return [_frame({"type": "content_block_start", "index": number, "content_block": {**block, **empty}})]

    def _end_block(self, number: int, item: Item) -> list[bytes]:
        """Return the end of a block, and before it all arguments of a call."""
        frames = [_frame({"type": "content_block_stop", "index": number})]
        if isinstance(item, ClientCallItem):
            arguments = {"type": "input_json_delta", "partial_json": orjson.dumps(item.arguments).decode()}
            frames.insert(0, _frame({"type": "content_block_delta", "index": number, "delta": arguments}))
        return frames

    def _end(self, turn: Turn) -> list[bytes]:
        delta = {"stop_reason": STOP_REASONS[turn.finish], "stop_sequence": None}
        extension = {EXTENSION: extension_of(turn.response)} if self._shown.has_extension else {}
        return [_frame({"type": "message_delta", "delta": delta, "usage": usage_of(turn.usage), **extension}), _STOP]


def _frame(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))
