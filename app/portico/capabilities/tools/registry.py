"""Registry of the tools of a deployment: live lists from their sources, with their current availability."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from portico.capabilities.tools.agents import AgentTool
from portico.capabilities.tools.arguments import ArgumentValidator
from portico.capabilities.tools.availability import AvailabilityProbes, tool_availability
from portico.capabilities.tools.code_tool import CodeTool, with_signatures
from portico.capabilities.tools.definition import FunctionTool
from portico.capabilities.tools.policy import NO_POLICY, ToolPolicy
from portico.capabilities.tools.step_function import StepFunction
from portico.domain.contract.messages import TOOL_NAME_PATTERN
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.fingerprints import digest
from portico.domain.tools import (
    AGENT_TOOL_PREFIX,
    PERSON,
    ArgumentViolation,
    Availability,
    OfferedTool,
    SideEffects,
    ToolDefinition,
    ToolInfo,
    ToolServerStatus,
)
from portico.domain.value import value
from portico.ports.tool import Tool, ToolSource, ToolThreads

BUILT_IN: Final = "built-in"
"""Name of the source of the tools that the service brings along, which read nothing from outside."""
MODULES: Final = "modules"
"""Name of the source of what the Python modules of the configuration define."""
_OWN_CODE: Final = frozenset({MODULES, "flows"})
_NO_THREADS = Availability(False, "calls that never returned hold all threads of tools")
_AVAILABLE = Availability(available=True)
_NOT_INSTALLED = Availability(False, "it is not installed here")


@value
class ToolList:
    """A source whose tools never change."""

    name: str
    tools: Sequence[Tool]

    @property
    def servers(self) -> Sequence[ToolServerStatus]:
        return ()


@value
class ToolStatus:
    """One tool: its info, its definition, its source, if it is available, and the reason if it is not."""

    info: ToolInfo
    definition: ToolDefinition
    source: str
    available: bool
    reason: str


@value
class RegisteredTool:
    """A tool with everything that is derived from it once; `rank` is its place in the order of all tools."""

    tool: Tool
    source: str
    definition: ToolDefinition
    offer: OfferedTool
    validator: ArgumentValidator
    rank: int = 0


@value
class NamesByKind:
    """Names of tools: all but the agents, those that are always available, and those whose calls wait for nothing."""

    without_agents: Sequence[str] = ()
    always_available: frozenset[str] = frozenset()
    instant: frozenset[str] = frozenset()


class ToolRegistry:
    """All registered tools; names are unique and compared bytewise. Lists are in order of sources, then of names.

    The sources are looked at before every answer, so a tool that comes or goes is seen at once. Names that are not
    registered are left out of lists. Without `probes` availability is asked in place, each time. A tool that comes late
    and cannot be registered, or whose name is taken, is left out with a reason.

    The functions of step types run as tools do, each under its name `step:NAME`. They are in no list and no offer.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a name that is taken or not allowed, and for parameters that are
    no self-contained JSON Schema.
    """

    def __init__(
        self,
        *tools: Tool,
        sources: Sequence[ToolSource] = (),
        probes: AvailabilityProbes | None = None,
        threads: ToolThreads | None = None,
        policy: ToolPolicy = NO_POLICY,
        step_functions: Sequence[StepFunction] = (),
    ) -> None:
        self.policy = policy
        """The policy of calls."""
        self.threads = threads
        """Threads for the blocking functions of tools; None outside of the service."""
        self.sources: Sequence[ToolSource] = (ToolList(BUILT_IN, tools), *sources)
        """Where the tools come from, in the order in which they are offered."""
        self._live: Sequence[tuple[ToolSource, Sequence[Tool]]] = ()
        self._probes = probes
        self._entries: dict[str, RegisteredTool] = {}
        self._left_out: Sequence[ToolStatus] = ()
        self.by_kind = NamesByKind()
        """The names of the tools that are registered now, by kind."""
        self.code: CodeTool | None = None
        """The tool that runs code which calls tools; None without it."""
        self.step_functions: Mapping[str, StepFunction] = {each.step_type: each for each in step_functions}
        """The functions of the step types of modules, by type."""
        self._steps = {each.info().name: _entry(each, MODULES, policy) for each in step_functions}
        self._load(is_start=True)

    def __contains__(self, name: object) -> bool:
        return name in self._current() or name in self._steps

    def __iter__(self) -> Iterator[str]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())

    def names(self, requested: Iterable[str] | None = None) -> list[str]:
        """Return the names of all tools, or those of the `requested` that are registered."""
        entries = self._current()
        if requested is None:
            return list(entries)
        found = {name: entries[name].rank for name in requested if name in entries}
        return sorted(found, key=found.__getitem__)

    @property
    def names_without_agents(self) -> Sequence[str]:
        """The names of all tools but the agents."""
        self._current()
        return self.by_kind.without_agents

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, available or not; None if there is none."""
        entry = self._find(name)
        return None if entry is None else entry.tool

    def definitions(self, names: Iterable[str]) -> list[ToolDefinition]:
        """Return the definitions of those tools that are available now."""
        return [entry.definition for entry in self._available(names)]

    def offer(
        self, names: Iterable[str], *, to_code: bool = False
    ) -> tuple[tuple[OfferedTool, ...], list[ToolDefinition]]:
        """Return those tools that are available now, as an inference offers them and as a model sees them.

        What is offered `to_code` are those that code may call, also where it replaces them for a model.
        """
        available = self._available(names)
        if to_code:
            available = [entry for entry in available if _is_callable(entry.offer)]
        offers, definitions = tuple([entry.offer for entry in available]), [entry.definition for entry in available]
        if self.code is not None and self.code.replaces_tools and not to_code:
            return _replaced(offers, definitions)
        return offers, definitions

    def offer_of(self, name: str) -> tuple[OfferedTool, ...]:
        """Return the tool of that name, available or not, as it is called without an inference that offered it."""
        entry = self._find(name)
        return () if entry is None else (entry.offer,)

    def may_replicate(self, name: str) -> bool:
        """Return False for a tool that several replicas must not call: one that acts, or that waits for a person."""
        entry = self._current().get(name)
        if entry is None:
            return True
        offer = entry.offer
        return not (offer.unsafe or offer.approval or PERSON in entry.tool.info().requires or self.policy.may_ask(name))

    def violations(self, name: str, arguments: Mapping[str, Any]) -> tuple[ArgumentViolation, ...]:
        """Return the first reasons why the arguments do not fit the tool; none for a tool that is not registered."""
        entry = self._find(name)
        return () if entry is None else entry.validator.violations(arguments)

    def is_current(self, names: Collection[str]) -> bool:
        """Return True if the availability of all these tools is known, so that `refresh` would not wait."""
        self._current()
        if self._probes is None or self.by_kind.always_available.issuperset(names):
            return True
        return all(map(self._probes.is_current, self._probed(names)))

    async def refresh(self, names: Collection[str]) -> None:
        """Find out which of these tools are available now, as far as that is not known."""
        if self._probes is not None:
            await self._probes.refresh(self._probed(names))

    async def look_up(self, name: str) -> tuple[RegisteredTool | None, Availability]:
        """Return the tool of that name and its current availability; None if there is none."""
        entry = self._current().get(name) or self._steps.get(name)
        if entry is not None and name in self.by_kind.always_available:
            return entry, _AVAILABLE
        if entry is not None:
            await self.refresh((name,))
            entry = self._find(name)
        return entry, _NOT_INSTALLED if entry is None else self._status(entry)

    async def check_availability(self) -> list[ToolStatus]:
        """Return the status of every tool, at the end of those that came late and were left out."""
        entries = self._current()
        await self.refresh(entries)
        found = []
        for entry in entries.values():
            status = self._status(entry)
            info = entry.tool.info()
            found.append(ToolStatus(info, entry.definition, entry.source, status.available, status.reason))
        return [*found, *self._left_out]

    def _find(self, name: str) -> RegisteredTool | None:
        return self._current().get(name) or self._steps.get(name)

    def _current(self) -> dict[str, RegisteredTool]:
        for source, seen in self._live:
            if source.tools is not seen:
                self._load()
                break
        return self._entries

    def _load(self, *, is_start: bool = False) -> None:
        """Read all sources. Only at the start a tool that cannot be registered is refused."""
        earlier = {id(entry.tool): entry for entry in self._entries.values()}
        entries: dict[str, RegisteredTool] = {}
        left_out: list[ToolStatus] = []
        self._live = [(source, source.tools) for source in self.sources if not isinstance(source, ToolList)]
        for source in self.sources:
            for tool in sorted(source.tools, key=lambda each: each.info().name):
                try:
                    entry = earlier.get(id(tool)) or _entry(tool, source.name, self.policy)
                    _require_free(entry, entries)
                except ConfigurationFailure as refusal:
                    if is_start:
                        raise
                    left_out.append(ToolStatus(tool.info(), tool.definition(), source.name, False, refusal.message))
                else:
                    entries[entry.offer.name] = _ranked(entry, len(entries))
        if self._probes is not None:
            current = {id(entry.tool) for entry in entries.values()}
            self._probes.forget(entry.tool for entry in earlier.values() if id(entry.tool) not in current)
        self.by_kind = NamesByKind(
            [name for name, entry in entries.items() if not entry.offer.agent],
            frozenset(name for name, entry in entries.items() if _never_waits(entry.tool)),
            frozenset(name for name, entry in entries.items() if entry.tool.info().instant),
        )
        code = (entry.tool for entry in entries.values() if isinstance(entry.tool, CodeTool))
        self.code = next(code, None)
        self._entries, self._left_out = entries, left_out

    def _available(self, names: Iterable[str]) -> list[RegisteredTool]:
        """Return the tools that can run now; an `async def` function always can."""
        entries = self._current()
        requested = [entries[name] for name in frozenset(names) if name in entries]
        requested.sort(key=attrgetter("rank"))
        always = self.by_kind.always_available
        return [entry for entry in requested if entry.offer.name in always or self._status(entry).available]

    def _probed(self, names: Collection[str]) -> list[Tool]:
        entries, always = self._current(), self.by_kind.always_available
        if always.issuperset(names):
            return []
        tools = (entries[name].tool for name in names if name not in always and name in entries)
        return [tool for tool in tools if not isinstance(tool, FunctionTool)]

    def _status(self, entry: RegisteredTool) -> Availability:
        if isinstance(entry.tool, AgentTool):
            return _AVAILABLE
        if isinstance(entry.tool, FunctionTool):
            exhausted = entry.tool.is_blocking and self.threads is not None and self.threads.is_exhausted
            return _NO_THREADS if exhausted else _AVAILABLE
        return tool_availability(entry.tool) if self._probes is None else self._probes.latest(entry.tool)


def _entry(tool: Tool, source: str, policy: ToolPolicy) -> RegisteredTool:
    """Return a tool with everything that is derived from it once. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    info, definition = tool.info(), tool.definition()
    if re.fullmatch(TOOL_NAME_PATTERN, info.name) is None and not isinstance(tool, StepFunction):
        message = f"{info.name!a:.80} cannot name a tool: use {TOOL_NAME_PATTERN}"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message)
    if definition.name != info.name:
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"the definition of {info.name} has another name")
    is_agent = isinstance(tool, AgentTool)
    if info.name.startswith(AGENT_TOOL_PREFIX) and not is_agent:
        message = f"{info.name} cannot name a tool: {AGENT_TOOL_PREFIX}NAME is the name of an agent"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message)
    offer = _offer(info, definition, source, policy, is_agent=is_agent, is_code=isinstance(tool, CodeTool))
    validator = ArgumentValidator(definition)
    if source != BUILT_IN:
        validator.compile()
    return RegisteredTool(tool, source, definition, offer, validator)


def _require_free(entry: RegisteredTool, entries: Mapping[str, RegisteredTool]) -> None:
    name = entry.offer.name
    if name in entries:
        sources = " and ".join(dict.fromkeys((entries[name].source, entry.source)))
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"two tools are named {name}: of {sources}")


def _ranked(entry: RegisteredTool, rank: int) -> RegisteredTool:
    return RegisteredTool(entry.tool, entry.source, entry.definition, entry.offer, entry.validator, rank)


def _offer(
    info: ToolInfo,
    definition: ToolDefinition,
    source: str,
    policy: ToolPolicy,
    *,
    is_agent: bool,
    is_code: bool,
) -> OfferedTool:
    is_external = info.side_effects is SideEffects.EXTERNAL and not is_agent
    is_own_code = source in _OWN_CODE and info.side_effects is SideEffects.NONE
    effects = (info.side_effects, info.idempotent, info.identity)
    return OfferedTool(
        info.name,
        info.unsafe,
        info.idempotent,
        approval=is_external,
        agent=is_agent,
        code=is_code,
        digest=digest(source, info.name, definition.description, definition.parameters, *effects),
        decided=policy.decides_calls(info.name) or is_external or (info.unsafe and not is_agent),
        trusted=source == BUILT_IN or is_own_code or policy.trusts_output(info.name),
    )


def _is_callable(offer: OfferedTool) -> bool:
    """Return True for a tool that code may call: neither an agent nor its own."""
    return not (offer.agent or offer.code)


def _replaced(
    offers: tuple[OfferedTool, ...], definitions: list[ToolDefinition]
) -> tuple[tuple[OfferedTool, ...], list[ToolDefinition]]:
    """Return what is offered where code replaces the tools that it may call; without the tool that runs it, all."""
    if not any(offer.code for offer in offers):
        return offers, definitions
    pairs = list(zip(offers, definitions, strict=True))
    tools = tuple([definition for offer, definition in pairs if _is_callable(offer)])
    shown = [with_signatures(each, tools) if offer.code else each for offer, each in pairs if not _is_callable(offer)]
    return tuple([offer for offer in offers if not _is_callable(offer)]), shown


def _never_waits(tool: Tool) -> bool:
    return isinstance(tool, AgentTool) or (isinstance(tool, FunctionTool) and not tool.is_blocking)
