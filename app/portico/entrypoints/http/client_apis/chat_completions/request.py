"""Requests of chat completions."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from portico.domain.value import value
from portico.entrypoints.http.client_apis.api import DecodedRequest, JsonObject, Shown
from portico.entrypoints.http.client_apis.conversation import ItemFields, WireConversation, WirePath, call_arguments
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
    choice_at,
    document_part,
    image_part,
    invalid,
    list_at,
    object_at,
    text_at,
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
ITEM_FIELDS: Final = ItemFields(call={"name": ("function", "name"), "arguments": ("function", "arguments")})


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
    conversation = WireConversation(ITEM_FIELDS)
    for index, each in enumerate(as_list(messages, ("messages",))):
        path = ("messages", str(index))
        message = as_object(each, path)
        role = choice_at(message, "role", path, _ROLES)
        content = message.get("content")
        if role == "tool":
            conversation.add_result(text_at(message, "tool_call_id", path), _content(content, path), path)
            continue
        text = "" if role == "assistant" and content is None else _content(content, path)
        decoded = {"role": "system" if role == "developer" else role, "content": text}
        if message.get("name") is not None:
            decoded["name"] = message["name"]
        conversation.add(decoded, path)
        if role != "assistant":
            continue
        for number, call in enumerate(list_at(message, "tool_calls", path)):
            call_path = (*path, "tool_calls", str(number))
            conversation.add_call(_call(as_object(call, call_path), call_path), call_path)
    return conversation


def _content(content: object, path: WirePath) -> Any:
    if isinstance(content, str):
        return content
    here = (*path, "content")
    if isinstance(content, list):
        return [_part(as_object(part, (*here, str(n))), (*here, str(n))) for n, part in enumerate(content)]
    return as_text(content, here)


def _part(part: Mapping[str, Any], path: WirePath) -> Mapping[str, Any]:
    match part.get("type"):
        case "text":
            return text_part(text_at(part, "text", path))
        case "refusal":
            return text_part(text_at(part, "refusal", path))
        case "image_url":
            image = object_at(part, "image_url", path)
            return image_part(image.get("url"), (*path, "image_url", "url"))
        case "file":
            file, here = object_at(part, "file", path), (*path, "file", "file_data")
            return document_part(file.get("file_data"), file.get("filename"), here)
        case "input_audio":
            return audio_part(part.get("input_audio"), (*path, "input_audio"))
        case _:
            raise invalid((*path, "type"), "must be text, image_url, file or input_audio")


def _call(call: Mapping[str, Any], path: WirePath) -> Mapping[str, Any]:
    as_choice(call.get("type", "function"), (*path, "type"), ("function",))
    function = object_at(call, "function", path)
    here = (*path, "function")
    arguments = call_arguments(text_at(function, "arguments", here))
    return {"id": text_at(call, "id", path), "name": text_at(function, "name", here), "arguments": arguments}


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
    tools = fields.take("tools")
    for index, each in enumerate(() if tools is None else as_list(tools, ("tools",))):
        path = ("tools", str(index))
        tool = as_object(each, path)
        kind = as_text(tool.get("type", "function"), (*path, "type"))
        if kind == "function":
            function = _function(object_at(tool, "function", path), (*path, "function"))
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
    text_at(function, "name", path)
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
            mode = choice_at(allowed, "mode", inner, ("auto", "required"))
            fields.put("hints.tool_choice", mode, (*inner, "mode"))
            tools = as_list(allowed.get("tools"), (*inner, "tools"))
            paths = [(*inner, "tools", str(number)) for number in range(len(tools))]
            return [_chosen_name(as_object(tool, at), at) for tool, at in zip(tools, paths, strict=True)]
        case _:
            raise invalid((*path, "type"), "must be function or allowed_tools")


def _chosen_name(chosen: Mapping[str, Any], path: WirePath) -> str:
    choice_at(chosen, "type", path, ("function",))
    function = object_at(chosen, "function", path)
    return text_at(function, "name", (*path, "function"))


def _put_format(fields: RequestFields) -> None:
    found, path = fields.take("response_format"), ("response_format",)
    if found is None:
        return
    wanted = as_object(found, path)
    match choice_at(wanted, "type", path, ("text", "json_object", "json_schema")):
        case "json_schema":
            inner = (*path, "json_schema")
            schema = as_object(wanted.get("json_schema"), inner).get("schema")
            fields.put("output.schema", ANY_OBJECT if schema is None else schema, (*inner, "schema"))
        case "json_object":
            fields.put("output.schema", ANY_OBJECT, path)
        case _:
            pass
