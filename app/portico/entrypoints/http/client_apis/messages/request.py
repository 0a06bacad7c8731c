"""Requests of the Messages API."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from portico.entrypoints.http.client_apis.api import DecodedRequest, JsonObject, Shown
from portico.entrypoints.http.client_apis.conversation import WireConversation, WirePath
from portico.entrypoints.http.client_apis.messages.transcript import ITEM_FIELDS, add_system, add_turns
from portico.entrypoints.http.client_apis.models import ModelNames
from portico.entrypoints.http.client_apis.request_fields import RequestFields, put_effort
from portico.entrypoints.http.client_apis.wire_values import (
    as_flag,
    as_list,
    as_object,
    as_text,
    choice_at,
    flag_at,
    invalid,
    object_at,
    text_at,
)

_HINTS: Final = (
    ("hints.max_tokens", "max_tokens"),
    ("hints.temperature", "temperature"),
    ("hints.top_p", "top_p"),
)
_OPTIONS: Final = ("top_k",)
CHOICES: Final[Mapping[str, str]] = MappingProxyType({"auto": "auto", "any": "required", "none": "none"})


def decode(body: JsonObject, names: ModelNames) -> DecodedRequest[Shown]:
    """Return the request. Raises: RequestFailure naming the field as it was sent; AccessFailure."""
    fields = RequestFields(body, names)
    conversation = WireConversation(ITEM_FIELDS)
    add_system(conversation, fields.take("system"))
    add_turns(conversation, fields.take("messages"))
    fields.put_conversation(conversation, ("messages",))
    is_stream = as_flag(fields.take("stream"), ("stream",))
    if fields.are_left:
        _put_hints(fields)
        left_out = _put_tools(fields, fields.take("tools"))
        _put_choice(fields, fields.take("tool_choice"), left_out)
        _put_output(fields, fields.take("output_config"))
        fields.put_metadata()
    request = fields.finish()
    shown = fields.shown(Shown, request, is_stream=is_stream)
    return DecodedRequest(request, fields.ignored, shown, fields.path_of)


def _put_hints(fields: RequestFields) -> None:
    fields.put_parameters(_HINTS)
    fields.put_options(_OPTIONS)
    stop = fields.take("stop_sequences")
    if stop is not None and stop != []:
        fields.put("hints.stop", stop, ("stop_sequences",))


def _put_tools(fields: RequestFields, tools: object) -> Sequence[str]:
    """Offer the tools that describe their input, and report all others; return the names of those."""
    offered: list[Mapping[str, Any]] = []
    paths: list[WirePath] = []
    left_out: list[str] = []
    for index, found in enumerate(() if tools is None else as_list(tools, ("tools",))):
        path = ("tools", str(index))
        tool = as_object(found, path)
        if tool.get("type") in {None, "custom"}:
            offered.append(_tool(tool, path))
            paths.append(path)
        else:
            kind = text_at(tool, "type", path)
            fields.ignore(f"tools.{kind}")
            left_out.append(str(tool.get("name")))
    fields.put_client_tools(offered, paths)
    return left_out


def _tool(tool: Mapping[str, Any], path: WirePath) -> Mapping[str, Any]:
    named = {"name": text_at(tool, "name", path)}
    if tool.get("description") is not None:
        named["description"] = as_text(tool["description"], (*path, "description"))
    schema = tool.get("input_schema")
    return named if schema is None else {**named, "parameters": as_object(schema, (*path, "input_schema"))}


def _put_choice(fields: RequestFields, choice: object, left_out: Sequence[str]) -> None:
    if choice is None:
        return
    path: WirePath = ("tool_choice",)
    chosen = as_object(choice, path)
    if flag_at(chosen, "disable_parallel_tool_use", path):
        fields.put("limits.calls_per_reply", 1, (*path, "disable_parallel_tool_use"))
    kind = choice_at(chosen, "type", path, (*CHOICES, "tool"))
    if kind != "tool":
        fields.put("hints.tool_choice", CHOICES[kind], path)
        return
    name = text_at(chosen, "name", path)
    if name in left_out:
        raise invalid((*path, "name"), "names a tool whose type is not supported")
    fields.put("hints.tool_choice", {"name": name}, path)


def _put_output(fields: RequestFields, config: object) -> None:
    if config is None:
        return
    path: WirePath = ("output_config",)
    given = as_object(config, path)
    put_effort(fields, given.get("effort"), (*path, "effort"))
    if given.get("format") is None:
        return
    here = (*path, "format")
    wanted = as_object(given["format"], here)
    choice_at(wanted, "type", here, ("json_schema",))
    fields.put("output.schema", object_at(wanted, "schema", here), (*here, "schema"))
