"""Registry of the tools of a deployment by name, with their current availability."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from app.capabilities.tools.definition import FunctionTool
from app.domain.contract.messages import TOOL_NAME_PATTERN
from app.domain.failures import Code, ConfigurationFailure
from app.domain.tools import Availability, OfferedTool, SideEffects, ToolDefinition, ToolInfo
from app.ports.tool import Tool


@dataclass(frozen=True, slots=True)
class ToolStatus:
    """One tool: its info, if it is available, and the reason if it is not."""

    info: ToolInfo
    available: bool
    reason: str


class ToolRegistry:
    """All registered tools; names are unique and compared bytewise. Lists are in order of names.

    Availability is asked anew each time. Names that are not registered are left out of lists.
    Raises: ConfigurationFailure (CONFIG_INVALID) for a name that is taken or not allowed.
    """

    def __init__(self, *tools: Tool) -> None:
        by_name: dict[str, Tool] = {}
        for tool in tools:
            name = _checked_name(tool)
            if name in by_name:
                raise ConfigurationFailure(Code.CONFIG_INVALID, f"two tools are named {name}")
            by_name[name] = tool
        self._tools = dict(sorted(by_name.items()))
        self._definitions = {name: tool.definition() for name, tool in self._tools.items()}
        self._offers = {name: _offered(tool.info()) for name, tool in self._tools.items()}
        self._always_available = frozenset(name for name, tool in self._tools.items() if isinstance(tool, FunctionTool))

    def names(self) -> list[str]:
        """Return the names of all tools."""
        return list(self._tools)

    def tools(self) -> list[Tool]:
        """Return all tools."""
        return list(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, available or not; None if there is none."""
        return self._tools.get(name)

    def definitions(self, names: Iterable[str]) -> list[ToolDefinition]:
        """Return the definitions of those tools that are available now."""
        return [self._definitions[name] for name in self._available(names)]

    def all_definitions(self) -> list[ToolDefinition]:
        """Return the definitions of all tools, available or not."""
        return list(self._definitions.values())

    def offer(self, names: Iterable[str]) -> tuple[tuple[OfferedTool, ...], list[ToolDefinition]]:
        """Return those tools that are available now, as an inference offers them and as a model sees them."""
        available = self._available(names)
        return tuple([self._offers[name] for name in available]), [self._definitions[name] for name in available]

    def offer_of(self, name: str) -> tuple[OfferedTool, ...]:
        """Return the tool of that name, available or not, as it is called without an inference that offered it."""
        offer = self._offers.get(name)
        return () if offer is None else (offer,)

    def check_availability(self) -> list[ToolStatus]:
        """Return the status of every tool."""
        return [_status(tool) for tool in self._tools.values()]

    def _available(self, names: Iterable[str]) -> list[str]:
        """Return the names of the tools that can run now; a Python function always can."""
        requested = frozenset(names)
        return [
            name
            for name, tool in self._tools.items()
            if name in requested and (name in self._always_available or tool_availability(tool).available)
        ]


def tool_availability(tool: Tool) -> Availability:
    """Return the availability of the tool; one whose check fails is not available."""
    try:
        return tool.available()
    except Exception as cause:  # noqa: BLE001 - other people's code: a broken check must not end the execution
        return Availability(available=False, reason=f"its availability check failed: {type(cause).__name__}")


def _offered(info: ToolInfo) -> OfferedTool:
    return OfferedTool(info.name, info.unsafe, info.idempotent, info.side_effects is SideEffects.EXTERNAL)


def _status(tool: Tool) -> ToolStatus:
    status = tool_availability(tool)
    return ToolStatus(tool.info(), status.available, status.reason)


def _checked_name(tool: Tool) -> str:
    name = tool.info().name
    if re.fullmatch(TOOL_NAME_PATTERN, name) is None:
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"{name!a:.80} cannot name a tool: use {TOOL_NAME_PATTERN}")
    if tool.definition().name != name:
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"the definition of {name} has another name")
    return name
