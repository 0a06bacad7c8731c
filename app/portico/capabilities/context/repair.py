"""Repair of stored conversations that a provider would refuse: results without a call, and calls without a result.

A record can be broken because an execution of a session was deleted, or because a client's own messages were. What a
request itself says is never repaired but refused (`conversation_errors`). Two turns of one role in a row are left as
they are, since only some providers refuse them: their dialects send them as one.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from portico.domain.contract.messages import (
    Message,
    Origin,
    ToolCall,
    TracedMessage,
    leading_results,
    system_prompt,
)
from portico.domain.failures import invalid_request

NO_RESULT: Final = "[no result]"
"""Text of the error result that stands for a missing one."""
NO_CLIENT_RESULT: Final = "the client gave no result"
"""Text of the result of a call that the last turn left to the client, which went on without it."""


class Entry(NamedTuple):
    """A message of a repaired conversation, and its place in the stored one; None for one that the repair added."""

    message: Message
    place: int | None = None


def open_calls(messages: Sequence[Message]) -> Mapping[str, ToolCall]:
    """Return the calls at the end of a conversation that have no result, which are left to the client."""
    results = list(takewhile(lambda message: message.role == "tool", reversed(messages)))
    if len(results) == len(messages):
        return {}
    calls = messages[-1 - len(results)].tool_calls or ()
    ended = {message.tool_call_id for message in results}
    return {call.id: call for call in calls if call.id not in ended}


def unanswered(earlier: Sequence[Message], own: Sequence[Message]) -> list[TracedMessage]:
    """Return the results of the open calls of the `earlier` conversation that the client's `own` messages lack.

    Raises: RequestFailure (REQUEST_INVALID) for a result with which the own messages begin and that answers none.
    """
    left, first = dict(open_calls(earlier)), len(system_prompt(own))
    errors = [
        (f"messages.{index}.tool_call_id", "must name a call that the last turn left to the client")
        for index, message in enumerate(leading_results(own), first)
        if left.pop(message.tool_call_id or "", None) is None
    ]
    if errors:
        raise invalid_request(*errors)
    return [_result(call, NO_CLIENT_RESULT) for call in left.values()]


def is_whole(messages: Iterable[Message]) -> bool:
    """Return True if every result has its call and every call its result, so that there is nothing to repair."""
    open_calls: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                return False
            open_calls.remove(message.tool_call_id)
        elif open_calls:
            return False
        elif message.tool_calls:
            open_calls = {call.id for call in message.tool_calls}
            if len(open_calls) < len(message.tool_calls):
                return False
    return not open_calls


def repaired(messages: Iterable[Message]) -> list[Entry]:
    """Return the conversation without orphan results, and with one result for every call."""
    entries: list[Entry] = []
    open_calls: dict[str, ToolCall] = {}
    for place, message in enumerate(messages):
        if message.role == "tool":
            if open_calls.pop(message.tool_call_id or "", None) is not None:
                entries.append(Entry(message, place))
            continue
        entries += map(_missing_result, open_calls.values())
        open_calls = {call.id: call for call in message.tool_calls or ()}
        entries.append(Entry(_with_calls(message, open_calls), place))
    entries += map(_missing_result, open_calls.values())
    return entries


def _with_calls(message: Message, calls: Mapping[str, ToolCall]) -> Message:
    """Return the message with these calls, which lack those whose id occurs twice."""
    if len(calls) == len(message.tool_calls or ()):
        return message
    return message.model_copy(update={"tool_calls": list(calls.values())})


def _missing_result(call: ToolCall) -> Entry:
    return Entry(_result(call, NO_RESULT))


def _result(call: ToolCall, text: str) -> TracedMessage:
    """Return the result that stands for a missing one. It is the service's own text, so it is trusted."""
    return TracedMessage(role="tool", content=text, tool_call_id=call.id, name=call.name[:64], origin=Origin.TRUSTED)
