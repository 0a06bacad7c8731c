"""Conversations of the Messages API as messages.

A turn of the API is a list of blocks. Results of tools stand in the user's turn behind their calls; each becomes a
message of its own, and one of a call that failed says so. What only a provider can read is dropped, wherever it stands.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from portico.entrypoints.http.client_apis.conversation import ItemFields, WireConversation, WirePath
from portico.entrypoints.http.client_apis.wire_values import (
    as_list,
    as_object,
    choice_at,
    embedded_document,
    embedded_image,
    fetched_document,
    flag_at,
    image_part,
    invalid,
    object_at,
    text_at,
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
ITEM_FIELDS: Final = ItemFields(call={"arguments": ("input",)}, result={"tool_call_id": ("tool_use_id",)})
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
        role = choice_at(turn, "role", path, _ROLES)
        given = turn.get("content")
        if isinstance(given, str):
            conversation.add({"role": role, "content": given}, path)
            continue
        blocks = list(_blocks(given, (*path, "content")))
        kind = _CALLS.get(role)
        calls = [(here, block) for here, block in blocks if block["type"] == kind]
        if role == "user":
            for here, block in calls:
                _add_result(conversation, block, here)
        content, parts = _content([(here, block) for here, block in blocks if block["type"] != kind])
        if content or not blocks:
            conversation.add({"role": role, "content": content}, path, parts)
        if role == "assistant":
            for here, block in calls:
                conversation.add_call(_call(block, here), here)


def _add_result(conversation: WireConversation, block: Block, path: WirePath) -> None:
    content, parts = _content(list(_blocks(block.get("content"), (*path, "content"))))
    if flag_at(block, "is_error", path):
        content = _as_error(content)
        parts = [*[path] * (len(content) - len(parts)), *parts] if parts else parts
    conversation.add_result(text_at(block, "tool_use_id", path), content, path, parts)


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
        "id": text_at(block, "id", path),
        "name": text_at(block, "name", path),
        "arguments": object_at(block, "input", path),
    }


def _blocks(content: object, path: WirePath) -> Iterator[tuple[WirePath, Block]]:
    """Yield the blocks of a content and their paths; a text is one block."""
    if isinstance(content, str):
        if content:
            yield path, {"type": "text", "text": content}
    elif content is not None:
        for number, block in enumerate(as_list(content, path)):
            here = (*path, str(number))
            text_at(as_object(block, here), "type", here)
            yield here, block


def _content(blocks: Sequence[tuple[WirePath, Block]]) -> tuple[str | list[Mapping[str, Any]], Sequence[WirePath]]:
    """Return the text and the images of the blocks, a single text as it is, and anything else as parts and their paths.

    The paths are those of the blocks, some of which are no parts.
    """
    parts: list[Mapping[str, Any]] = []
    paths: list[WirePath] = []
    for path, block in blocks:
        part = _part(block, path)
        if part is not None:
            parts.append(part)
            paths.append(path)
    if not parts:
        return "", ()
    return (parts[0]["text"], ()) if len(parts) == 1 and parts[0]["type"] == "text" else (parts, paths)


def _part(block: Block, path: WirePath) -> Mapping[str, Any] | None:
    """Return a block as a part of a message, None for one that is dropped. Raises: RequestFailure for any other."""
    match block["type"]:
        case "text":
            return text_part(text_at(block, "text", path))
        case "image":
            return _image(object_at(block, "source", path), (*path, "source"))
        case "document":
            source = object_at(block, "source", path)
            return _document(source, block.get("title"), (*path, "source"))
        case kind if kind in DROPPED_BLOCKS:
            return None
        case kind:
            raise invalid((*path, "type"), REFUSED_BLOCKS.get(kind, "is not a type of block that is supported here"))


def _document(source: Block, title: object, path: WirePath) -> Mapping[str, Any]:
    kind = choice_at(source, "type", path, ("base64", "text", "url"))
    if kind == "url":
        return fetched_document(source.get("url"), title, (*path, "url"))
    media_type = text_at(source, "media_type", path)
    data = text_at(source, "data", path)
    return embedded_document(media_type, data if kind == "base64" else b64encode(data.encode()).decode(), title)


def _image(source: Block, path: WirePath) -> Mapping[str, Any]:
    match source.get("type"):
        case "base64":
            media_type = text_at(source, "media_type", path)
            return embedded_image(media_type, text_at(source, "data", path))
        case "url":
            return image_part(source.get("url"), (*path, "url"))
        case _:
            raise invalid((*path, "type"), "must be base64 or url")
