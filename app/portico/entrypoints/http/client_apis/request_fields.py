"""Fields of a `SystemRequest` under construction, each with the path in the body that it was made of.

What every client API decodes alike is here: the model and its target, the extension, what is ignored, left out and
refused, and the errors of the finished request under the paths of the body.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
_METADATA: Final = ("user", "safety_identifier", "prompt_cache_key")
"""Parameters that are kept as metadata."""
MAX_SHOWN_ERRORS: Final = 20
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
        refuse_unsupported(body)
        self.model = as_text(body.get("model"), ("model",))
        self.target: Target = names.resolve(self.model)
        self.has_extension = EXTENSION in body
        self.extension: Extension = read_extension(body[EXTENSION]) if self.has_extension else NO_EXTENSION
        self._body = body
        self._names = names
        self._taken = {"model", EXTENSION, *NEUTRAL_VALUES}
        self._fields: dict[str, Any] = {}
        self._paths: dict[tuple[str, ...], WirePath] = {}
        self._ignored: list[str] = []

    def take(self, name: str) -> Any:
        """Return the value of this parameter, None without one."""
        self._taken.add(name)
        return self._body.get(name)

    def put(self, name: str, value: object, path: WirePath) -> None:
        """Set the field of this dotted name, such as `hints.seed`. The `path` is where the value stands in the body."""
        *parents, last = name.split(".")
        fields = self._fields
        for parent in parents:
            fields = fields.setdefault(parent, {})
        fields[last] = value
        self._paths[tuple(name.split("."))] = path

    def put_parameter(self, name: str, parameter: str) -> None:
        """Set the field to the value of the parameter, if it has one."""
        value = self.take(parameter)
        if value is not None:
            self.put(name, value, (parameter,))

    def put_option(self, option: str, value: object, path: WirePath) -> None:
        """Set the engine's option, or ignore it if no engine of the model passes it on."""
        if value is None:
            return
        if self._names.passes_option(self.target, option):
            self.put(f"hints.options.{option}", value, path)
        else:
            self.ignore(".".join(path))

    def ignore(self, name: str) -> None:
        """Report a parameter, by its dotted name as it was sent, as one without effect."""
        self._ignored.append(name)

    def put_metadata(self) -> None:
        """Set the metadata: `metadata` itself, and the parameters that are kept under their names."""
        metadata = self.take("metadata")
        if metadata is not None:
            self.put("metadata", dict(as_object(metadata, ("metadata",))), ("metadata",))
        for name in _METADATA:
            value = self.take(name)
            if value is not None:
                self.put(f"metadata.{name}", value, (name,))

    def put_conversation(self, conversation: WireConversation, path: WirePath) -> None:
        """Set the messages, or the input of the flow that the model names. The `path` is that of the whole list."""
        messages, paths = conversation.messages()
        if self.target.kind is TargetKind.FLOW:
            self._put_flow(messages)
            return
        self.put("messages", messages, path)
        for index, (source, calls) in enumerate(paths):
            self._paths["messages", str(index)] = source
            for number, call in enumerate(calls):
                self._paths["messages", str(index), "tool_calls", str(number)] = call

    def put_client_tools(self, tools: Sequence[Mapping[str, Any]], paths: Sequence[WirePath]) -> None:
        """Offer these tools of the client. An execution ends with their calls. An empty schema stands for no input."""
        if not tools:
            return
        offered = [{name: each for name, each in tool.items() if (name, each) != ("parameters", {})} for tool in tools]
        self.put("client_tools", offered, ("tools",))
        for index, path in enumerate(paths):
            self._paths["client_tools", str(index)] = path
        self.put("on_client_call", "end", ("tools",))

    def finish(self) -> SystemRequest:
        """Return the request. Raises: RequestFailure naming fields as they were sent."""
        self._put_target()
        self._put_extension()
        self._put_mode()
        self._leave_out_person_tools()
        for name, value in self._body.items():
            if name not in self._taken and value is not None:
                self.ignore(name)
        return self._validated()

    @property
    def ignored(self) -> Sequence[str]:
        """The parameters without effect, once the request is finished."""
        return self._ignored

    def shown(self, shown: S, request: SystemRequest) -> S:
        """Return the facts that an answer shows, with those that every API has.

        Raises: RequestFailure if text cannot be shown when the client wants it.
        """
        mode, delivery = self._delivery(request)
        is_quote = self.extension.quote
        return replace(shown, mode=mode, delivery=delivery, has_extension=self.has_extension, is_quote=is_quote)

    def _delivery(self, request: SystemRequest) -> tuple[Mode, DisplayTime]:
        """Return the mode in force, and when text is shown."""
        agent = self._names.agent(self.target)
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
        if not self.has_extension:
            return
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
        agent = self._names.agent(self.target)
        is_open = "mode" not in self._fields and (agent is None or agent.mode is Mode.CHAT)
        if is_open and output is not None and "schema" in output:
            self.put("mode", Mode.STRUCTURED, self._paths.get(("output", "schema"), (EXTENSION, "output")))

    def _leave_out_person_tools(self) -> None:
        """Leave out the tools that wait for a person, except in the background, where the wait costs no connection."""
        if self._fields.get("background") or self._can_ask_person:
            return
        agent, named = self._names.agent(self.target), self._fields.get("tools")
        waiting = self._names.served.person_tools
        if named is None and agent is not None and waiting & agent.tools:
            self.put("tools", sorted(reference_of(tool) for tool in agent.tools - waiting), ("model",))
            self._ignored += [f"tools.{reference_of(tool)}" for tool in agent.tools & waiting]
        elif named:
            self.put("tools", [tool for tool in named if tool not in waiting], self._paths["tools",])
            self._ignored += [f"tools.{tool}" for tool in named if tool in waiting]

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
        for length in range(len(path), 0, -1):
            source = self._paths.get(tuple(path[:length]))
            if source is not None:
                return (*source, *path[length:])
        return tuple(path)


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


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raise RequestFailure (`unsupported_parameter`) for a parameter that the service does not have."""
    for name, neutral in NEUTRAL_VALUES.items():
        value = body.get(name)
        if value is None:
            continue
        if not any(type(value) is type(each) and value == each for each in neutral):
            raise unsupported(name, _REASONS.get(name, _NO_SUPPORT))
