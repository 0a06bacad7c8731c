"""What request, principal and configuration alone decide, before there is an execution."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.capabilities.contracts import Contract
from app.capabilities.inference import Catalogue
from app.capabilities.tools.registry import ToolRegistry
from app.domain.boundary import NamedTool, OutputContract, RedundancyOptions, SystemRequest
from app.domain.effects import Bounds
from app.domain.failures import Code, ConfigurationFailure, RequestFailure, ToolFailure
from app.domain.lifecycle import Mode
from app.domain.pausing import Pausing

Fault: TypeAlias = tuple[str, str]
"""A field's path and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ConfiguredLimits:
    """The deployment's caps; a request may narrow them. `timeout` is in seconds."""

    messages: int
    tools: int
    tool_rounds: int
    calls_per_reply: int
    timeout: float
    max_retries: int
    attempts: int
    replicas: int


_MODES = frozenset({Mode.CHAT, Mode.STRUCTURED, Mode.REDUNDANT})
_NOT_YET = "is not in this version"
_LATER_FIELDS = frozenset(
    {
        "session_id",
        "agent",
        "context",
        "plan",
        "flow",
        "background",
        "if_session_busy",
        "on_limit",
    }
)
_LATER_LIMITS = frozenset({"tokens", "cost"})


class Admission:
    """Refuses what cannot run here, and says which field is why."""

    def __init__(self, limits: ConfiguredLimits, catalogue: Catalogue, registry: ToolRegistry) -> None:
        self._limits = limits
        self._catalogue = catalogue
        self._tools = frozenset(registry.names())

    def admit(self, request: SystemRequest) -> Bounds:
        """The limits that will be in force.

        Raises: RequestFailure (REQUEST_INVALID) naming every field at fault; ToolFailure (TOOL_NOT_FOUND).
        """
        faults = [*_of_later_versions(request), *self._above_caps(request), *self._redundancy(request)]
        faults += self._options(request)
        if faults:
            raise _invalid(faults)
        self._known_tools(request)
        hints, limits, caps = request.hints, request.limits, self._limits
        return Bounds(
            timeout=caps.timeout if hints.timeout is None else hints.timeout,
            tool_rounds=caps.tool_rounds if limits.tool_rounds is None else limits.tool_rounds,
            calls_per_reply=caps.calls_per_reply if limits.calls_per_reply is None else limits.calls_per_reply,
            max_retries=caps.max_retries,
            attempts=caps.attempts if limits.attempts is None else limits.attempts,
        )

    def _above_caps(self, request: SystemRequest) -> Iterator[Fault]:
        caps = self._limits
        asked = (
            ("messages", len(request.messages), caps.messages),
            ("tools", len(request.tools or ()), caps.tools),
            ("hints.timeout", request.hints.timeout, caps.timeout),
            ("limits.tool_rounds", request.limits.tool_rounds, caps.tool_rounds),
            ("limits.calls_per_reply", request.limits.calls_per_reply, caps.calls_per_reply),
            ("limits.attempts", request.limits.attempts, caps.attempts),
        )
        for field, value, cap in asked:
            if value is not None and value > cap:
                yield field, f"must be at most {cap:g}"

    def _redundancy(self, request: SystemRequest) -> Iterator[Fault]:
        if request.mode is not Mode.REDUNDANT:
            if request.redundancy is not None:
                yield "redundancy", f"is of no use in mode {request.mode}"
            return
        options = request.redundancy or RedundancyOptions()
        if options.n > self._limits.replicas:
            yield "redundancy.n", f"must be at most {self._limits.replicas}"
        if options.quorum is not None and options.quorum > options.n:
            yield "redundancy.quorum", f"must be at most the {options.n} replicas"
        if options.models is not None and len(options.models) != options.n:
            yield "redundancy.models", f"must name {options.n} models, one a replica"
        for index, model in enumerate(options.models or ()):
            if not self._catalogue.knows(model):
                yield f"redundancy.models.{index}", "must be a name from GET /v1/engines"

    def _options(self, request: SystemRequest) -> Iterator[Fault]:
        self._catalogue.resolve(request.model)
        if request.hints.options:
            replicas = request.redundancy.models if request.redundancy else None
            known = [model for model in replicas or () if self._catalogue.knows(model)]
            models: Sequence[str | None] = known or (request.model,)
            engines = [engine for model in models for engine in self._catalogue.resolve(model)]
            allowed = frozenset().union(*(engine.profile.options for engine in engines))
            for key in sorted(request.hints.options.keys() - allowed):
                yield "hints.options", f"{key[:64]!a} is not an option of this model's engines"

    def _known_tools(self, request: SystemRequest) -> None:
        named = list(request.tools or ())
        if isinstance(request.hints.tool_choice, NamedTool):
            named.append(request.hints.tool_choice.name)
        unknown = [name for name in named if name not in self._tools]
        if unknown:
            raise ToolFailure(
                Code.TOOL_NOT_FOUND, "the request names a tool that is not registered", {"tools": unknown}
            )
        choice = request.hints.tool_choice
        if isinstance(choice, NamedTool) and request.tools is not None and choice.name not in request.tools:
            raise _invalid([("hints.tool_choice", "must name one of the request's tools")])


def _of_later_versions(request: SystemRequest) -> Iterator[Fault]:
    if request.mode not in _MODES:
        yield "mode", f"{request.mode} {_NOT_YET}"
    asked = request.model_fields_set
    if request.mode is Mode.CHAT and "output" in asked and request.output != OutputContract():
        yield "output", f"in mode chat {_NOT_YET}"
    if request.output.semantic:
        yield "output.semantic", _NOT_YET
    if request.on_disconnect == "continue":
        yield "on_disconnect", f"continue {_NOT_YET}"
    for field in sorted(_LATER_FIELDS & asked):
        if getattr(request, field) != SystemRequest.model_fields[field].get_default(call_default_factory=True):
            yield field, _NOT_YET
    for field in sorted(_LATER_LIMITS & request.limits.model_fields_set):
        if getattr(request.limits, field) is not None:
            yield f"limits.{field}", _NOT_YET


def keepable(request: SystemRequest) -> Pausing[None]:
    """Makes the contract ready, which is remembered.

    Raises: ConfigurationFailure, RequestFailure, for a contract that no answer could be held to.
    """
    output = request.output
    if request.mode is Mode.REDUNDANT and output.schema_ is None:
        raise ConfigurationFailure(Code.CONFIG_SCHEMA_REQUIRED, "output.schema: redundant needs a schema")
    if output.schema_ is None and output.grammar is None:
        raise ConfigurationFailure(Code.CONFIG_SCHEMA_REQUIRED, "output: structured needs a schema or a grammar")
    yield from Contract.making(output)


def _invalid(faults: Sequence[Fault]) -> RequestFailure:
    summary = "; ".join(f"{field} {what}" for field, what in faults)
    details = {"errors": [{"field": field, "message": what} for field, what in faults]}
    return RequestFailure(Code.REQUEST_INVALID, summary, details)
