"""Portico, the orchestration facade for LLM agents.

Modules that extend the service import from here: `from portico import tool`. The names are those of `portico.plugins`,
which is loaded when the first of them is used, so that a command which needs none starts at once. No module of the
service imports from here.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portico.plugins import (
        AgentConfig,
        AnswerContent,
        Availability,
        Caller,
        Context,
        Deserialize,
        FlowError,
        FlowGraph,
        FlowRuntime,
        FlowSnapshot,
        FlowSuspension,
        ForbiddenCommand,
        Http,
        Io,
        Missing,
        Other,
        PathEscape,
        PlanningTask,
        RunOut,
        Serialize,
        SideEffects,
        ToolContext,
        ToolDefinition,
        ToolError,
        ToolInfo,
        ToolOutcomeUnknown,
        UnknownTool,
        current_caller,
        flow,
        planner,
        rule,
        scripted_engine,
        step,
        tool,
    )

    __version__: str

__all__ = [
    "AgentConfig",
    "AnswerContent",
    "Availability",
    "Caller",
    "Context",
    "Deserialize",
    "FlowError",
    "FlowGraph",
    "FlowRuntime",
    "FlowSnapshot",
    "FlowSuspension",
    "ForbiddenCommand",
    "Http",
    "Io",
    "Missing",
    "Other",
    "PathEscape",
    "PlanningTask",
    "RunOut",
    "Serialize",
    "SideEffects",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolInfo",
    "ToolOutcomeUnknown",
    "UnknownTool",
    "__version__",
    "current_caller",
    "flow",
    "planner",
    "rule",
    "scripted_engine",
    "step",
    "tool",
]

if not TYPE_CHECKING:  # a type checker reads the imports above, and refuses every other name

    def __getattr__(name: str) -> object:
        """Return a name of `portico.plugins`, or the version. Raises: AttributeError for any other name."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            return import_module("importlib.metadata").version(__name__)
        return getattr(import_module(f"{__name__}.plugins"), name)
