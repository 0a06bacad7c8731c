"""Tools of the MCP server, made of what GET /v1/agents and GET /v1/flows show the caller, and their requests."""

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeVar

import orjson
from mcp import types
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from portico.domain.contract.request import SystemRequest
from portico.domain.failures import invalid_request
from portico.domain.field_errors import invalid_fields, path_within
from portico.domain.ids import RequestId, SuspensionId
from portico.domain.strict_json import StrictJsonError, dumps
from portico.domain.tools import SideEffects
from portico.orchestration.facade import AgentView, FlowView

A = TypeVar("A", bound=BaseModel)
EXECUTE: Final = "execute"
AGENT: Final = "agent__"
FLOW: Final = "flow__"
GET_EXECUTION: Final = "get_execution"
CANCEL: Final = "cancel"
RESUME: Final = "resume"
MAX_NAME: Final = 64
MAX_CLIENT_NAME: Final = 64
_DIGEST_CHARACTERS: Final = 8
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {"messages.0.content": "message", "output.schema": "schema", "flow.input": "input"}
)
"""Arguments by the field of the request that they become."""
OUTPUT_SCHEMA: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "request_id": {"type": "string", "description": "Id of the execution."},
            "state": {"type": "string", "description": "COMPLETE, SUSPENDED, ERROR, CANCELLED, or what it is doing."},
            "content": {"type": "string", "description": "Text of the answer."},
            "structured_output": {"description": "Value of the answer, if a format was required."},
            "confidence": {"type": "number", "description": "Confidence in the answer."},
            "suspensions": {"type": "array", "items": {"type": "object"}, "description": "Open questions."},
            "error": {"type": "object", "description": "Why it failed or was refused."},
        },
    }
)
_RUNS: Final = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AgentArguments(_Arguments):
    """Arguments of an agent."""

    message: Annotated[str, Field(min_length=1)] = Field(description="What the agent is asked to do.")
    session_id: str | None = Field(None, description="Conversation to go on with, by an id of your own.")


class ExecuteArguments(AgentArguments):
    """Arguments of `execute`."""

    agent: str | None = Field(None, description="Agent that answers.")
    model: str | None = Field(None, description="Route or engine.")
    mode: Literal["chat", "structured", "redundant", "plan"] | None = Field(None, description="Pattern to run.")
    output_schema: dict[str, JsonValue] | None = Field(
        None, alias="schema", description="JSON Schema that the answer follows."
    )


class ExecutionArguments(_Arguments):
    """The execution that a tool is about."""

    request_id: str = Field(min_length=1, max_length=128, description="Id of the execution.")


class ResumeArguments(ExecutionArguments):
    """The answer to a question."""

    suspension_id: SuspensionId = Field(min_length=1, max_length=256, description="The question.")
    answer: JsonValue = Field(description="The answer, any JSON.")


class FlowArguments(_Arguments):
    """The input of a flow that takes something else than an object."""

    input: JsonValue = Field(description="Input of the flow.")


def tools_of_executions() -> list[types.Tool]:
    """Return the tools that are about an execution."""
    about = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    ends = types.ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    )
    return [
        _tool(GET_EXECUTION, "Show the state of an execution, and its answer once there is one.",
              _schema(ExecutionArguments), about),
        _tool(CANCEL, "Cancel an execution.", _schema(ExecutionArguments), ends),
        _tool(RESUME, "Answer a question of an execution. Approvals are for people, who decide elsewhere.",
              _schema(ResumeArguments), _RUNS),
    ]  # fmt: skip


def execute_tool() -> types.Tool:
    """Return the tool that runs any request."""
    return _tool(
        EXECUTE, "Run a request with agents, tools and modes of the service.", _schema(ExecuteArguments), _RUNS
    )


def agent_tool(agent: AgentView) -> types.Tool:
    """Return the tool that asks an agent; its hints are the effects that the agent can have."""
    acts = agent.side_effects in {SideEffects.WRITE, SideEffects.EXTERNAL}
    hints = types.ToolAnnotations(
        read_only_hint=not acts,
        destructive_hint=acts,
        idempotent_hint=agent.idempotent,
        open_world_hint=agent.side_effects is SideEffects.EXTERNAL,
    )
    return _tool(public_name(AGENT, agent.name), agent.description, _schema(AgentArguments), hints)


def flow_tool(flow: FlowView) -> types.Tool:
    """Return the tool that runs a flow."""
    schema = {**flow.input_schema, "additionalProperties": False} if takes_object(flow) else _schema(FlowArguments)
    return _tool(public_name(FLOW, flow.name), f"Run the flow {flow.name}.", schema, _RUNS)


def takes_object(flow: FlowView) -> bool:
    """Return True if the arguments of a flow's tool are its input."""
    return flow.input_schema.get("type") == "object"


def public_name(prefix: str, name: str) -> str:
    """Return the name of a tool, of at most 64 characters that clients take.

    A name that had to be changed ends in a digest of the original, so that two originals never share one.
    """
    plain = prefix + _NOT_IN_NAMES.sub("_", name)
    if plain == prefix + name and len(plain) <= MAX_NAME:
        return plain
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_CHARACTERS // 2).hexdigest()
    return f"{plain[: MAX_NAME - _DIGEST_CHARACTERS - 1]}_{digest}"


def read_arguments(model: type[A], arguments: Mapping[str, Any] | None, max_depth: int) -> A:
    """Return the arguments of a call. Raises: RequestFailure (REQUEST_INVALID) with the argument that is wrong."""
    text = strict_text(arguments or {}, max_depth)
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_input=False)
    raise invalid_request(*_named(errors, arguments or {}, model.model_json_schema()))


def strict_text(value: object, max_depth: int) -> bytes:
    """Return a value that a lenient reader has read as JSON. Raises: RequestFailure (REQUEST_INVALID)."""
    try:
        return dumps(value, "", max_depth=max_depth)
    except StrictJsonError as error:
        failure = invalid_request(("arguments", f"are not acceptable JSON: {error.reason}"))
    raise failure


def execute_request(arguments: ExecuteArguments, client: str) -> SystemRequest:
    """Return the request of a call of `execute`. Raises: RequestFailure (REQUEST_INVALID)."""
    fields: dict[str, Any] = _conversation(arguments)
    given = {"agent": arguments.agent, "model": arguments.model, "mode": arguments.mode}
    fields |= {name: each for name, each in given.items() if each is not None}
    if arguments.output_schema is not None:
        fields["output"] = {"schema": arguments.output_schema}
        fields.setdefault("mode", "structured")
    return _request(fields, client)


def agent_request(agent: str, arguments: AgentArguments, client: str) -> SystemRequest:
    """Return the request of a call of an agent. Raises: RequestFailure (REQUEST_INVALID)."""
    return _request({**_conversation(arguments), "agent": agent}, client)


def flow_request(flow: str, given: JsonValue, client: str) -> SystemRequest:
    """Return the request of a call of a flow. Raises: RequestFailure (REQUEST_INVALID)."""
    return _request({"mode": "flow", "flow": {"name": flow, "input": given}}, client)


def request_id_of(arguments: ExecutionArguments) -> RequestId:
    """Return the id of the execution that the arguments name."""
    return RequestId(arguments.request_id)


def _conversation(arguments: AgentArguments) -> dict[str, Any]:
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": arguments.message}]}
    return fields if arguments.session_id is None else {**fields, "session_id": arguments.session_id}


def _request(fields: dict[str, Any], client: str) -> SystemRequest:
    fields["metadata"] = {"client": f"mcp/{client}"}
    try:
        return SystemRequest.model_validate_json(orjson.dumps(fields), strict=True)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_input=False)
    raise invalid_request(*_named(errors, fields, SystemRequest.model_json_schema()))


def _named(errors: Any, value: Mapping[str, Any], schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each invalid argument and what is wrong with it."""
    found = invalid_fields(errors, path_of=path_within(value), schema=schema)
    paths = [(".".join(each.path), each.message) for each in found]
    return [(next((_FIELDS[begin] + path[len(begin) :] for begin in _FIELDS if path.startswith(begin)), path), message)
            for path, message in paths]  # fmt: skip


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    properties = {
        name: {key: each for key, each in field.items() if key not in {"title", "default"}}
        for name, field in schema["properties"].items()
    }
    shown = {"type": "object", "properties": properties, "additionalProperties": False}
    return shown | ({"required": schema["required"]} if "required" in schema else {})


def _tool(name: str, description: str, schema: Mapping[str, Any], hints: types.ToolAnnotations) -> types.Tool:
    return types.Tool(
        name=name,
        description=description,
        input_schema=dict(schema),
        output_schema=dict(OUTPUT_SCHEMA),
        annotations=hints,
    )
