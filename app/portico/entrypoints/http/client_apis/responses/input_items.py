"""Input items: the messages of a request, as `GET /v1/responses/{id}/input_items` lists them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from portico.domain.contract.messages import AudioPart, DocumentPart, ImagePart, Message, Part
from portico.domain.ids import RequestId
from portico.entrypoints.http.client_apis.ids import digits
from portico.entrypoints.http.client_apis.responses.answer import arguments_text
from portico.entrypoints.http.client_apis.wire_values import invalid


def input_items(request_id: RequestId, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the items of these messages, in order. Their ids are no ids of items of an answer."""
    items = [item for message in messages for item in _items(message)]
    return [{"id": f"in_{digits(request_id)}_{number}", **item} for number, item in enumerate(items)]


def item_page(
    items: Sequence[Mapping[str, Any]], *, after: str | None, limit: int, is_descending: bool
) -> Mapping[str, Any]:
    """Return one page of these items. Raises: RequestFailure for an `after` that none of them has."""
    ordered = list(reversed(items)) if is_descending else list(items)
    ids = [item["id"] for item in ordered]
    if after is not None and after not in ids:
        raise invalid(("after",), "must be the id of an item of this list")
    first = 0 if after is None else ids.index(after) + 1
    page = ordered[first : first + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": first + limit < len(ordered),
    }


def _items(message: Message) -> Iterator[Mapping[str, Any]]:
    if message.role == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message.tool_call_id,
            "output": message.content if isinstance(message.content, str) else list(map(_part, message.content)),
            "status": "completed",
        }
        return
    if message.content or not message.tool_calls:
        yield {"type": "message", "role": message.role, "status": "completed", "content": _content(message)}
    for call in message.tool_calls or ():
        about = {"type": "function_call", "call_id": call.id, "name": call.name}
        yield {**about, "arguments": arguments_text(call.arguments), "status": "completed"}


def _content(message: Message) -> list[Mapping[str, Any]]:
    if message.role == "assistant":
        return [{"type": "output_text", "text": message.text, "annotations": [], "logprobs": []}]
    if isinstance(message.content, str):
        return [{"type": "input_text", "text": message.content}]
    return [_part(part) for part in message.content]


def _part(part: Part) -> Mapping[str, Any]:
    if isinstance(part, ImagePart):
        if part.url is not None:
            return {"type": "input_image", "image_url": part.url, "detail": "auto"}
        return {"type": "input_image", "image_url": f"data:{part.media_type};base64,{part.data}", "detail": "auto"}
    if isinstance(part, DocumentPart):
        if part.url is not None:
            return {"type": "input_file", "filename": part.name, "file_url": part.url}
        url = f"data:{part.media_type};base64,{part.data}"
        return {"type": "input_file", "filename": part.name, "file_data": url}
    if isinstance(part, AudioPart):
        kind = "wav" if part.media_type == "audio/wav" else "mp3"
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": kind}}
    return {"type": "input_text", "text": part.text}
