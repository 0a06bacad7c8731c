"""Requests of the Responses API: what a body asks for, as a `SystemRequest`.

Items of earlier answers of which the record has more than the client can send (reasoning, calls that ran here) are
dropped. A request whose input ends with answers to approvals is no new turn: it continues the execution that waits.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from portico.domain.contract.request import ExecutionHints, NamedTool, SystemRequest
from portico.domain.failures import RequestFailure
from portico.domain.ids import RequestId
from portico.domain.journal.header import ClientView
from portico.domain.tools import reference_of
from portico.domain.value import replace, value
from portico.entrypoints.http.client_apis.api import DecodedRequest, JsonObject
from portico.entrypoints.http.client_apis.conversation import ItemFields, WireConversation, WirePath, call_arguments
from portico.entrypoints.http.client_apis.errors import PREVIOUS_RESPONSE_NOT_FOUND, not_found
from portico.entrypoints.http.client_apis.extension import EXTENSION
from portico.entrypoints.http.client_apis.ids import NamedExecution, called_execution, named_execution
from portico.entrypoints.http.client_apis.models import ModelNames
from portico.entrypoints.http.client_apis.request_fields import (
    ANY_OBJECT,
    RequestFields,
    put_effort,
    put_parallel_calls,
)
from portico.entrypoints.http.client_apis.responses.answer import SERVER_LABEL, ResponsesShown, response_id
from portico.entrypoints.http.client_apis.wire_values import (
    as_choice,
    as_flag,
    as_list,
    as_object,
    as_text,
    audio_part,
    choice_at,
    document_part,
    fetched_document,
    image_part,
    invalid,
    text_at,
    text_part,
)

PREVIOUS: Final = "previous_response_id"
RESPONSE: Final = "resp"
APPROVAL: Final = "mcpr"
_APPROVAL_RESPONSE: Final = "mcp_approval_response"
_OUR_ITEMS: Final = frozenset({"reasoning", "mcp_call", "mcp_list_tools", "mcp_approval_request", "compaction"})
"""Items of earlier answers that are dropped."""
_CHOICES: Final = ("auto", "none", "required")
_ROLES: Final[Mapping[str, str]] = MappingProxyType(
    {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
)
_ROLE_NAMES: Final = tuple(_ROLES)
_TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
)
"""Types of parts that are text, with the field that has it."""
_SUMMARIES: Final = ("auto", "concise", "detailed")
_ITEM_FIELDS: Final = ItemFields(
    call={"id": ("call_id",)}, result={"tool_call_id": ("call_id",), "content": ("output",)}
)
_NOT_EMBEDDED: Final = "must be a text, an image, a file with its `file_data` or `file_url`, or audio"
_FORMAT_NAME: Final = "answer"
_CONFIGURED: Final = "the operator configures servers"
_PARAMETERS: Final = (
    ("hints.max_tokens", "max_output_tokens"),
    ("hints.temperature", "temperature"),
    ("hints.top_p", "top_p"),
    ("store", "store"),
    ("background", "background"),
)
_OPTIONS: Final = ("presence_penalty", "frequency_penalty", "top_k")


@value
class ApprovalAnswer:
    """An answer to the approval of that number, counted over the whole execution, and where it stands in the body."""

    number: int
    approves: bool
    reason: str | None
    path: WirePath


@value
class ApprovalAnswers:
    """Answers to approvals of one execution."""

    request_id: RequestId
    answers: Sequence[ApprovalAnswer]
    is_stream: bool


@value
class DecodedResponsesRequest(DecodedRequest[ResponsesShown]):
    """A request, with the `references` of its input to items of answers before the previous one, and their paths.

    `view` is what its answers repeat of it, also later.
    """

    references: Sequence[tuple[RequestId, WirePath]] = ()
    view: ClientView = ClientView("")


def decode(body: JsonObject, names: ModelNames) -> DecodedResponsesRequest:
    """Return the request. Raises: RequestFailure naming the field as it was sent; AccessFailure."""
    fields = RequestFields(body, names)
    previous = _put_previous(fields)
    references = _put_input(fields, previous)
    is_stream = as_flag(fields.take("stream"), ("stream",))
    view = ClientView(
        fields.model, has_extension=EXTENSION in body, has_instructions=body.get("instructions") is not None
    )
    if fields.are_left:
        view = _put_rest(fields, view)
    request = fields.finish()
    make_shown = partial(
        ResponsesShown,
        fields=shown_fields(request, view),
        with_reasoning=view.summary is not None,
        ends_at_suspension=view.client_approves,
    )
    shown = fields.shown(make_shown, request, is_stream=is_stream)
    return DecodedResponsesRequest(request, fields.ignored, shown, fields.path_of, references=references, view=view)


def _put_rest(fields: RequestFields, view: ClientView) -> ClientView:
    """Set all but the conversation, and return the view with what it repeats of that."""
    choice = fields.take("tool_choice")
    tools = _Tools(fields, choice)
    tools.put()
    _put_choice(fields, choice)
    summary = _put_sampling(fields)
    form = _put_format(fields)
    fields.put_metadata()
    as_object(fields.take("stream_options") or {}, ("stream_options",))
    for each in as_list(fields.take("include") or [], ("include",)):
        fields.ignore(f"include.{as_text(each, ('include',))}")
    return replace(view, summary=summary, client_approves=tools.asks_approval, format=form)


def approval_answers(body: JsonObject) -> ApprovalAnswers | None:
    """Return the answers to approvals with which the input ends; None for a request of any other kind.

    Answers that an earlier answer of the service follows were given before. Raises: RequestFailure.
    """
    items = body.get("input")
    if not isinstance(items, list):
        return None
    last = next((n for n in reversed(range(len(items))) if _kind(items[n]) == _APPROVAL_RESPONSE), None)
    if last is None or any(_is_answer(item) for item in items[last + 1 :]):
        return None
    if last + 1 < len(items):
        raise invalid(("input", str(last + 1)), "must not follow the answers to approvals; send it in the next request")
    first = next((n + 1 for n in reversed(range(last)) if _kind(items[n]) != _APPROVAL_RESPONSE), 0)
    given = [_approval_answer(items[n], ("input", str(n))) for n in range(first, len(items))]
    if len({named.request_id for named, _ in given}) > 1:
        raise invalid(("input", str(last), "approval_request_id"), "must be of the same answer as the others")
    named = given[0][0]
    previous = body.get(PREVIOUS)
    if previous is not None and _previous(previous).request_id != named.request_id:
        raise invalid((PREVIOUS,), "must be the answer that asked for these approvals")
    is_stream = as_flag(body.get("stream"), ("stream",))
    return ApprovalAnswers(named.request_id, tuple([answer for _, answer in given]), is_stream)


def shown_fields(request: SystemRequest, view: ClientView) -> Mapping[str, Any]:
    """Return the fields of the Response object that repeat the request."""
    hints, options = request.hints, request.hints.options
    return {
        "model": view.model,
        "previous_response_id": None if request.after is None else response_id(request.after),
        "instructions": request.messages[0].text if view.has_instructions and request.messages else None,
        "conversation": None if request.session_id is None else {"id": request.session_id},
        "tools": _shown_tools(request),
        "tool_choice": _shown_choice(request),
        "parallel_tool_calls": request.limits.calls_per_reply != 1,
        "max_tool_calls": None,
        "text": {"format": _shown_format(request.output.schema_, view.format)},
        "truncation": "disabled",
        "temperature": 1.0 if hints.temperature is None else hints.temperature,
        "top_p": 1.0 if hints.top_p is None else hints.top_p,
        "presence_penalty": options.get("presence_penalty", 0.0),
        "frequency_penalty": options.get("frequency_penalty", 0.0),
        "top_logprobs": 0,
        "max_output_tokens": hints.max_tokens,
        "reasoning": {"effort": _shown_effort(hints), "summary": view.summary},
        "store": request.store,
        "background": request.background,
        "service_tier": "default",
        **(_shown_metadata(request.metadata) if request.metadata else _NO_METADATA),
    }


def _shown_effort(hints: ExecutionHints) -> str | None:
    return "xhigh" if hints.reasoning == "max" else hints.reasoning


def _shown_metadata(metadata: Mapping[str, str]) -> Mapping[str, Any]:
    own = {name: metadata.get(name) for name in _OWN_METADATA}
    return {"metadata": {name: text for name, text in metadata.items() if name not in own}, **own}


_OWN_METADATA: Final = ("user", "safety_identifier", "prompt_cache_key")
_NO_METADATA: Final = MappingProxyType(_shown_metadata({}))


def _shown_tools(request: SystemRequest) -> Sequence[Mapping[str, Any]]:
    tools: list[Mapping[str, Any]] = [
        {"type": "function", **tool.model_dump(), "strict": None} for tool in request.client_tools
    ]
    if request.tools:
        server = {"type": "mcp", "server_label": SERVER_LABEL, "allowed_tools": list(map(reference_of, request.tools))}
        tools.append({**server, "require_approval": "never"})
    return tools


def _shown_choice(request: SystemRequest) -> str | Mapping[str, str]:
    choice = request.hints.tool_choice
    return {"type": "function", "name": choice.name} if isinstance(choice, NamedTool) else choice or "auto"


def _shown_format(schema: Mapping[str, Any] | None, form: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if schema is None:
        return {"type": "text"}
    if form is None and schema == ANY_OBJECT:
        return {"type": "json_object"}
    named = {"name": _FORMAT_NAME, "description": None, "strict": True} if form is None else form
    return {"type": "json_schema", **named, "schema": None}


def _put_previous(fields: RequestFields) -> RequestId | None:
    """Set what the request continues: an answer, or a conversation."""
    previous, conversation = fields.take(PREVIOUS), fields.take("conversation")
    if conversation is not None:
        if previous is not None:
            raise invalid((PREVIOUS,), "must not be sent with conversation")
        if isinstance(conversation, dict):
            conversation = conversation.get("id")
        fields.put("session_id", as_text(conversation, ("conversation",)), ("conversation",))
    if previous is None:
        return None
    request_id = _previous(previous).request_id
    fields.put("after", request_id, (PREVIOUS,))
    return request_id


def _previous(given: object) -> NamedExecution:
    named = named_execution(as_text(given, (PREVIOUS,)), RESPONSE)
    if named is None:
        raise unknown_response()
    return named


def unknown_item(path: WirePath) -> RequestFailure:
    """Return the refusal of a reference to an item that is in no answer before the request."""
    return invalid(path, "must be the id of an item of the previous answer, or of one before it")


def unknown_response() -> RequestFailure:
    """Return the refusal of a `previous_response_id` that no answer has."""
    return not_found(PREVIOUS, "no answer has this id", PREVIOUS_RESPONSE_NOT_FOUND)


def _put_input(fields: RequestFields, previous: RequestId | None) -> Sequence[tuple[RequestId, WirePath]]:
    """Set the messages, `instructions` first, and return the references to items of earlier answers."""
    found, instructions = fields.take("input"), fields.take("instructions")
    items = found if isinstance(found, list) else []
    conversation = WireConversation(_ITEM_FIELDS, () if previous is None else _open_calls(items, previous))
    if instructions is not None:
        text = as_text(instructions, ("instructions",))
        conversation.add({"role": "system", "content": text}, ("instructions",))
    if isinstance(found, str):
        conversation.add({"role": "user", "content": found}, ("input",))
    reader = _InputItems(conversation, previous)
    if found is not None and not isinstance(found, str):
        reader.add(as_list(found, ("input",)))
    fields.put_conversation(conversation, ("input",))
    return reader.references


def _open_calls(items: Sequence[Any], previous: RequestId) -> Sequence[str]:
    """Return the ids of the calls of the previous answer of which the results are among these items."""
    outputs = [item.get("call_id") for item in items if _kind(item) == "function_call_output"]
    return [each for each in outputs if isinstance(each, str) and _is_of(each, previous)]


def _is_of(call_id: str, previous: RequestId | None) -> bool:
    called = called_execution(call_id)
    return called is not None and called.request_id == previous


class _InputItems:
    """Reader of input items into a conversation that may continue a `previous` answer."""

    def __init__(self, conversation: WireConversation, previous: RequestId | None) -> None:
        self.references: list[tuple[RequestId, WirePath]] = []
        """The executions before the previous one whose items are referred to."""
        self._conversation = conversation
        self._previous = previous

    def add(self, items: Sequence[Any]) -> None:
        """Add all items. Raises: RequestFailure."""
        for index, found in enumerate(items):
            path = ("input", str(index))
            item = as_object(found, path)
            kind = _kind(item)
            add = _ITEMS.get(kind)
            if add is not None:
                add(self, item, path)
            elif kind not in _OUR_ITEMS and kind != _APPROVAL_RESPONSE:
                raise invalid((*path, "type"), "must be a type of item that is supported")

    def add_message(self, item: Mapping[str, Any], path: WirePath) -> None:
        """Add a message; the text of an assistant's message is one text."""
        role = _ROLES[choice_at(item, "role", path, _ROLE_NAMES)]
        content = _content(item.get("content"), (*path, "content"))
        if role == "assistant" and not isinstance(content, str):
            content = "".join(part["text"] for part in content if part["type"] == "text")
        self._conversation.add({"role": role, "content": content}, path)

    def add_call(self, item: Mapping[str, Any], path: WirePath) -> None:
        """Add a call of the client's, unless the previous answer has it."""
        call_id = text_at(item, "call_id", path)
        if _is_of(call_id, self._previous):
            return
        arguments = call_arguments(text_at(item, "arguments", path))
        name = text_at(item, "name", path)
        self._conversation.add_call({"id": call_id, "name": name, "arguments": arguments}, path)

    def add_output(self, item: Mapping[str, Any], path: WirePath) -> None:
        """Add the result of a call."""
        call_id = text_at(item, "call_id", path)
        content = _content(item.get("output"), (*path, "output"))
        self._conversation.add_result(call_id, content, path)

    def add_reference(self, item: Mapping[str, Any], path: WirePath) -> None:
        """Pass over the reference to an item of an answer before, which the record has in its place."""
        item_id = text_at(item, "id", path)
        named = named_execution(item_id, item_id.partition("_")[0])
        if named is None or self._previous is None:
            raise unknown_item((*path, "id"))
        if named.request_id != self._previous:
            self.references.append((named.request_id, (*path, "id")))


_ITEMS: Final[Mapping[str, Callable[[_InputItems, Mapping[str, Any], WirePath], None]]] = MappingProxyType(
    {
        "message": _InputItems.add_message,
        "function_call": _InputItems.add_call,
        "function_call_output": _InputItems.add_output,
        "item_reference": _InputItems.add_reference,
    }
)


def _kind(item: Any) -> str:
    """Return the type of an item; a message may lack it."""
    kind = item.get("type") if isinstance(item, dict) else None
    return "message" if kind is None else str(kind)


def _is_answer(item: Any) -> bool:
    """Return True for an item that only an answer has."""
    kind = _kind(item)
    is_reply = kind == "message" and isinstance(item, dict) and item.get("role") == "assistant"
    return is_reply or kind == "function_call" or kind in _OUR_ITEMS


def _approval_answer(item: Mapping[str, Any], path: WirePath) -> tuple[NamedExecution, ApprovalAnswer]:
    named = named_execution(text_at(item, "approval_request_id", path), APPROVAL)
    if named is None or named.number is None:
        raise invalid((*path, "approval_request_id"), "must be the id of an mcp_approval_request")
    approves, reason = item.get("approve"), item.get("reason")
    if not isinstance(approves, bool):
        raise invalid((*path, "approve"), "must be true or false")
    text = None if reason is None else as_text(reason, (*path, "reason"))
    return named, ApprovalAnswer(named.number, approves, text, path)


def _content(found: object, path: WirePath) -> str | list[Mapping[str, Any]]:
    """Return a content as the contract has it: a text, or its parts."""
    if isinstance(found, str):
        return found
    return [_part(as_object(part, (*path, str(n))), (*path, str(n))) for n, part in enumerate(as_list(found, path))]


def _part(part: Mapping[str, Any], path: WirePath) -> Mapping[str, Any]:
    kind = part.get("type")
    field = _TEXTS.get(kind) if isinstance(kind, str) else None
    if field is not None:
        return text_part(as_text(part.get(field), (*path, field)))
    if kind == "input_image":
        return image_part(part.get("image_url"), (*path, "image_url"))
    if kind == "input_file" and part.get("file_url") is not None:
        return fetched_document(part.get("file_url"), part.get("filename"), (*path, "file_url"))
    if kind == "input_file" and part.get("file_data") is not None:
        return document_part(part.get("file_data"), part.get("filename"), (*path, "file_data"))
    if kind == "input_audio":
        return audio_part(part.get("input_audio"), (*path, "input_audio"))
    raise invalid((*path, "type"), _NOT_EMBEDDED)


class _Tools:
    """The tools of a body: functions of the client, and those of the service by the server label `portico`."""

    def __init__(self, fields: RequestFields, choice: object) -> None:
        self.asks_approval = False
        self._fields = fields
        self._allowed = _allowed_names(choice)
        self._client: list[Mapping[str, Any]] = []
        self._paths: list[WirePath] = []

    def put(self) -> None:
        """Set the tools. Raises: RequestFailure."""
        for index, found in enumerate(as_list(self._fields.take("tools") or [], ("tools",))):
            path = ("tools", str(index))
            tool = as_object(found, path)
            kind = text_at(tool, "type", path)
            if kind == "function":
                self._add_function(tool, path)
            elif kind == "mcp":
                self._add_server(tool, path)
            else:
                self._fields.ignore(f"tools.{kind}")
        self._fields.put_client_tools(self._client, self._paths)

    def _add_function(self, tool: Mapping[str, Any], path: WirePath) -> None:
        name = text_at(tool, "name", path)
        if self._allowed is not None and name not in self._allowed:
            return
        described = {key: tool[key] for key in ("description", "parameters") if tool.get(key) is not None}
        self._client.append({"name": name, **described})
        self._paths.append(path)

    def _add_server(self, tool: Mapping[str, Any], path: WirePath) -> None:
        """Offer tools of the service. Any other server is refused, since none is called from here."""
        if tool.get("server_label") != SERVER_LABEL:
            raise invalid(
                (*path, "server_label"), f"must be {SERVER_LABEL}; other servers are configured by the operator"
            )
        for name in ("server_url", "connector_id"):
            if tool.get(name) is not None:
                raise invalid((*path, name), f"is not supported; {_CONFIGURED}")
        allowed = tool.get("allowed_tools")
        if isinstance(allowed, dict):
            allowed = allowed.get("tool_names")
        if allowed is None:
            self._fields.put("tools", None, path)
        else:
            self._fields.put("tools", list(as_list(allowed, (*path, "allowed_tools"))), (*path, "allowed_tools"))
        self.asks_approval = tool.get("require_approval", "always") != "never"


def _allowed_names(choice: object) -> frozenset[str] | None:
    """Return the names of the only functions that are offered; None if all are."""
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return None
    path = ("tool_choice", "tools")
    named = [as_object(each, path) for each in as_list(choice.get("tools"), path)]
    return frozenset([as_text(each.get("name"), path) for each in named if each.get("type") == "function"])


def _put_choice(fields: RequestFields, choice: object) -> None:
    """Set the choice among tools. Raises: RequestFailure for a tool that is not offered."""
    path: WirePath = ("tool_choice",)
    if isinstance(choice, dict):
        match choice.get("type"):
            case "function" | "mcp" if choice.get("name") is not None:
                chosen: object = {"name": text_at(choice, "name", path)}
            case "mcp":
                chosen = "required"
            case "allowed_tools":
                chosen = as_choice(choice.get("mode") or "auto", (*path, "mode"), _CHOICES)
            case _:
                raise invalid((*path, "type"), "must be a type of tool that is supported")
    elif choice is not None:
        chosen = as_choice(choice, path, _CHOICES)
    else:
        chosen = None
    if chosen is not None:
        fields.put("hints.tool_choice", chosen, path)
    put_parallel_calls(fields)


def _put_sampling(fields: RequestFields) -> str | None:
    """Set the hints and options; return how reasoning is summed up, None if it is not shown."""
    fields.put_parameters(_PARAMETERS)
    fields.put_options(_OPTIONS)
    reasoning = as_object(fields.take("reasoning") or {}, ("reasoning",))
    put_effort(fields, reasoning.get("effort"), ("reasoning", "effort"))
    summary = reasoning.get("summary")
    return None if summary is None else as_choice(summary, ("reasoning", "summary"), _SUMMARIES)


def _put_format(fields: RequestFields) -> Mapping[str, Any] | None:
    """Set the required format; return what a JSON Schema is sent with, None for other formats."""
    text = as_object(fields.take("text") or {}, ("text",))
    path: WirePath = ("text", "format")
    form = as_object(text.get("format") or {"type": "text"}, path)
    kind = choice_at(form, "type", path, ("text", "json_object", "json_schema"))
    if kind != "text":
        schema = form.get("schema") if kind == "json_schema" else None
        fields.put("output.schema", dict(ANY_OBJECT) if schema is None else schema, (*path, "schema"))
    if kind != "json_schema":
        return None
    texts = {name: form.get(name) for name in ("name", "description")}
    named = {name: None if text is None else as_text(text, (*path, name)) for name, text in texts.items()}
    is_strict = form.get("strict") is None or as_flag(form["strict"], (*path, "strict"))
    return {**named, "name": named["name"] or _FORMAT_NAME, "strict": is_strict}
