"""Flows: typed graphs that run step by step, stop for answers, and go on from snapshots."""

from portico.orchestration.flow.agent_config import AgentConfig
from portico.orchestration.flow.context import Context
from portico.orchestration.flow.errors import (
    AgentError,
    BuildError,
    Deadlock,
    Deserialize,
    DeserializeError,
    FlowError,
    ForbiddenCommand,
    Http,
    Invalid,
    Io,
    Missing,
    NodeFailed,
    NotFound,
    Other,
    PathEscape,
    ResumeRequired,
    ResumptionMismatch,
    Serialize,
    SerializeError,
    SnapLoadError,
    SnapStoreError,
    StepLimit,
    UnexpectedResumption,
    UnknownTool,
)
from portico.orchestration.flow.graph import FlowBuilder, FlowGraph
from portico.orchestration.flow.registration import FlowDefinition, flow
from portico.orchestration.flow.runtime import FlowRuntime, RunOut
from portico.orchestration.flow.snapshot import FlowSnapshot, FlowSuspension
from portico.ports.tool import ToolError

__all__ = [
    "AgentConfig",
    "AgentError",
    "BuildError",
    "Context",
    "Deadlock",
    "Deserialize",
    "DeserializeError",
    "FlowBuilder",
    "FlowDefinition",
    "FlowError",
    "FlowGraph",
    "FlowRuntime",
    "FlowSnapshot",
    "FlowSuspension",
    "ForbiddenCommand",
    "Http",
    "Invalid",
    "Io",
    "Missing",
    "NodeFailed",
    "NotFound",
    "Other",
    "PathEscape",
    "ResumeRequired",
    "ResumptionMismatch",
    "RunOut",
    "Serialize",
    "SerializeError",
    "SnapLoadError",
    "SnapStoreError",
    "StepLimit",
    "ToolError",
    "UnexpectedResumption",
    "UnknownTool",
    "flow",
]
