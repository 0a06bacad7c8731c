"""Stable interface for modules that extend the service; nothing else is promised to them.

Tools, rules, step types of plans, planners and flows are functions: `tool`, `rule`, `step`, `planner` and `flow`
declare them. No module of the service imports this one. `scripted_engine` plays the model in unit tests of flows.
"""

from collections.abc import Mapping
from typing import Any

from portico.adapters.engines.scripted import ScriptedEngine
from portico.adapters.system import SystemClock
from portico.capabilities.output.rules.rule_set import rule
from portico.capabilities.tools.definition import tool
from portico.capabilities.tools.planner_function import PlanningTask, planner
from portico.capabilities.tools.step_function import step
from portico.domain.contract.rules import AnswerContent
from portico.domain.tools import Availability, Caller, SideEffects, ToolDefinition, ToolInfo
from portico.orchestration.flow import (
    AgentConfig,
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
    RunOut,
    Serialize,
    UnknownTool,
    flow,
)
from portico.ports.current_caller import current_caller
from portico.ports.engine_schemes import SCHEMES
from portico.ports.model import EngineProfile
from portico.ports.tool import ToolContext, ToolError, ToolOutcomeUnknown

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
    "current_caller",
    "flow",
    "planner",
    "rule",
    "scripted_engine",
    "step",
    "tool",
]


def scripted_engine(name: str, *replies: Mapping[str, Any]) -> ScriptedEngine:
    """Return an engine of that name that gives these replies in order, such as `{"text": "Hello"}`.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a reply of unknown form.
    """
    capabilities = SCHEMES["scripted"].capabilities
    profile = EngineProfile(name, "script", "scripted", 128_000, 4_096, frozenset(), capabilities=capabilities)
    return ScriptedEngine(profile, replies, SystemClock())
