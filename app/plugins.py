"""Stable interface for modules that extend the service; nothing else is promised to them.

Tools, rules, step types of plans, planners and flows are functions: `tool`, `rule`, `step`, `planner` and `flow`
declare them. No module of the service imports this one. `scripted_engine` plays the model in unit tests of flows.
"""

from collections.abc import Mapping
from typing import Any

from app.adapters.engines.scripted import CAPABILITIES, ScriptedEngine
from app.adapters.system import SystemClock
from app.capabilities.output.rules.rule_set import rule
from app.capabilities.tools.definition import tool
from app.capabilities.tools.planner_function import PlanningTask, planner
from app.capabilities.tools.step_function import step
from app.domain.contract.rules import AnswerContent
from app.domain.tools import Availability, SideEffects, ToolDefinition, ToolInfo
from app.orchestration.flow import (
    AgentConfig,
    Context,
    FlowError,
    FlowGraph,
    FlowRuntime,
    FlowSnapshot,
    FlowSuspension,
    RunOut,
    flow,
)
from app.ports.model import EngineProfile
from app.ports.tool import ToolContext, ToolError, ToolOutcomeUnknown

__all__ = [
    "AgentConfig",
    "AnswerContent",
    "Availability",
    "Context",
    "FlowError",
    "FlowGraph",
    "FlowRuntime",
    "FlowSnapshot",
    "FlowSuspension",
    "PlanningTask",
    "RunOut",
    "SideEffects",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolInfo",
    "ToolOutcomeUnknown",
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
    profile = EngineProfile(name, "script", "scripted", 128_000, 4_096, frozenset(), capabilities=CAPABILITIES)
    return ScriptedEngine(profile, replies, SystemClock())
