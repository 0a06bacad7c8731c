"""Flows: typed graphs that run step by step, stop for answers, and go on from snapshots."""

from app.orchestration.flow.agent_config import AgentConfig
from app.orchestration.flow.context import Context
from app.orchestration.flow.errors import (
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
from app.orchestration.flow.graph import FlowBuilder, FlowGraph
from app.orchestration.flow.registration import FlowDefinition, flow
from app.orchestration.flow.runtime import FlowRuntime, RunOut
from app.orchestration.flow.snapshot import FlowSnapshot, FlowSuspension
from app.ports.tool import ToolError

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
