"""Conversations of the Messages API as messages.

A turn of the API is a list of blocks. Results of tools stand in the user's turn behind their calls; each becomes a
message of its own, and one of a call that failed says so. What only a provider can read is dropped, wherever it stands.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from portico.entrypoints.http.client_apis.conversation import WireConversation, WirePath
from portico.entrypoints.http.client_apis.wire_values import (
    as_choice,
    as_flag,
    as_list,
    as_object,
    as_text,
    embedded_document,
    embedded_image,
    fetched_document,
    image_part,
    invalid,
    text_part,
)

Block: TypeAlias = Mapping[str, Any]
DROPPED_BLOCKS: Final = frozenset(
    {
        *("thinking", "redacted_thinking", "compaction", "tool_reference", "tool_addition", "advisor_tool_result"),
        *("server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result"),
        *("code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
        *("mcp_tool_use", "mcp_tool_result"),
    }
)
"""Types of blocks that only the provider that made them can read, or that repeat what the tools say."""
REFUSED_BLOCKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "search_result": "search results are not supported; send their text",
        "container_upload": "files are not supported",
        "tool_removal": "tools cannot be removed on the way; send those that are left",
    }
)
_ROLES: Final = ("user", "assistant", "system")
_CALLS: Final[Mapping[str, str]] = MappingProxyType({"user": "tool_result", "assistant": "tool_use"})
"""The type of the blocks of a role that are no part of its text."""


def add_system(conversation: WireConversation, system: object) -> None:
    """Add a system message for each text of the prompt. Raises: RequestFailure naming the block, as `add_turns`."""
    for path, block in _blocks(system, ("system",)):
        if block["type"] in {"image", "document"}:
            raise invalid((*path, "type"), "must be text")
        part = _part(block, path)
        if part is not None and part["text"]:
            conversation.add({"role": "system", "content": part["text"]}, path)


def add_turns(conversation: WireConversation, turns: object) -> None:
    """Add the messages of the turns.

    Raises: RequestFailure (REQUEST_INVALID) for what is no block of a known type, for an image that is not given, and
    for a result without a call.
    """
    for index, found in enumerate(as_list(turns, ("messages",))):
        path: WirePath = ("messages", str(index))
        turn = as_object(found, path)
        role = as_choice(turn.get("role"), (*path, "role"), _ROLES)
        blocks = list(_blocks(turn.get("content"), (*path, "content")))
        kind = _CALLS.get(role)
        calls = [(here, block) for here, block in blocks if block["type"] == kind]
        if role == "user":
            for here, block in calls:
                _add_result(conversation, block, here)
        content = _content([(here, block) for here, block in blocks if block["type"] != kind])
        if content or not blocks:
            conversation.add({"role": role, "content": content}, path)
        if role == "assistant":
            for here, block in calls:
                conversation.add_call(_call(block, here), here)


def _add_result(conversation: WireConversation, block: Block, path: WirePath) -> None:
    content = _content(list(_blocks(block.get("content"), (*path, "content"))))
    if as_flag(block.get("is_error"), (*path, "is_error")):
        content = _as_error(content)
    call_id = as_text(block.get("tool_use_id"), (*path, "tool_use_id"))
    conversation.add_result(call_id, content, (*path, "tool_use_id"))


def _as_error(content: str | list[Mapping[str, Any]]) -> str | list[Mapping[str, Any]]:
    """Return the result of a call that failed as a text that says so, since only a text reaches every provider."""
    parts = [text_part(content)] if isinstance(content, str) else content
    if any("error" in part["text"].casefold() for part in parts if part["type"] == "text"):
        return content
    if isinstance(content, str):
        return f"Error: {content}" if content else "Error"
    return [text_part("Error:"), *content]


def _call(block: Block, path: WirePath) -> Mapping[str, Any]:
    return {
        "id": as_text(block.get("id"), (*path, "id")),
        "name": as_text(block.get("name"), (*path, "name")),
        "arguments": as_object(block.get("input"), (*path, "input")),
    }


def _blocks(content: object, path: WirePath) -> Iterator[tuple[WirePath, Block]]:
    """Yield the blocks of a content and their paths; a text is one block."""
    if isinstance(content, str):
        if content:
            yield path, {"type": "text", "text": content}
    elif content is not None:
        for number, block in enumerate(as_list(content, path)):
            here = (*path, str(number))
            as_text(as_object(block, here).get("type"), (*here, "type"))
            yield here, block


def _content(blocks: Sequence[tuple[WirePath, Block]]) -> str | list[Mapping[str, Any]]:
    """Return the text and the images of the blocks: a single text as it is, and anything else as parts."""
    parts = [part for path, block in blocks if (part := _part(block, path)) is not None]
    match parts:
        case []:
            return ""
        case [{"type": "text", "text": str(text)}]:
            return text
        case _:
            return parts


def _part(block: Block, path: WirePath) -> Mapping[str, Any] | None:
    """Return a block as a part of a message, None for one that is dropped. Raises: RequestFailure for any other."""
    match block["type"]:
        case "text":
            return text_part(as_text(block.get("text"), (*path, "text")))
        case "image":
            return _image(as_object(block.get("source"), (*path, "source")), (*path, "source"))
        case "document":
            source = as_object(block.get("source"), (*path, "source"))
            return _document(source, block.get("title"), (*path, "source"))
        case kind if kind in DROPPED_BLOCKS:
            return None
        case kind:
            raise invalid((*path, "type"), REFUSED_BLOCKS.get(kind, "is not a type of block that is supported here"))


def _document(source: Block, title: object, path: WirePath) -> Mapping[str, Any]:
    kind = as_choice(source.get("type"), (*path, "type"), ("base64", "text", "url"))
    if kind == "url":
        return fetched_document(source.get("url"), title, (*path, "url"))
    media_type = as_text(source.get("media_type"), (*path, "media_type"))
    data = as_text(source.get("data"), (*path, "data"))
    return embedded_document(media_type, data if kind == "base64" else b64encode(data.encode()).decode(), title)


def _image(source: Block, path: WirePath) -> Mapping[str, Any]:
    match source.get("type"):
        case "base64":
            media_type = as_text(source.get("media_type"), (*path, "media_type"))
            return embedded_image(media_type, as_text(source.get("data"), (*path, "data")))
        case "url":
            return image_part(source.get("url"), (*path, "url"))
        case _:
            raise invalid((*path, "type"), "must be base64 or url")
