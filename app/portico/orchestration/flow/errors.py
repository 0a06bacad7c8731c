# ruff: noqa: N818 - the names are those of the flow seed
"""Errors of flows and of their tools, each with the code of the taxonomy that a client sees.

    FlowError
    ├── NotFound                  CONFIG_FLOW_INVALID             a flow, a state, an engine or a tool is missing
    ├── BuildError                CONFIG_FLOW_INVALID             a flow's function could not make its graph
    ├── Invalid                   CONFIG_FLOW_INVALID             the graph breaks invariants; lists all of them
    ├── NodeFailed                ORCHESTRATION_NODE_FAILED       a node's function failed
    ├── SerializeError            ORCHESTRATION_NODE_FAILED       a value could not be written as JSON
    ├── DeserializeError          ORCHESTRATION_NODE_FAILED       a value does not fit its model
    ├── SnapLoadError             STORAGE_SNAPSHOT_INVALID        the snapshot is of another graph, or is broken
    ├── SnapStoreError            STORAGE_UNAVAILABLE             the snapshot could not be stored
    ├── AgentError                the code of its cause           a model could not be asked, or not be understood
    ├── Deadlock                  ORCHESTRATION_DEADLOCK          states wait, and no node can fire
    ├── StepLimit                 ORCHESTRATION_ITERATION_LIMIT   the flow took more steps than it may
    ├── ResumeRequired            REQUEST_RESUME_REQUIRED         `next` was called while the flow is suspended
    ├── UnexpectedResumption      REQUEST_RESUME_UNEXPECTED       `resume` was called while it is not
    └── ResumptionMismatch        REQUEST_RESUME_MISMATCH         the answer names no suspension, or several

A `FlowError` is no `Failure`: the text of a node's error may hold anything, so it never reaches a client.
"""

from collections.abc import Sequence
from typing import ClassVar

from portico.domain.failures import Code
from portico.ports.tool import ToolError


class FlowError(Exception):
    """An error of a flow, with its code."""

    code: Code

    @property
    def raised(self) -> BaseException:
        """Return the exception of a node's code; the error itself if that raised nothing."""
        return self.__cause__ or self


class NotFound(FlowError):
    """Something that the flow names is missing."""

    code = Code.CONFIG_FLOW_INVALID


class BuildError(FlowError):
    """A flow's function could not make its graph."""

    code = Code.CONFIG_FLOW_INVALID


class Invalid(FlowError):
    """A graph that breaks invariants: each of the `problems` names a node and what to change."""

    code = Code.CONFIG_FLOW_INVALID

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class NodeFailed(FlowError):
    """A failure of a node's function; the state is as it was before, and `next` may be called again."""

    code = Code.ORCHESTRATION_NODE_FAILED

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node


class SerializeError(FlowError):
    """A value that could not be written as JSON."""

    code = Code.ORCHESTRATION_NODE_FAILED


class DeserializeError(FlowError):
    """A value that does not fit its model; `errors` are pairs of path and message."""

    code = Code.ORCHESTRATION_NODE_FAILED

    def __init__(self, key: str, errors: Sequence[tuple[str, str]]) -> None:
        super().__init__(f"{key}: " + "; ".join(f"{path}: {message}" for path, message in errors))
        self.errors = tuple(errors)


class SnapLoadError(FlowError):
    """A snapshot that belongs to another graph, or is broken."""

    code = Code.STORAGE_SNAPSHOT_INVALID


class SnapStoreError(FlowError):
    """A snapshot that could not be stored."""

    code = Code.STORAGE_UNAVAILABLE


class AgentError(FlowError):
    """A failure to ask the model of an agent, or to understand it; the code is that of the cause."""

    def __init__(self, node: str, code: Code, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node
        self.code = code


class Deadlock(FlowError):
    """A flow in which states wait and no node can fire; `waiting` are their keys."""

    code = Code.ORCHESTRATION_DEADLOCK

    def __init__(self, waiting: Sequence[str]) -> None:
        super().__init__("no node can fire; waiting: " + ", ".join(waiting))
        self.waiting = tuple(waiting)


class StepLimit(FlowError):
    """A flow that took as many steps as it may and has not ended."""

    code = Code.ORCHESTRATION_ITERATION_LIMIT

    def __init__(self, limit: int) -> None:
        super().__init__(f"the flow has not ended within {limit} steps")
        self.limit = limit


class ResumeRequired(FlowError):
    """A flow that can only go on with an answer; `tool_ids` name what waits."""

    code = Code.REQUEST_RESUME_REQUIRED

    def __init__(self, tool_ids: Sequence[str]) -> None:
        super().__init__("the flow waits for answers to: " + ", ".join(tool_ids))
        self.tool_ids = tuple(tool_ids)


class UnexpectedResumption(FlowError):
    """An answer to a flow that is not suspended."""

    code = Code.REQUEST_RESUME_UNEXPECTED


class ResumptionMismatch(FlowError):
    """An answer that names no open suspension, or more than one."""

    code = Code.REQUEST_RESUME_MISMATCH


class FlowToolError(ToolError):
    """An error of a tool, with its code. The text is for the model."""

    code: ClassVar[Code] = Code.TOOL_EXECUTION_FAILED


class Io(FlowToolError):
    """A failed operation on a file."""


class Serialize(FlowToolError):
    """A result that could not be written as text."""


class Deserialize(FlowToolError):
    """Arguments or data that could not be read."""


class UnknownTool(FlowToolError):
    """A tool that does not exist."""

    code = Code.TOOL_NOT_FOUND


class PathEscape(FlowToolError):
    """A path that leads out of the working directory."""


class ForbiddenCommand(FlowToolError):
    """A command that the flow may not run."""


class Http(FlowToolError):
    """A failed HTTP request."""


class Missing(FlowToolError):
    """A dependency that was not provided; the text names its type."""


class Other(FlowToolError):
    """Any other error of a tool."""
