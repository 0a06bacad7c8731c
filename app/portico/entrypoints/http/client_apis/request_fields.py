"""Fields of a `SystemRequest` under construction, each with the path in the body that it was made of.

What every client API decodes alike is here: the model and its target, the extension, what is ignored, left out and
refused, and the errors of the finished request under the paths of the body.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

import orjson
from pydantic import ValidationError

from portico.domain.contract.messages import last_question
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import invalid_request
from portico.domain.field_errors import invalid_fields, path_within
from portico.domain.lifecycle import Mode
from portico.domain.tools import reference_of
from portico.entrypoints.http.client_apis.api import Shown
from portico.entrypoints.http.client_apis.conversation import WireConversation, WirePath
from portico.entrypoints.http.client_apis.errors import unsupported
from portico.entrypoints.http.client_apis.extension import (
    EXTENSION,
    NO_EXTENSION,
    Extension,
    read_extension,
    requested_fields,
)
from portico.entrypoints.http.client_apis.models import ModelNames, Target, TargetKind
from portico.entrypoints.http.client_apis.turn import DisplayTime, delivery_of
from portico.entrypoints.http.client_apis.wire_values import as_choice, as_flag, as_object, as_text, invalid

S = TypeVar("S", bound=Shown)
NEUTRAL_VALUES: Final[Mapping[str, Sequence[Any]]] = MappingProxyType(
    {
        "n": (1,),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "logit_bias": ({},),
        "audio": ({},),
        "modalities": ([], ["text"]),
        "prediction": ({},),
        "functions": ([],),
        "function_call": ("",),
        "prompt": ("", {}),
        "max_tool_calls": (0,),
        "truncation": ("disabled", ""),
        "web_search_options": ({},),
    }
)
"""Parameters that are not supported, with the values that have no effect; null has none either."""
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {"n": "must be 1; for several answers and their vote, use portico.mode redundant"}
)
_SAID_TWICE: Final = "is said by the request itself, too"
_NO_SUPPORT: Final = "is not supported"
_METADATA: Final = tuple((f"metadata.{name}", name) for name in ("user", "safety_identifier", "prompt_cache_key"))
"""Parameters that are kept as metadata, behind the fields."""
MAX_SHOWN_ERRORS: Final = 20
_OWN_MEDIA_FIELDS: Final = frozenset({"data", "url", "media_type"})
_MEDIA_FIELDS: Final[Mapping[str, Sequence[WirePath]]] = MappingProxyType(
    {
        "image_url": (("image_url", "url"),),
        "file": (("file", "file_data"),),
        "input_audio": (("input_audio", "data"),),
        "input_image": (("image_url",),),
        "input_file": (("file_url",), ("file_data",)),
        "image": (("source", "data"), ("source", "url")),
        "document": (("source", "data"), ("source", "url")),
    }
)
"""Where the content of a part is, by its type in a body; of several the first that is given."""
_LEVELS_BY_EFFORT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "none": "none",
        "minimal": "low",
        "low": "low",
        "medium": "medium",
        "high": "high",
        "xhigh": "max",
        "max": "max",
    }
)
ANY_OBJECT: Final[Mapping[str, Any]] = MappingProxyType({"type": "object"})
"""The JSON Schema of a format that is any object."""


class RequestFields:
    """The request that a body becomes.

    A decoder reads each parameter that it knows with `take`; at the end, those that it did not read are ignored, and
    reported by name.
    """

    def __init__(self, body: Mapping[str, Any], names: ModelNames, *, can_ask_person: bool = False) -> None:
        """Read what all APIs have alike; `can_ask_person` tells that the API can show questions.

        Raises: RequestFailure; AccessFailure.
        """
        self._can_ask_person = can_ask_person
        self._body = body
        self._left = dict(body)
        for name in [name for name in body if name in NEUTRAL_VALUES]:
            _require_neutral(name, self._left.pop(name))
        self.model = as_text(self.take("model"), ("model",))
        self.target: Target = names.resolve(self.model)
        self.extension: Extension = read_extension(self.take(EXTENSION)) if EXTENSION in body else NO_EXTENSION
        self._names = names
        self._agent = names.agent(self.target)
        self._fields: dict[str, Any] = {}
        self._paths: dict[str, WirePath] = {}
        """The paths in the body, by the dotted names of fields; the conversation knows those of its messages."""
        self._conversation: WireConversation | None = None
        self.ignored: list[str] = []
        """The parameters without effect, by their dotted names as they were sent; all of them once it is finished."""

    @property
    def are_left(self) -> bool:
        """True if there are parameters that were not taken yet: a plain question has none behind its messages."""
        return bool(self._left)

    def take(self, name: str) -> Any:
        """Return the value of this parameter, None without one, and at the second time."""
        return self._left.pop(name, None)

    def put(self, name: str, value: object, path: WirePath) -> None:
        """Set the field of this dotted name, such as `hints.seed`. The `path` is where the value stands in the body."""
        parents, _, last = name.rpartition(".")
        fields = self._fields
        for parent in parents.split(".") if parents else ():
            fields = fields.setdefault(parent, {})
        fields[last] = value
        self._paths[name] = path

    def put_parameters(self, names: Sequence[tuple[str, str]]) -> None:
        """Set the field that each pair begins with to the value of the parameter behind it, if it has one."""
        for name, parameter in names:
            value = self._left.pop(parameter, None)
            if value is not None:
                self.put(name, value, (parameter,))

    def put_options(self, options: Sequence[str]) -> None:
        """Set the engine's options of these names, or ignore those that no engine of the model passes on.

        Of none of them zero has an effect.
        """
        for option in options:
            value = self._left.pop(option, None)
            if value is None or (isinstance(value, int | float) and value == 0):
                continue
            if self._names.passes_option(self.target, option):
                self.put(f"hints.options.{option}", value, (option,))
            else:
                self.ignore(option)

    def ignore(self, name: str) -> None:
        """Report a parameter, by its dotted name as it was sent, as one without effect."""
        self.ignored.append(name)

    def put_metadata(self) -> None:
        """Set the metadata: `metadata` itself, and the parameters that are kept under their names."""
        metadata = self.take("metadata")
        if metadata is not None:
            given = as_object(metadata, ("metadata",))
            self.put("metadata", {name: text for name, text in given.items() if text is not None}, ("metadata",))
        self.put_parameters(_METADATA)

    def put_conversation(self, conversation: WireConversation, path: WirePath) -> None:
        """Set the messages, or the input of the flow that the model names. The `path` is that of the whole list."""
        messages = conversation.messages()
        if self.target.kind is TargetKind.FLOW:
            self._put_flow(messages)
            return
        self.put("messages", messages, path)
        self._conversation = conversation

    def put_client_tools(self, tools: Sequence[Mapping[str, Any]], paths: Sequence[WirePath]) -> None:
        """Offer these tools of the client. An execution ends with their calls. An empty schema stands for no input."""
        if not tools:
            return
        offered = [{name: each for name, each in tool.items() if (name, each) != ("parameters", {})} for tool in tools]
        self.put("client_tools", offered, ("tools",))
        for index, path in enumerate(paths):
            self._paths[f"client_tools.{index}"] = path
        self.put("on_client_call", "end", ("tools",))

    def finish(self) -> SystemRequest:
        """Return the request. Raises: RequestFailure naming fields as they were sent."""
        self._put_target()
        if self.extension is not NO_EXTENSION:
            self._put_extension()
        self._put_mode()
        self._leave_out_person_tools()
        self.ignored += [name for name, value in self._left.items() if value is not None]
        return self._validated()

    def shown(self, make: Callable[..., S], request: SystemRequest, *, is_stream: bool) -> S:
        """Return the facts that an answer shows, which `make` makes of those that every API has.

        Raises: RequestFailure if text cannot be shown when the client wants it.
        """
        mode, delivery = self._delivery(request)
        if is_stream and self.extension.quote:
            raise invalid((EXTENSION, "quote"), "is not for a stream, which has no text to show")
        return make(
            model=self.model,
            mode=mode,
            is_stream=is_stream,
            delivery=delivery,
            has_extension=self.extension is not NO_EXTENSION,
            is_quote=self.extension.quote,
        )

    def _delivery(self, request: SystemRequest) -> tuple[Mode, DisplayTime]:
        """Return the mode in force, and when text is shown."""
        agent = self._agent
        mode = request.mode if agent is None or "mode" in request.model_fields_set else agent.mode
        output = request.output if agent is None or "output" in request.model_fields_set else agent.output
        delivery, wanted = delivery_of(mode, request, output), self.extension.deltas
        if wanted == "live" and mode not in {Mode.CHAT, Mode.STRUCTURED}:
            raise invalid((EXTENSION, "deltas"), "live is for the modes chat and structured")
        if wanted == "live":
            return mode, DisplayTime.LIVE
        return mode, DisplayTime.COMMITTED if wanted and delivery is DisplayTime.LIVE else delivery

    def _put_flow(self, messages: Sequence[Mapping[str, Any]]) -> None:
        question = last_question(SystemRequest.model_validate({"messages": messages}).messages)
        self.put("flow.name", self.target.name, ("model",))
        self.put("flow.input", question, ("messages",))

    def _put_target(self) -> None:
        match self.target.kind:
            case TargetKind.AGENT:
                self.put("agent", self.target.name, ("model",))
            case TargetKind.MODEL:
                self.put("model", self.target.name, ("model",))
                self._fields.setdefault("tools", [])
            case TargetKind.FLOW:
                self.put("mode", Mode.FLOW, ("model",))

    def _put_extension(self) -> None:
        for name, value in requested_fields(self._body[EXTENSION]).items():
            path, given = (EXTENSION, name), self._fields.get(name)
            if name == "limits" and isinstance(given, dict):
                for limit in sorted(value.keys() & given.keys()):
                    raise invalid((*path, limit), _SAID_TWICE)
                self.put(name, {**given, **value}, path)
            elif given in (None, []):
                self.put(name, value, path)
            else:
                raise invalid(path, _SAID_TWICE)

    def _put_mode(self) -> None:
        """Choose mode structured for a required format, unless the agent or the extension names another."""
        output = self._fields.get("output")
        agent = self._agent
        is_open = "mode" not in self._fields and (agent is None or agent.mode is Mode.CHAT)
        if is_open and output is not None and "schema" in output:
            self.put("mode", Mode.STRUCTURED, self._paths.get("output.schema", (EXTENSION, "output")))

    def _leave_out_person_tools(self) -> None:
        """Leave out the tools that wait for a person, except in the background, where the wait costs no connection."""
        if self._fields.get("background") or self._can_ask_person:
            return
        agent, named = self._agent, self._fields.get("tools")
        waiting = self._names.served.person_tools
        if named is None and agent is not None and waiting & agent.tools:
            self.put("tools", sorted(reference_of(tool) for tool in agent.tools - waiting), ("model",))
            self.ignored += [f"tools.{reference_of(tool)}" for tool in agent.tools & waiting]
        elif named:
            self.put("tools", [tool for tool in named if tool not in waiting], self._paths["tools"])
            self.ignored += [f"tools.{tool}" for tool in named if tool in waiting]

    def _validated(self) -> SystemRequest:
        try:
            return SystemRequest.model_validate_json(orjson.dumps(self._fields, default=dict), strict=True)
        except ValidationError as invalid:
            errors = invalid.errors(include_url=False, include_context=True, include_input=False)
        fields = invalid_fields(errors, path_of=path_within(self._fields))
        raise invalid_request(
            *((".".join(self.path_of(each.path)), each.message) for each in fields[:MAX_SHOWN_ERRORS])
        )

    def path_of(self, path: Sequence[str]) -> WirePath:
        """Return the path in the body of a field of the request: that of the nearest part that has one."""
        if self._conversation is not None and path[0] == "messages" and path[1:] and path[1].isdecimal():
            sent = self._conversation.path_of(int(path[1]), tuple(path[2:]))
            if sent is not None:
                return self._media_path(sent)
        for length in range(len(path), 0, -1):
            source = self._paths.get(".".join(path[:length]))
            if source is not None:
                return self._media_path((*source, *path[length:]))
        return tuple(path)

    def _media_path(self, path: WirePath) -> WirePath:
        """Return the path of a field of a part, which each API and type of a part has under another name."""
        part = _value_at(self._body, path[:-1]) if path[-1] in _OWN_MEDIA_FIELDS else None
        fields = _MEDIA_FIELDS.get(str(part.get("type")), ()) if isinstance(part, dict) else ()
        given = [each for each in fields if _value_at(part, each) is not None]
        return (*path[:-1], *given[0]) if given else path


def _value_at(found: Any, path: WirePath) -> Any:
    """Return the value at that path; None if there is none."""
    for name in path:
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict):
            found = found.get(name)
        else:
            return None
    return found


def put_effort(fields: RequestFields, value: object, path: WirePath) -> None:
    """Set the level of reasoning from an effort, unless it is null. Raises: RequestFailure for a word that is none."""
    if value is not None:
        effort = as_choice(value, path, tuple(_LEVELS_BY_EFFORT))
        fields.put("hints.reasoning", _LEVELS_BY_EFFORT[effort], path)


def put_parallel_calls(fields: RequestFields) -> None:
    """Set the limit of one call a reply for `parallel_tool_calls: false`. Raises: RequestFailure."""
    path: WirePath = ("parallel_tool_calls",)
    allowed = fields.take(path[0])
    if allowed is not None and not as_flag(allowed, path):
        fields.put("limits.calls_per_reply", 1, path)


def _require_neutral(name: str, value: object) -> None:
    """Raise RequestFailure (`unsupported_parameter`) for a value that would have an effect."""
    if value is not None and not any(type(value) is type(each) and value == each for each in NEUTRAL_VALUES[name]):
        raise unsupported(name, _REASONS.get(name, _NO_SUPPORT))
