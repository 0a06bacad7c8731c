"""Requests of chat completions."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from portico.domain.value import value
from portico.entrypoints.http.client_apis.api import DecodedRequest, JsonObject, Shown
from portico.entrypoints.http.client_apis.conversation import WireConversation, WirePath, call_arguments
from portico.entrypoints.http.client_apis.models import ModelNames
from portico.entrypoints.http.client_apis.request_fields import (
    ANY_OBJECT,
    RequestFields,
    put_effort,
    put_parallel_calls,
)
from portico.entrypoints.http.client_apis.wire_values import (
    as_choice,
    as_flag,
    as_list,
    as_object,
    as_text,
    audio_part,
    document_part,
    image_part,
    invalid,
    text_part,
)

_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_PARAMETERS: Final = (
    ("hints.max_tokens", "max_tokens"),
    ("hints.max_tokens", "max_completion_tokens"),
    ("hints.temperature", "temperature"),
    ("hints.top_p", "top_p"),
    ("hints.seed", "seed"),
    ("store", "store"),
)
"""Fields with their parameters; of two parameters for one field the later has precedence."""
_OPTIONS: Final = ("top_k", "presence_penalty", "frequency_penalty")
_CHOICES: Final = ("auto", "none", "required")


@value
class ChatShown(Shown):
    """Facts of a request that a chat completion shows; `includes_usage` is for its stream."""

    includes_usage: bool = False


def decode(body: JsonObject, names: ModelNames) -> DecodedRequest[ChatShown]:
    """Return the request. Raises: RequestFailure naming the field as it was sent; AccessFailure."""
    fields = RequestFields(body, names)
    is_stream = as_flag(fields.take("stream"), ("stream",))
    includes_usage = _includes_usage(fields.take("stream_options"))
    fields.put_conversation(_conversation(fields.take("messages")), ("messages",))
    if fields.are_left:
        _put_hints(fields)
        _put_tools(fields)
        _put_format(fields)
        fields.put_metadata()
    request = fields.finish()
    shown = fields.shown(partial(ChatShown, includes_usage=includes_usage), request, is_stream=is_stream)
    return DecodedRequest(request, fields.ignored, shown, fields.path_of)


def _includes_usage(options: object) -> bool:
    path = ("stream_options",)
    return options is not None and as_flag(as_object(options, path).get("include_usage"), (*path, "include_usage"))


def _conversation(messages: object) -> WireConversation:
    conversation = WireConversation()
    for index, each in enumerate(as_list(messages, ("messages",))):
        path = ("messages", str(index))
        message = as_object(each, path)
        role = as_choice(message.get("role"), (*path, "role"), _ROLES)
        content = message.get("content")
        if role == "tool":
            call_id = as_text(message.get("tool_call_id"), (*path, "tool_call_id"))
            conversation.add_result(call_id, _content(content, path), path)
            continue
        is_optional = role == "assistant" and content is None
        decoded = {"role": "system" if role == "developer" else role, "content": ""}
        decoded["content"] = "" if is_optional else _content(content, path)
        if message.get("name") is not None:
            decoded["name"] = message["name"]
        conversation.add(decoded, path)
        if role != "assistant":
            continue
        for number, call in enumerate(as_list(_or_empty(message.get("tool_calls")), (*path, "tool_calls"))):
            call_path = (*path, "tool_calls", str(number))
            conversation.add_call(_call(as_object(call, call_path), call_path), call_path)
    return conversation


def _or_empty(found: object) -> object:
    return [] if found is None else found


def _content(content: object, path: WirePath) -> Any:
    here = (*path, "content")
    if isinstance(content, list):
        return [_part(as_object(part, (*here, str(n))), (*here, str(n))) for n, part in enumerate(content)]
    return as_text(content, here)


def _part(part: Mapping[str, Any], path: WirePath) -> Mapping[str, Any]:
    match part.get("type"):
        case "text":
            return text_part(as_text(part.get("text"), (*path, "text")))
        case "refusal":
            return text_part(as_text(part.get("refusal"), (*path, "refusal")))
        case "image_url":
            image = as_object(part.get("image_url"), (*path, "image_url"))
            return image_part(image.get("url"), (*path, "image_url", "url"))
        case "file":
            file, here = as_object(part.get("file"), (*path, "file")), (*path, "file", "file_data")
            return document_part(file.get("file_data"), file.get("filename"), here)
        case "input_audio":
            return audio_part(part.get("input_audio"), (*path, "input_audio"))
        case _:
            raise invalid((*path, "type"), "must be text, image_url, file or input_audio")


def _call(call: Mapping[str, Any], path: WirePath) -> Mapping[str, Any]:
    as_choice(call.get("type", "function"), (*path, "type"), ("function",))
    function = as_object(call.get("function"), (*path, "function"))
    arguments = as_text(function.get("arguments"), (*path, "function", "arguments"))
    return {
        "id": as_text(call.get("id"), (*path, "id")),
        "name": as_text(function.get("name"), (*path, "function", "name")),
        "arguments": call_arguments(arguments),
    }


def _put_hints(fields: RequestFields) -> None:
    fields.put_parameters(_PARAMETERS)
    fields.put_options(_OPTIONS)
    stop = fields.take("stop")
    if stop is not None and stop != []:
        fields.put("hints.stop", stop, ("stop",))
    put_effort(fields, fields.take("reasoning_effort"), ("reasoning_effort",))


def _put_tools(fields: RequestFields) -> None:
    """Offer the functions; a tool of another type is left out and reported, and so it cannot be chosen."""
    functions: dict[str, tuple[Mapping[str, Any], WirePath]] = {}
    for index, each in enumerate(as_list(_or_empty(fields.take("tools")), ("tools",))):
        path = ("tools", str(index))
        tool = as_object(each, path)
        kind = as_text(tool.get("type", "function"), (*path, "type"))
        if kind == "function":
            function = _function(as_object(tool.get("function"), (*path, "function")), (*path, "function"))
            if function["name"] in functions:
                raise invalid((*path, "function", "name"), "must be the name of one tool only")
            functions[function["name"]] = function, (*path, "function")
        else:
            fields.ignore(f"tools.{kind}")
    allowed = _put_choice(fields, fields.take("tool_choice"))
    offered = [each for name, each in functions.items() if allowed is None or name in allowed]
    fields.put_client_tools([function for function, _ in offered], [path for _, path in offered])
    put_parallel_calls(fields)


def _function(function: Mapping[str, Any], path: WirePath) -> Mapping[str, Any]:
    as_text(function.get("name"), (*path, "name"))
    return {name: function[name] for name in ("name", "description", "parameters") if function.get(name) is not None}


def _put_choice(fields: RequestFields, choice: object) -> Sequence[str] | None:
    """Set the choice of a tool, and return the names of those that may be offered; None for all."""
    path = ("tool_choice",)
    if choice is None:
        return None
    if isinstance(choice, str):
        fields.put("hints.tool_choice", as_choice(choice, path, _CHOICES), path)
        return None
    chosen = as_object(choice, path)
    match chosen.get("type"):
        case "function":
            fields.put("hints.tool_choice", {"name": _chosen_name(chosen, path)}, (*path, "function"))
            return None
        case "allowed_tools":
            inner = (*path, "allowed_tools")
            allowed = as_object(chosen.get("allowed_tools"), inner)
            mode = as_choice(allowed.get("mode"), (*inner, "mode"), ("auto", "required"))
            fields.put("hints.tool_choice", mode, (*inner, "mode"))
            tools = as_list(allowed.get("tools"), (*inner, "tools"))
            paths = [(*inner, "tools", str(number)) for number in range(len(tools))]
            return [_chosen_name(as_object(tool, at), at) for tool, at in zip(tools, paths, strict=True)]
        case _:
            raise invalid((*path, "type"), "must be function or allowed_tools")


def _chosen_name(chosen: Mapping[str, Any], path: WirePath) -> str:
    as_choice(chosen.get("type"), (*path, "type"), ("function",))
    function = as_object(chosen.get("function"), (*path, "function"))
    return as_text(function.get("name"), (*path, "function", "name"))


def _put_format(fields: RequestFields) -> None:
    found, path = fields.take("response_format"), ("response_format",)
    if found is None:
        return
    wanted = as_object(found, path)
    match as_choice(wanted.get("type"), (*path, "type"), ("text", "json_object", "json_schema")):
        case "json_schema":
            inner = (*path, "json_schema")
            schema = as_object(wanted.get("json_schema"), inner).get("schema")
            fields.put("output.schema", ANY_OBJECT if schema is None else schema, (*inner, "schema"))
        case "json_object":
            fields.put("output.schema", ANY_OBJECT, path)
        case _:
            pass
