"""Allocation of passes: how often a plan may run, from the profile of its task.

More depth, breadth, use of tools and wanted confidence give more passes, and so does missing information:
`1 + depth x (1.5 - sufficiency) x tools x breadth x confidence`, rounded down, within 1 and what the request asks for.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from portico.capabilities.prompting.prompts.task_profile import (
    ConfidenceRequirement,
    OutputBreadth,
    TaskProfileOutput,
    ToolUsage,
)

# fmt: off
TOOLS: Final[Mapping[ToolUsage, float]] = MappingProxyType({
    ToolUsage.NONE: 0.5, ToolUsage.MINIMAL: 0.75, ToolUsage.MODERATE: 1.0, ToolUsage.EXTENSIVE: 1.5})
BREADTH: Final[Mapping[OutputBreadth, float]] = MappingProxyType({
    OutputBreadth.NARROW: 0.75, OutputBreadth.MODERATE: 1.0, OutputBreadth.BROAD: 1.5})
CONFIDENCE: Final[Mapping[ConfidenceRequirement, float]] = MappingProxyType({
    ConfidenceRequirement.LOW: 0.75, ConfidenceRequirement.MEDIUM: 1.0, ConfidenceRequirement.HIGH: 1.5})
# fmt: on


def allocated_passes(profile: TaskProfileOutput, passes: int) -> int:
    """Return the number of passes that the plan may have, at most `passes`."""
    factors = (
        TOOLS[profile.expected_tool_usage]
        * BREADTH[profile.output_breadth]
        * CONFIDENCE[profile.confidence_requirement]
    )
    wanted = 1 + profile.reasoning_depth * (1.5 - profile.information_sufficiency) * factors
    return min(passes, max(1, int(wanted)))
