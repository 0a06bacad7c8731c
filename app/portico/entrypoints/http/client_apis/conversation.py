"""Conversation of a request: messages of any client API in the order that the contract demands.

Calls that follow each other are those of one assistant message. A result moves behind its call, wherever it was sent.
Each message knows the path of the item that it was made of, so that an error names it as it was sent.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from portico.domain.contract.messages import UNREADABLE_ARGUMENTS
from portico.domain.failures import RequestFailure, invalid_request
from portico.domain.strict_json import StrictJsonError, loads

WirePath: TypeAlias = tuple[str, ...]
"""Path of a part of a body, as it was sent."""
_NO_CALL: Final = "must name a call before it"


class WireConversation:
    """Messages under construction, in the order of the body.

    `open_calls` are the calls of an earlier execution to which the first results may belong.
    """

    def __init__(self, open_calls: Collection[str] = ()) -> None:
        self._slots: list[_Slot] = []
        self._open: dict[str, _Slot] = {}
        self._calls: dict[str, WirePath] = {}
        """The paths of the calls without a result, by id."""
        if open_calls:
            slot = _Slot(None, ())
            self._slots.append(slot)
            self._open = dict.fromkeys(open_calls, slot)

    def add(self, message: Mapping[str, Any], path: WirePath) -> None:
        """Add a message of any role but `tool`, with no calls yet."""
        self._slots.append(_Slot(dict(message), path))

    def add_call(self, call: Mapping[str, Any], path: WirePath) -> None:
        """Add a call (`id`, `name`, `arguments`) to the assistant message just before it, else to a new one.

        Raises: RequestFailure for an id that a call without a result has already.
        """
        slot = self._slots[-1] if self._slots else None
        if slot is None or slot.message is None or slot.message["role"] != "assistant" or slot.results:
            self.add({"role": "assistant", "content": ""}, path)
            slot = self._slots[-1]
        assert slot.message is not None  # noqa: S101 - it was added with one
        call_id = call["id"]
        if call_id in self._calls:
            raise invalid_request((".".join(path), "occurs twice without a result in between"))
        slot.message.setdefault("tool_calls", []).append(dict(call))
        slot.call_paths.append(path)
        self._open[call_id] = slot
        self._calls[call_id] = path

    def add_result(self, call_id: str, content: str | Sequence[Mapping[str, Any]], path: WirePath) -> None:
        """Add the result of a call. Raises: RequestFailure if no call before it waits for one."""
        slot = self._open.pop(call_id, None)
        if slot is None:
            raise invalid_request((".".join(path), _NO_CALL))
        self._calls.pop(call_id, None)
        slot.results.append(({"role": "tool", "content": content, "tool_call_id": call_id}, path))

    def messages(self) -> tuple[list[Mapping[str, Any]], Sequence["MessagePaths"]]:
        """Return the messages, and for each the paths of what it was made of.

        Raises: RequestFailure for a call without a result.
        """
        for path in self._calls.values():
            raise invalid_request((".".join(path), "has no result after it"))
        messages: list[Mapping[str, Any]] = []
        paths: list[MessagePaths] = []
        for slot in self._slots:
            if slot.message is not None:
                messages.append(slot.message)
                paths.append((slot.path, slot.call_paths))
            for result, path in slot.results:
                messages.append(result)
                paths.append((path, ()))
        return messages, paths


MessagePaths: TypeAlias = tuple[WirePath, Sequence[WirePath]]
"""The path of a message, and those of its calls."""


class _Slot:
    """A message, and the results that stand behind it."""

    __slots__ = ("call_paths", "message", "path", "results")

    def __init__(self, message: dict[str, Any] | None, path: WirePath) -> None:
        self.message = message
        self.path = path
        self.call_paths: list[WirePath] = []
        self.results: list[tuple[dict[str, Any], WirePath]] = []


def call_arguments(text: str) -> Mapping[str, Any]:
    """Return the arguments that a client gives as a text; one that is no JSON object is kept as it is."""
    try:
        found = loads(text.encode()) if text.strip() else {}
    except StrictJsonError:
        return {UNREADABLE_ARGUMENTS: text}
    return found if isinstance(found, dict) else {UNREADABLE_ARGUMENTS: text}


def missing_call(path: WirePath) -> RequestFailure:
    """Return the refusal of a result whose call is not known."""
    return invalid_request((".".join(path), _NO_CALL))
