"""Patterns that the call of an agent may run. A planner stands above the patterns, so mode `plan` is not among them."""

from collections.abc import Mapping
from types import MappingProxyType

from portico.domain.lifecycle import Mode
from portico.orchestration.execution.branch_settings import AgentPattern
from portico.orchestration.patterns import agent_loop, redundant_loop, specialized_loop

AGENT_PATTERNS: Mapping[Mode, AgentPattern] = MappingProxyType(
    {
        Mode.CHAT: AgentPattern(agent_loop.agent_loop, agent_loop.VERSION),
        Mode.STRUCTURED: AgentPattern(specialized_loop.specialized_loop, specialized_loop.VERSION),
        Mode.REDUNDANT: AgentPattern(redundant_loop.redundant_loop, redundant_loop.VERSION),
    }
)
