"""Conversation of a request: messages of any client API in the order that the contract demands.

Calls that follow each other are those of one assistant message. A result moves behind its call, wherever it was sent.
Each message knows the path of the item that it was made of, so that an error names it as it was sent.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from portico.domain.contract.messages import UNREADABLE_ARGUMENTS
from portico.domain.failures import invalid_request
from portico.domain.strict_json import StrictJsonError, loads
from portico.domain.value import value

WirePath: TypeAlias = tuple[str, ...]
"""Path of a part of a body, as it was sent."""
_NO_CALL: Final = "must name a call before it"


@value
class ItemFields:
    """Paths of the fields of a call and of its result, below the item; a field that is not here keeps its name.

    `call` has fields of a `ToolCall`, `result` those of a message of a tool.
    """

    call: Mapping[str, WirePath] = field(default_factory=lambda: MappingProxyType({}))
    result: Mapping[str, WirePath] = field(default_factory=lambda: MappingProxyType({}))


class WireConversation:
    """Messages under construction, in the order of the body.

    `open_calls` are the calls of an earlier execution to which the first results may belong.
    """

    def __init__(self, fields: ItemFields, open_calls: Collection[str] = ()) -> None:
        self._fields = fields
        self._items: list[_Item] = []
        """What was sent, without results."""
        self._ordered: list[_Item] = []
        """All messages in their order, once they were taken."""
        self._open: dict[str, _Item] = {}
        self._calls: dict[str, WirePath] = {}
        """The paths of the calls without a result, by id."""
        if open_calls:
            earlier = _Item(None, ())
            self._items.append(earlier)
            self._open = dict.fromkeys(open_calls, earlier)

    def add(self, message: dict[str, Any], path: WirePath, parts: Sequence[WirePath] = ()) -> None:
        """Add a message of any role but `tool`, with no calls yet.

        `parts` are the paths of the parts of its content, if the position in that does not tell them.
        """
        self._items.append(_Item(message, path, parts))

    def add_call(self, call: Mapping[str, Any], path: WirePath) -> None:
        """Add a call (`id`, `name`, `arguments`) to the assistant message just before it, else to a new one.

        Raises: RequestFailure for an id that a call without a result has already.
        """
        item = self._items[-1] if self._items else None
        if item is None or item.message is None or item.message["role"] != "assistant" or item.results:
            self.add({"role": "assistant", "content": ""}, path)
            item = self._items[-1]
        assert item.message is not None  # noqa: S101 - it was added with one
        call_id = call["id"]
        if call_id in self._calls:
            raise invalid_request((".".join(self._id_path(path)), "occurs twice without a result in between"))
        item.message.setdefault("tool_calls", []).append(call)
        item.calls.append(path)
        self._open[call_id] = item
        self._calls[call_id] = path

    def add_result(
        self, call_id: str, content: str | Sequence[Mapping[str, Any]], path: WirePath, parts: Sequence[WirePath] = ()
    ) -> None:
        """Add the result of a call. Raises: RequestFailure if no call before it waits for one."""
        item = self._open.pop(call_id, None)
        if item is None:
            raise invalid_request((".".join((*path, *self._fields.result.get("tool_call_id", ()))), _NO_CALL))
        self._calls.pop(call_id, None)
        message = {"role": "tool", "content": content, "tool_call_id": call_id}
        item.results.append(_Item(message, path, parts))

    def messages(self) -> list[Mapping[str, Any]]:
        """Return the messages. Raises: RequestFailure for a call without a result."""
        for path in self._calls.values():
            raise invalid_request((".".join(self._id_path(path)), "has no result after it"))
        self._ordered = [each for item in self._items for each in (item, *item.results) if each.message is not None]
        return [item.message for item in self._ordered if item.message is not None]

    def path_of(self, index: int, field_path: WirePath) -> WirePath | None:
        """Return the path in the body of a field of the message at that index; None if there is no such message."""
        if index >= len(self._ordered):
            return None
        item = self._ordered[index]
        match field_path:
            case ("tool_calls", number, *rest) if number.isdecimal() and int(number) < len(item.calls):
                return (*item.calls[int(number)], *_renamed(rest, self._fields.call))
            case ("content", number, *rest) if number.isdecimal() and int(number) < len(item.parts):
                return (*item.parts[int(number)], *rest)
            case _:
                is_result = item.message is not None and item.message["role"] == "tool"
                return (*item.path, *(_renamed(field_path, self._fields.result) if is_result else field_path))

    def _id_path(self, path: WirePath) -> WirePath:
        """Return the path of a call by its id, where an API has a name of its own for that."""
        return (*path, *self._fields.call.get("id", ()))


class _Item:
    """A message, what stands where in the body, and the results that stand behind it.

    It has no message if it stands for the calls of an earlier execution.
    """

    __slots__ = ("calls", "message", "parts", "path", "results")

    def __init__(self, message: dict[str, Any] | None, path: WirePath, parts: Sequence[WirePath] = ()) -> None:
        self.message = message
        self.path = path
        self.parts = parts
        self.calls: list[WirePath] = []
        self.results: list[_Item] = []


def _renamed(path: Sequence[str], names: Mapping[str, WirePath]) -> Sequence[str]:
    return (*names.get(path[0], path[:1]), *path[1:]) if path else ()


def call_arguments(text: str) -> Mapping[str, Any]:
    """Return the arguments that a client gives as a text; one that is no JSON object is kept as it is."""
    try:
        found = loads(text.encode()) if text.strip() else {}
    except StrictJsonError:
        return {UNREADABLE_ARGUMENTS: text}
    return found if isinstance(found, dict) else {UNREADABLE_ARGUMENTS: text}
