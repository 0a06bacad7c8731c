"""Tools of the configuration: their sources in the order in which they are offered."""

from collections.abc import Collection, Sequence

from app.adapters.tools.builtin import BUILTIN_TOOLS
from app.adapters.tools.threads import DaemonThreads
from app.bootstrap.modules import load_tools
from app.capabilities.tools.availability import AvailabilityProbes
from app.capabilities.tools.registry import ToolList, ToolRegistry
from app.ports.runtime import Clock
from app.ports.tool import Tool, ToolSource
from app.settings import Settings

_PROBES_AT_ONCE = 32


def open_registry(sources: Sequence[ToolSource], clock: Clock, threads: DaemonThreads) -> ToolRegistry:
    """Return the registry of the built-in tools and of these sources.

    Raises: ConfigurationFailure (CONFIG_INVALID) for two tools of one name, and for a tool that cannot be used.
    """
    probes = AvailabilityProbes(clock, DaemonThreads(_PROBES_AT_ONCE))
    return ToolRegistry(*BUILTIN_TOOLS, sources=sources, probes=probes, threads=threads)


def tool_sources(settings: Settings, flow_tools: Collection[Tool]) -> list[ToolSource]:
    """Return the sources after the built-in tools, in the order in which they are offered: a line for each.

    `flow_tools` are those that agents of flows hold. Raises: ConfigurationFailure (CONFIG_INVALID) for a source that
    cannot be used.
    """
    modules = load_tools(settings.tools.modules, settings.directory)
    known = {id(tool) for tool in (*BUILTIN_TOOLS, *modules)}
    return [
        ToolList("modules", modules),
        ToolList("flows", [tool for tool in flow_tools if id(tool) not in known]),
    ]
