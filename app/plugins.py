"""Stable interface for modules that extend the service; nothing else is promised to them.

Tools, rules and plan steps are functions: `tool`, `rule` and `step` declare them. No module of the service imports this
one.
"""

from app.capabilities.output.rules.rule_set import rule
from app.capabilities.tools.definition import tool
from app.domain.contract.rules import AnswerContent
from app.domain.tools import SideEffects
from app.orchestration.patterns.steps import step
from app.ports.tool import ToolContext, ToolError

__all__ = ["AnswerContent", "SideEffects", "ToolContext", "ToolError", "rule", "step", "tool"]
