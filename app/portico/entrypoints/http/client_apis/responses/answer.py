"""Answers of the Responses API: the Response object, and the items of its output.

Ids of items count by kind over the whole execution, so that an id names one item also where an execution has several
answers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import orjson

from portico.domain.contract.quote import Quote
from portico.domain.contract.response import SystemResponse, TokenUsage
from portico.domain.ids import RequestId
from portico.domain.value import value
from portico.entrypoints.http.client_apis.api import Shown
from portico.entrypoints.http.client_apis.extension import EXTENSION, extension_of, extension_of_quote
from portico.entrypoints.http.client_apis.ids import created_at, digits
from portico.entrypoints.http.client_apis.turn import (
    ApprovalItem,
    ClientCallItem,
    FinishReason,
    Item,
    ReasoningItem,
    ServerCallItem,
    TextItem,
    Turn,
)

SERVER_LABEL: Final = "portico"
Now: TypeAlias = Callable[[], float]
"""Returns the time in Unix seconds."""
Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
_PREFIXES: Final[Mapping[type[Item], str]] = MappingProxyType(
    {TextItem: "msg", ReasoningItem: "rs", ServerCallItem: "mcp", ClientCallItem: "fc", ApprovalItem: "mcpr"}
)
_INCOMPLETE: Final[Mapping[FinishReason, str]] = MappingProxyType(
    {"length": "max_output_tokens", "content_filter": "content_filter"}
)


@value
class ResponsesShown(Shown):
    """Repetition of the request in its answers: `fields` of the Response object."""

    fields: Mapping[str, Any] = field(default_factory=dict)


@value
class Outcome:
    """Status of an answer, with the time of its end in Unix seconds, its usage and its failure."""

    status: Status
    ended_at: int | None = None
    usage: TokenUsage | None = None
    reason: str | None = None
    """Why it is incomplete."""
    error: Mapping[str, Any] | None = None
    """`code` and `message` of its failure."""


QUEUED: Final = Outcome("queued")
IN_PROGRESS: Final = Outcome("in_progress")


class ItemIds:
    """Ids of the items of one answer, of which `earlier` are those of the answers before it."""

    def __init__(self, request_id: RequestId, earlier: Iterable[Item] = ()) -> None:
        self._digits = digits(request_id)
        self._counts: dict[type[Item], int] = {}
        for item in earlier:
            self._counts[type(item)] = self._counts.get(type(item), 0) + 1

    def next(self, item: Item) -> str:
        """Return the id of the next item, which is of that kind."""
        kind = type(item)
        number = self._counts.get(kind, 0)
        self._counts[kind] = number + 1
        return f"{_PREFIXES[kind]}_{self._digits}_{number}"


def response_id(request_id: RequestId, number: int = 0) -> str:
    """Return the id of the answer behind that many approvals."""
    return f"resp_{digits(request_id)}" + (f"_{number}" if number else "")


def outcome_of(finish: FinishReason, usage: TokenUsage, ended_at: float) -> Outcome:
    """Return the outcome of an answer that ended well."""
    reason = _INCOMPLETE.get(finish)
    return Outcome("completed" if reason is None else "incomplete", int(ended_at), usage, reason)


def response_object(
    request_id: RequestId, shown: ResponsesShown, outcome: Outcome, output: Sequence[Any], *, number: int = 0
) -> dict[str, Any]:
    """Return the Response object with every field that the API requires."""
    usage = outcome.usage
    return {
        **shown.fields,
        "id": response_id(request_id, number),
        "object": "response",
        "created_at": created_at(request_id),
        "completed_at": outcome.ended_at if outcome.status == "completed" else None,
        "status": outcome.status,
        "incomplete_details": None if outcome.reason is None else {"reason": outcome.reason},
        "error": outcome.error,
        "output": output,
        "usage": None if usage is None else _usage(usage),
    }


def encode(now: Now, turn: Turn, shown: ResponsesShown) -> bytes:
    """Return the body of the answer to a request."""
    outcome = outcome_of(turn.finish, turn.usage, now())
    output = output_of(turn.items, ItemIds(turn.request_id), is_cut=outcome.status == "incomplete")
    answer = response_object(turn.request_id, shown, outcome, output)
    return orjson.dumps({**answer, **extension_member(turn.response, shown)})


def encode_quote(now: Now, quote: Quote, request_id: RequestId, shown: ResponsesShown) -> bytes:
    """Return the body of an answer that has bounds and nothing else."""
    answer = response_object(request_id, shown, Outcome("completed", int(now())), [])
    return orjson.dumps({**answer, EXTENSION: extension_of_quote(quote, request_id)})


def extension_member(response: SystemResponse, shown: ResponsesShown) -> Mapping[str, Any]:
    """Return the member `portico` of an answer; nothing unless its request has one."""
    return {EXTENSION: extension_of(response)} if shown.has_extension else {}


def output_of(items: Iterable[Item], ids: ItemIds, *, is_cut: bool = False) -> list[dict[str, Any]]:
    """Return the items as an answer shows them; of one that `is_cut` the last text is incomplete."""
    output = [shown_item(item, ids.next(item)) for item in items]
    if is_cut and output and output[-1]["type"] == "message":
        output[-1]["status"] = "incomplete"
    return output


def shown_item(item: Item, item_id: str) -> dict[str, Any]:
    """Return a whole item."""
    match item:
        case TextItem(text=text):
            return message_item(item_id, [text_part(text)], "completed")
        case ReasoningItem(text=text):
            return {"type": "reasoning", "id": item_id, "summary": [summary_part(text)]}
        case ServerCallItem():
            return _server_call(item, item_id)
        case ClientCallItem():
            call = {"type": "function_call", "id": item_id, "call_id": item.id, "name": item.name}
            return {**call, "arguments": arguments_text(item.arguments), "status": "completed"}
        case ApprovalItem():
            about = {"type": "mcp_approval_request", "id": item_id, "server_label": SERVER_LABEL, "name": item.name}
            return {**about, "arguments": arguments_text(item.arguments)}


def begun_item(item: Item, item_id: str) -> dict[str, Any]:
    """Return an item of which nothing is known but its kind and name."""
    match item:
        case TextItem():
            return message_item(item_id, [], "in_progress")
        case ReasoningItem():
            return {"type": "reasoning", "id": item_id, "summary": []}
        case ServerCallItem() | ClientCallItem():
            nothing = {"output": None, "error": None} if isinstance(item, ServerCallItem) else {}
            return {**shown_item(item, item_id), **nothing, "arguments": "", "status": "in_progress"}
        case ApprovalItem():
            return shown_item(item, item_id)


def message_item(item_id: str, content: Sequence[Any], status: str) -> dict[str, Any]:
    """Return a message of the assistant."""
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": content}


def text_part(text: str) -> dict[str, Any]:
    """Return the only part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def summary_part(text: str) -> dict[str, Any]:
    """Return the only part of a summary of reasoning."""
    return {"type": "summary_text", "text": text}


def arguments_text(arguments: Mapping[str, Any] | None) -> str:
    """Return the arguments of a call as JSON text; empty if they are not known."""
    return "" if arguments is None else orjson.dumps(arguments).decode()


def _server_call(call: ServerCallItem, item_id: str) -> dict[str, Any]:
    is_error = bool(call.is_error)
    return {
        "type": "mcp_call",
        "id": item_id,
        "server_label": SERVER_LABEL,
        "name": call.name,
        "arguments": arguments_text(call.arguments),
        "output": None if is_error else call.output,
        "error": {"type": "mcp_tool_execution_error", "content": call.output} if is_error else None,
        "status": "failed" if is_error else "completed",
    }


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
