"""Answers and frames of the Responses API, checked by the schemas of the Open Responses specification."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import openresponses_types.types as schemas
import orjson
from pydantic import BaseModel

from tests.support.http_server import HttpAnswer

_EXTENSIONS = frozenset({"mcp_call", "mcp_approval_request"})
"""Items that the specification leaves to OpenAI's own API."""
_EVENTS: Mapping[str, type[BaseModel]] = MappingProxyType(
    {
        "response.created": schemas.ResponseCreatedStreamingEvent,
        "response.in_progress": schemas.ResponseInProgressStreamingEvent,
        "response.completed": schemas.ResponseCompletedStreamingEvent,
        "response.incomplete": schemas.ResponseIncompleteStreamingEvent,
        "response.failed": schemas.ResponseFailedStreamingEvent,
        "response.output_item.added": schemas.ResponseOutputItemAddedStreamingEvent,
        "response.output_item.done": schemas.ResponseOutputItemDoneStreamingEvent,
        "response.content_part.added": schemas.ResponseContentPartAddedStreamingEvent,
        "response.content_part.done": schemas.ResponseContentPartDoneStreamingEvent,
        "response.output_text.delta": schemas.ResponseOutputTextDeltaStreamingEvent,
        "response.output_text.done": schemas.ResponseOutputTextDoneStreamingEvent,
        "response.reasoning_summary_part.added": schemas.ResponseReasoningSummaryPartAddedStreamingEvent,
        "response.reasoning_summary_part.done": schemas.ResponseReasoningSummaryPartDoneStreamingEvent,
        "response.reasoning_summary_text.delta": schemas.ResponseReasoningSummaryDeltaStreamingEvent,
        "response.reasoning_summary_text.done": schemas.ResponseReasoningSummaryDoneStreamingEvent,
        "response.function_call_arguments.delta": schemas.ResponseFunctionCallArgumentsDeltaStreamingEvent,
        "response.function_call_arguments.done": schemas.ResponseFunctionCallArgumentsDoneStreamingEvent,
        "error": schemas.ErrorStreamingEvent,
    }
)


_PARTS = {"content_part.added": "content", "reasoning_summary_part.added": "summary"}
_DELTAS = {"output_text.delta": "content", "reasoning_summary_text.delta": "summary"}


def check_answer(body: Mapping[str, Any]) -> None:
    """Check a Response object."""
    schemas.ResponseResource.model_validate(_plain(body))


def check_frame(frame: Mapping[str, Any]) -> None:
    """Check the data of a frame; an item of OpenAI's own has its place checked only."""
    if frame.get("item", {}).get("type") in _EXTENSIONS:
        frame = {**frame, "item": None}
    if "response" in frame:
        frame = {**frame, "response": _plain(frame["response"])}
    _EVENTS[frame["type"]].model_validate(frame)


def frames_of(body: bytes) -> list[dict[str, Any]]:
    """Return the data of every frame, each of which has its event's name, without the end marker."""
    *blocks, marker, rest = body.decode().split("\n\n")
    assert (marker, rest) == ("data: [DONE]", "")
    frames = []
    for block in blocks:
        name, data = [line for line in block.split("\n") if not line.startswith(":")]
        frames.append(orjson.loads(data.removeprefix("data: ")))
        assert name == f"event: {frames[-1]['type']}"
    return frames


def checked_frames(answer: HttpAnswer) -> list[dict[str, Any]]:
    """Return the frames of a stream, whose schemas and numbers are right."""
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream"), answer.body
    frames = frames_of(answer.body)
    for frame in frames:
        check_frame(frame)
    check_numbers(frames)
    return frames


def check_numbers(frames: Iterable[Mapping[str, Any]], first: int = 0) -> None:
    """Check that every frame takes one number, and a delta one for each of its code points."""
    number = first - 1
    for frame in frames:
        number += len(frame["delta"]) if "delta" in frame else 1
        assert frame["sequence_number"] == number, frame


def fold(frames: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the output that the frames of the items make, from their smallest pieces."""
    output: list[dict[str, Any]] = []
    for frame in frames:
        kind, index = frame["type"].removeprefix("response."), frame.get("output_index")
        if kind == "output_item.added":
            assert index == len(output)
            output.append(dict(frame["item"]))
        elif kind in _PARTS:
            output[index][_PARTS[kind]] = [dict(frame["part"])]
        elif kind in _DELTAS:
            output[index][_DELTAS[kind]][0]["text"] += frame["delta"]
        elif kind == "function_call_arguments.delta":
            output[index]["arguments"] += frame["delta"]
        elif kind == "output_item.done":
            item = frame["item"]
            if item["type"] in _EXTENSIONS:
                output[index] = dict(item)
            elif "status" in item:
                output[index]["status"] = item["status"]
            assert output[index] == item
    return output


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without what is OpenAI's own."""
    tools = [tool for tool in body["tools"] if tool["type"] != "mcp"]
    return {**body, "tools": tools, "output": [item for item in body["output"] if item["type"] not in _EXTENSIONS]}
