"""Availability of tools: probes on threads, remembered for a second."""

from collections.abc import Iterable
from typing import Final

import anyio

from portico.domain.tools import Availability
from portico.domain.value import value
from portico.ports.runtime import Clock
from portico.ports.tool import Tool, ToolThreads

MAX_AGE_S: Final = 1.0
"""Greatest age of a probe that is relied on, in seconds."""
PROBE_SECONDS: Final = 1.0
"""Time that a probe has to return, in seconds."""
_AVAILABLE: Final = Availability(available=True)
_LATE: Final = Availability(False, f"its availability check did not return within {PROBE_SECONDS:g} s")


@value
class _Probe:
    at: float
    result: Availability


class AvailabilityProbes:
    """The latest probe of every tool. A tool whose probe has not returned is not probed again meanwhile."""

    def __init__(self, clock: Clock, threads: ToolThreads) -> None:
        self._clock = clock
        self._threads = threads
        self._probes: dict[int, _Probe] = {}
        self._running: set[int] = set()

    def is_current(self, tool: Tool) -> bool:
        """Return True if the tool was probed a short time ago."""
        probe = self._probes.get(id(tool))
        return probe is not None and self._clock.monotonic() - probe.at < MAX_AGE_S

    def latest(self, tool: Tool) -> Availability:
        """Return the result of the latest probe; a tool that was never probed counts as available."""
        probe = self._probes.get(id(tool))
        return _AVAILABLE if probe is None else probe.result

    async def refresh(self, tools: Iterable[Tool]) -> None:
        """Probe those of the tools that were not probed a short time ago, all at the same time."""
        outdated = [tool for tool in tools if not self.is_current(tool) and id(tool) not in self._running]
        if not outdated:
            return
        async with anyio.create_task_group() as group:
            for tool in outdated:
                group.start_soon(self._probe, tool)

    def forget(self, tools: Iterable[Tool]) -> None:
        """Drop the probes of tools that went away."""
        for tool in tools:
            self._probes.pop(id(tool), None)

    async def _probe(self, tool: Tool) -> None:
        has_begun = False

        def check() -> Availability:
            nonlocal has_begun
            has_begun = True
            try:
                return tool_availability(tool)
            finally:
                self._running.discard(id(tool))

        self._running.add(id(tool))
        result = _LATE
        with anyio.move_on_after(PROBE_SECONDS):
            result = await self._threads.run(check)
        if not has_begun:
            self._running.discard(id(tool))
        self._probes[id(tool)] = _Probe(self._clock.monotonic(), result)


def tool_availability(tool: Tool) -> Availability:
    """Return the availability of the tool; one whose check fails is not available."""
    try:
        return tool.available()
    except (Exception, SystemExit) as cause:  # noqa: BLE001 - other people's code: a broken check ends no execution
        return Availability(available=False, reason=f"its availability check failed: {type(cause).__name__}")
