"""Requests of AG-UI: `RunAgentInput` as a request, or as answers to interrupts.

Unknown fields are ignored, `forwardedProps` among them: a browser writes it, and a runtime passes it on under the
application's key, so that a visitor could name the session of another.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId, SuspensionId
from portico.domain.value import value
from portico.entrypoints.http.client_apis.api import DecodedRequest, JsonObject, Shown
from portico.entrypoints.http.client_apis.conversation import ItemFields, WireConversation, WirePath, call_arguments
from portico.entrypoints.http.client_apis.ids import named_execution
from portico.entrypoints.http.client_apis.models import AGENT, ModelNames
from portico.entrypoints.http.client_apis.request_fields import RequestFields
from portico.entrypoints.http.client_apis.wire_values import (
    as_choice,
    as_list,
    as_object,
    as_text,
    choice_at,
    image_part,
    invalid,
    list_at,
    object_at,
    text_at,
    text_part,
)

DEFAULT_AGENT: Final = "default"
INTERRUPT: Final = "interrupt"
"""Prefix under which the id of an execution is read from an interrupt's id."""
_DROPPED: Final = frozenset({"activity", "reasoning"})
_ROLES: Final = ("developer", "system", "assistant", "user", "tool", *sorted(_DROPPED))
_ITEM_FIELDS: Final = ItemFields(
    call={"name": ("function", "name"), "arguments": ("function", "arguments")},
    result={"tool_call_id": ("toolCallId",)},
)
_MAX_ID: Final = 256


@value
class Run:
    """Facts of a run that its frames repeat: the client's ids, its messages and its state.

    `is_version_1` tells that the client knows what came with version 1.0 of the protocol.
    """

    thread_id: str
    run_id: str
    is_version_1: bool
    messages: Sequence[JsonObject]
    state: Any


@value
class RunShown(Shown):
    """Facts of a request of AG-UI."""

    run: Run | None = None


@value
class InterruptAnswer:
    """An answer to an interrupt; one that `is_cancelled` refuses it."""

    suspension_id: SuspensionId
    is_cancelled: bool
    payload: Any


@value
class InterruptAnswers:
    """Answers to interrupts of one execution."""

    run: Run
    request_id: RequestId
    answers: Sequence[InterruptAnswer]


def decode(body: JsonObject, agent: str, names: ModelNames) -> DecodedRequest[RunShown] | InterruptAnswers:
    """Return the request, or the answers to interrupts if the input has any.

    Raises: RequestFailure naming the field as it was sent, or (404) for an agent that is not there; AccessFailure.
    """
    run = _run(body)
    entries = body.get("resume")
    if entries is not None and as_list(entries, ("resume",)):
        return _answers(run, entries)
    model = _model(agent, names)
    fields = RequestFields({"model": model}, names, can_ask_person=True)
    conversation = WireConversation(_ITEM_FIELDS)
    _add_context(conversation, body.get("context"))
    _add_messages(conversation, body.get("messages"))
    fields.put_conversation(conversation, ("messages",))
    _put_tools(fields, body.get("tools"))
    fields.put("metadata.thread_id", run.thread_id, ("threadId",))
    fields.put("metadata.run_id", run.run_id, ("runId",))
    request = fields.finish()
    if not request.flow and not _has_news(request):
        raise invalid(("messages",), "must end with a new message of the user, or with the result of a tool")
    shown = fields.shown(partial(RunShown, ends_at_suspension=True, run=run), request, is_stream=True)
    return DecodedRequest(request, fields.ignored, shown, fields.path_of)


def _model(agent: str, names: ModelNames) -> str:
    """Return the name that the agent is resolved by; `default` is the default route, unless an agent is named so."""
    if agent in names.served.agents:
        return AGENT + agent
    if agent == DEFAULT_AGENT:
        return names.served.default_route
    raise RequestFailure(Code.REQUEST_NOT_FOUND, "no agent has this name", condition="path")


def _run(body: JsonObject) -> Run:
    version = body.get("protocolVersion")
    messages = as_list(body.get("messages", []), ("messages",))
    return Run(
        _id(body.get("threadId"), ("threadId",)),
        _id(body.get("runId"), ("runId",)),
        isinstance(version, str) and version.startswith("1."),
        [as_object(each, ("messages", str(index))) for index, each in enumerate(messages)],
        body.get("state"),
    )


def _id(found: object, path: WirePath) -> str:
    text = as_text(found, path)
    if not text or len(text) > _MAX_ID:
        raise invalid(path, f"must have 1 to {_MAX_ID} characters")
    return text


def _has_news(request: SystemRequest) -> bool:
    return bool(request.messages) and request.messages[-1].role in {"user", "tool"}


def _add_context(conversation: WireConversation, context: object) -> None:
    """Add what the page tells of itself as one system message, a line for each."""
    lines = []
    for index, found in enumerate(() if context is None else as_list(context, ("context",))):
        path: WirePath = ("context", str(index))
        entry = as_object(found, path)
        description = text_at(entry, "description", path)
        lines.append(f"{description}: {text_at(entry, 'value', path)}")
    if lines:
        conversation.add({"role": "system", "content": "\n".join(lines)}, ("context",))


def _add_messages(conversation: WireConversation, messages: object) -> None:
    for index, found in enumerate(as_list(messages, ("messages",))):
        path: WirePath = ("messages", str(index))
        message = as_object(found, path)
        role = choice_at(message, "role", path, _ROLES)
        match role:
            case "assistant":
                _add_assistant(conversation, message, path)
            case "tool":
                call_id = text_at(message, "toolCallId", path)
                conversation.add_result(call_id, _result(message, path), path)
            case "user":
                content = _content(message.get("content"), (*path, "content"))
                conversation.add({"role": "user", "content": content}, path)
            case "developer" | "system":
                text = text_at(message, "content", path)
                conversation.add({"role": "system", "content": text}, path)
            case _:
                pass


def _add_assistant(conversation: WireConversation, message: Mapping[str, Any], path: WirePath) -> None:
    content = message.get("content")
    if content:
        conversation.add({"role": "assistant", "content": as_text(content, (*path, "content"))}, path)
    for number, found in enumerate(list_at(message, "toolCalls", path)):
        here = (*path, "toolCalls", str(number))
        call = as_object(found, here)
        function = object_at(call, "function", here)
        inner = (*here, "function")
        name, arguments = text_at(function, "name", inner), call_arguments(text_at(function, "arguments", inner))
        conversation.add_call({"id": text_at(call, "id", here), "name": name, "arguments": arguments}, here)


def _result(message: Mapping[str, Any], path: WirePath) -> str | Sequence[Mapping[str, Any]]:
    error = message.get("error")
    if error is not None:
        return as_text(error, (*path, "error"))
    return _content(message.get("content"), (*path, "content"))


def _content(found: object, path: WirePath) -> str | Sequence[Mapping[str, Any]]:
    if isinstance(found, str):
        return found
    parts = as_list(found, path)
    return [_part(as_object(each, (*path, str(index))), (*path, str(index))) for index, each in enumerate(parts)]


def _part(part: Mapping[str, Any], path: WirePath) -> Mapping[str, Any]:
    kind = choice_at(part, "type", path, ("text", "image", "document", "audio"))
    if kind == "text":
        return text_part(text_at(part, "text", path))
    source = object_at(part, "source", path)
    of_source = as_choice(source.get("type"), (*path, "source", "type"), ("data", "url"))
    found = as_text(source.get("value"), (*path, "source", "value"))
    if of_source == "url" and kind == "image":
        return image_part(found, (*path, "source", "value"))
    media_type = as_text(source.get("mimeType"), (*path, "source", "mimeType"))
    return {"type": kind, "media_type": media_type, of_source: found}


def _put_tools(fields: RequestFields, tools: object) -> None:
    """Offer the tools that the page runs."""
    offered: list[Mapping[str, Any]] = []
    paths: list[WirePath] = []
    for index, found in enumerate(() if tools is None else as_list(tools, ("tools",))):
        path: WirePath = ("tools", str(index))
        tool = as_object(found, path)
        named: dict[str, Any] = {"name": text_at(tool, "name", path)}
        if tool.get("description") is not None:
            named["description"] = as_text(tool["description"], (*path, "description"))
        if tool.get("parameters") is not None:
            named["parameters"] = as_object(tool["parameters"], (*path, "parameters"))
        offered.append(named)
        paths.append(path)
    fields.put_client_tools(offered, paths)


def _answers(run: Run, entries: Sequence[Any]) -> InterruptAnswers:
    named: set[RequestId] = set()
    answers = []
    for index, found in enumerate(entries):
        path: WirePath = ("resume", str(index))
        entry = as_object(found, path)
        text = text_at(entry, "interruptId", path)
        digits, _, suspension_id = text.partition("/")
        execution = named_execution(f"{INTERRUPT}_{digits}", INTERRUPT)
        if execution is None or execution.number is not None or not suspension_id:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "no execution has this interrupt", condition="path")
        named.add(execution.request_id)
        status = choice_at(entry, "status", path, ("resolved", "cancelled"))
        answers.append(InterruptAnswer(SuspensionId(suspension_id), status == "cancelled", entry.get("payload")))
    if len(named) != 1:
        raise invalid(("resume",), "must be of one execution")
    return InterruptAnswers(run, named.pop(), answers)
