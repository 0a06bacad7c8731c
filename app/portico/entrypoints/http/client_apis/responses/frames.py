"""Frames of a stream of the Responses API, and their numbers.

Theory of operation

1. Every frame takes one `sequence_number`, from 0. A delta takes as many as it has code points, and carries the number
   of its last one. So the numbers do not depend on how a text was cut.
2. `after` is the number of the last frame that the client has. Frames up to it are counted and not written, and a delta
   across it is cut there. So a client that reads on gets exactly what it misses, from any replica.
3. Items begin one after the other, and `output_index` is the item's position. The calls of one reply may end later.
4. A stream ends with `response.completed` or `response.incomplete`, or with `error` and `response.failed`, and with the
   end marker. Only these last frames have calls with their results, unless these are known before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.domain.ids import RequestId
from portico.domain.value import value
from portico.entrypoints.http.client_apis.api import JsonObject
from portico.entrypoints.http.client_apis.errors import ClientError, openai_error
from portico.entrypoints.http.client_apis.responses.answer import (
    IN_PROGRESS,
    ItemIds,
    Now,
    Outcome,
    ResponsesShown,
    arguments_text,
    begun_item,
    extension_member,
    outcome_of,
    output_of,
    response_object,
    shown_item,
    summary_part,
    text_part,
)
from portico.entrypoints.http.client_apis.turn import (
    ClientCallItem,
    Item,
    ItemEnded,
    ItemStarted,
    ReasoningItem,
    ServerCallItem,
    TextAdded,
    TextItem,
    Turn,
    TurnChange,
    TurnEnded,
)

NOT_REPEATED: Final = "invalid_prompt"
END_MARKER: Final = b"data: [DONE]\n\n"


class FrameWriter:
    """Writer of numbered frames."""

    def __init__(self, after: int = -1) -> None:
        self._after = after
        self._number = -1
        self._frames: list[bytes] = []

    def take(self) -> bytes:
        """Return what was written since the last call."""
        frames, self._frames = self._frames, []
        return b"".join(frames)

    def frame(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write a frame of the event `response.KIND` with these fields."""
        self._number += 1
        self._write(f"response.{kind}", self._number, fields)

    def delta(self, head: bytes, text: str) -> None:
        """Write a delta of a text behind its `delta_head`; nothing for an empty one."""
        first, self._number = self._number + 1, self._number + len(text)
        missed = text[max(0, self._after + 1 - first) :]
        if missed:
            self._frames.append(b'%b,"delta":%b,"sequence_number":%d}\n\n' % (head, orjson.dumps(missed), self._number))

    def error(self, error: Mapping[str, Any]) -> None:
        """Write the frame of an error."""
        self._number += 1
        self._write("error", self._number, {"error": error})

    def end(self) -> None:
        """Write the end marker, which has no number."""
        self._frames.append(END_MARKER)

    def _write(self, kind: str, number: int, fields: Mapping[str, Any]) -> None:
        if number > self._after:
            data = orjson.dumps({"type": kind, "sequence_number": number, **fields})
            self._frames.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))


def delta_head(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Return what all deltas of one text have alike: they are the frames of which there are many."""
    name = f"response.{kind}.delta"
    return b"event: %b\ndata: %b" % (name.encode(), orjson.dumps({"type": name, **fields})[:-1])


@value
class _TextFrames:
    """Names of the frames of a kind of text, its part, and what its frames have beside that."""

    part_name: str
    text_name: str
    index: str
    part: Callable[[str], dict[str, Any]]
    extra: Mapping[str, Any]


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_TEXTS: Final[Mapping[type[Item], _TextFrames]] = MappingProxyType(
    {
        TextItem: _TextFrames("content_part", "output_text", "content_index", text_part, {"logprobs": []}),
        ReasoningItem: _TextFrames(
            "reasoning_summary_part", "reasoning_summary_text", "summary_index", summary_part, _NOTHING
        ),
    }
)


class ItemFrames:
    """Writer of the frames of items, each of which has its position in the output."""

    def __init__(self, writer: FrameWriter, ids: ItemIds) -> None:
        self._writer = writer
        self._ids = ids
        self._item_ids: list[str] = []
        self._delta_heads: dict[int, bytes] = {}
        """Of the items that have a text, by position."""
        self._ended: dict[int, dict[str, Any]] = {}

    @property
    def output(self) -> list[dict[str, Any]]:
        """The items that have ended, in the order of their positions."""
        return [self._ended[position] for position in sorted(self._ended)]

    def begin(self, item: Item) -> None:
        """Write the begin of the next item; the text of one that has a text follows."""
        position, item_id = len(self._item_ids), self._ids.next(item)
        self._item_ids.append(item_id)
        self._writer.frame("output_item.added", {"output_index": position, "item": begun_item(item, item_id)})
        names = _TEXTS.get(type(item))
        if names is not None:
            place = self._place(position, names)
            self._writer.frame(f"{names.part_name}.added", {**place, "part": names.part("")})
            self._delta_heads[position] = delta_head(names.text_name, {**place, **names.extra})

    def add(self, position: int, text: str) -> None:
        """Write more of the text of an open item, which has one."""
        self._writer.delta(self._delta_heads[position], text)

    def end(self, position: int, item: Item, *, is_cut: bool = False) -> None:
        """Write the end of an open item, which is whole now; the text of one that `is_cut` is incomplete."""
        shown = shown_item(item, self._item_ids[position])
        if is_cut and isinstance(item, TextItem):
            shown["status"] = "incomplete"
        if isinstance(item, TextItem | ReasoningItem):
            self._end_text(position, item)
        elif isinstance(item, ClientCallItem):
            self._write_arguments(position, item)
        self._writer.frame("output_item.done", {"output_index": position, "item": shown})
        self._ended[position] = shown

    def _end_text(self, position: int, item: TextItem | ReasoningItem) -> None:
        names = _TEXTS[type(item)]
        place = self._place(position, names)
        self._writer.frame(f"{names.text_name}.done", {**place, **names.extra, "text": item.text})
        self._writer.frame(f"{names.part_name}.done", {**place, "part": names.part(item.text)})

    def _write_arguments(self, position: int, call: ClientCallItem) -> None:
        place = {"item_id": self._item_ids[position], "output_index": position}
        text = arguments_text(call.arguments)
        self._writer.delta(delta_head("function_call_arguments", place), text)
        self._writer.frame("function_call_arguments.done", {**place, "name": call.name, "arguments": text})

    def _place(self, position: int, names: _TextFrames) -> dict[str, Any]:
        return {"item_id": self._item_ids[position], "output_index": position, names.index: 0}


class AnswerFrames:
    """Writer of all frames of one answer: its begin, its items, and how it ended."""

    def __init__(self, request_id: RequestId, shown: ResponsesShown, ids: ItemIds, *, number: int, after: int) -> None:
        self.writer = FrameWriter(after)
        self.items = ItemFrames(self.writer, ids)
        self._request_id = request_id
        self._shown = shown
        self._number = number
        self._has_begun = False

    def begin(self) -> None:
        """Write the first frames, once."""
        if not self._has_begun:
            self._has_begun = True
            for kind in ("created", "in_progress"):
                self.writer.frame(kind, {"response": self._object(IN_PROGRESS, [])})

    def end(self, outcome: Outcome, output: Sequence[Any], extension: Mapping[str, Any]) -> None:
        """Write the last frames of an answer that ended well."""
        kind = "completed" if outcome.status == "completed" else "incomplete"
        self.writer.frame(kind, {"response": {**self._object(outcome, output), **extension}})
        self.writer.end()

    def fail(self, error: Mapping[str, Any], outcome: Outcome) -> None:
        """Write the last frames of an answer that did not end well."""
        self.begin()
        self.writer.error(error)
        self.writer.frame("failed", {"response": self._object(outcome, self.items.output)})
        self.writer.end()

    def _object(self, outcome: Outcome, output: Sequence[Any]) -> JsonObject:
        return response_object(self._request_id, self._shown, outcome, output, number=self._number)


class ResponsesFrames:
    """Frames of the answer to a request, from the changes of its turn as they come."""

    def __init__(self, now: Now, request_id: RequestId, shown: ResponsesShown) -> None:
        self._now = now
        self._request_id = request_id
        self._shown = shown
        self._frames = AnswerFrames(request_id, shown, ItemIds(request_id), number=0, after=-1)
        self._items: list[Item] = []
        """The items that have begun, as far as they are known."""
        self._last: int | None = None
        """Position of the item that has ended, and whose end is not written: only the end of the turn tells if it was
        cut.
        """

    def encode(self, changes: Sequence[TurnChange]) -> bytes:
        """Return the frames of these changes. The first ones come with the first changes, also if there are none."""
        self._frames.begin()
        for change in changes:
            match change:
                case ItemStarted(item=item):
                    self._end_last()
                    self._frames.items.begin(item)
                    self._items.append(item)
                case TextAdded(position=position, text=text):
                    self._frames.items.add(position, text)
                case ItemEnded(position=position, item=item):
                    self._end_last()
                    self._items[position], self._last = item, position
                case TurnEnded(turn=turn):
                    self._end(turn)
                case _:
                    pass
        return self._frames.writer.take()

    def failed(self, failed: ClientError) -> bytes:
        """Return the last frames of a stream that does not end well."""
        self._end_last()
        self._frames.fail(stream_error(failed), failed_outcome(failed))
        return self._frames.writer.take()

    def _end_last(self, *, is_cut: bool = False) -> None:
        if self._last is not None:
            self._frames.items.end(self._last, self._items[self._last], is_cut=is_cut)
            self._last = None

    def _end(self, turn: Turn) -> None:
        outcome = outcome_of(turn.finish, turn.usage, self._now())
        is_cut = outcome.status == "incomplete"
        self._end_last(is_cut=is_cut)
        output = output_of(self._whole(turn), ItemIds(self._request_id), is_cut=is_cut)
        self._frames.end(outcome, output, extension_member(turn.response, self._shown))

    def _whole(self, turn: Turn) -> Iterator[Item]:
        """Yield the items of the stream, with the calls as the response has them."""
        calls = (item for item in turn.items if isinstance(item, ServerCallItem))
        for item in self._items:
            yield next(calls, item) if isinstance(item, ServerCallItem) else item


def stream_error(failed: ClientError) -> dict[str, Any]:
    """Return the error of a frame. The code `invalid_prompt` is the one that no client repeats."""
    error = openai_error(failed)
    return error if failed.may_repeat else {**error, "code": NOT_REPEATED}


def failed_outcome(failed: ClientError) -> Outcome:
    """Return the outcome of an answer whose stream ends with that error."""
    error = stream_error(failed)
    return Outcome("failed", error={"code": error["code"], "message": error["message"]})
