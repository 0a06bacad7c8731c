"""Stable interface for modules that extend the service; nothing else is promised to them.

Tools, rules, plan steps and flows are functions: `tool`, `rule`, `step` and `flow` declare them. No module of the
service imports this one.
"""

from app.capabilities.output.rules.rule_set import rule
from app.capabilities.tools.definition import tool
from app.domain.contract.rules import AnswerContent
from app.domain.tools import SideEffects
from app.orchestration.flow import (
    AgentConfig,
    Context,
    FlowError,
    FlowGraph,
    FlowRuntime,
    FlowSnapshot,
    RunOut,
    flow,
)
from app.orchestration.patterns.steps import step
from app.ports.tool import ToolContext, ToolError

__all__ = [
    "AgentConfig",
    "AnswerContent",
    "Context",
    "FlowError",
    "FlowGraph",
    "FlowRuntime",
    "FlowSnapshot",
    "RunOut",
    "SideEffects",
    "ToolContext",
    "ToolError",
    "flow",
    "rule",
    "step",
    "tool",
]
