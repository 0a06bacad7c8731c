"""Code as a tool: a model writes Python that calls the other tools, and one call runs it."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from portico.domain.fingerprints import digest
from portico.domain.tools import (
    INTERPRETER,
    Availability,
    NetworkAccess,
    OfferedTool,
    SideEffects,
    ToolDefinition,
    ToolInfo,
)
from portico.ports.tool import ToolContext, ToolError

RUN_CODE: Final = "run_code"
"""Name of the tool."""
MAX_ROUND_CALLS: Final = 64
"""Calls that code may wait for at the same time."""
MAX_ROUNDS: Final = 100
"""How often code may wait for calls."""
_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"code": {"type": "string", "minLength": 1, "description": "Python code"}},
    "required": ["code"],
    "additionalProperties": False,
}
_DESCRIPTION: Final = (
    "Run Python code that calls the other tools. Call a tool by `await NAME(argument=value)`, with keyword arguments"
    " only, and several at the same time by `await asyncio.gather(...)` after `import asyncio`. A tool that fails"
    " raises RuntimeError. The value of the last expression is the result; what is printed is returned, too. There are"
    " no files, no network and no third-party packages."
)
_CONTAINMENT: Final = (
    "A Python interpreter without system calls of its own, in a new process for each call: code reaches the tools that"
    " it may call, and nothing else."
)
_TYPES: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
_MAX_CHOICES: Final = 12
_CACHED: Final = 64


class CodeTool:
    """The tool `run_code`. Its calls are nested runs; the calls in them carry their own safety.

    With `replaces_tools` it is offered instead of the tools that it calls. It is not there for the `reason`, if there
    is one.
    """

    def __init__(self, *, replaces_tools: bool, reason: str = "") -> None:
        self.replaces_tools = replaces_tools
        self._availability = Availability(available=not reason, reason=reason)
        self._info = ToolInfo(
            RUN_CODE,
            "code",
            _DESCRIPTION,
            SideEffects.NONE,
            idempotent=False,
            identity=digest(RUN_CODE, NetworkAccess.NONE),
            containment=_CONTAINMENT,
            isolation=INTERPRETER,
            network=NetworkAccess.NONE,
        )
        self._definition = ToolDefinition(RUN_CODE, _DESCRIPTION, _PARAMETERS)

    def info(self) -> ToolInfo:
        return self._info

    def definition(self) -> ToolDefinition:
        return self._definition

    def available(self) -> Availability:
        return self._availability

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Raise ToolError: code is run by the execution that calls it, not by the executor of tools."""
        raise ToolError("code that calls tools runs only within an execution")


def function_names(tools: Sequence[OfferedTool]) -> dict[str, str]:
    """Return the tools by the names that code calls them by; of two equal names the first counts."""
    names: dict[str, str] = {}
    for tool in tools:
        names.setdefault(_function_name(tool.name), tool.name)
    return names


@lru_cache(maxsize=_CACHED)
def with_signatures(definition: ToolDefinition, tools: tuple[ToolDefinition, ...]) -> ToolDefinition:
    """Return the definition with the signatures of these tools in its description."""
    found: dict[str, str] = {}
    for tool in tools:
        name = _function_name(tool.name)
        found.setdefault(name, _signature(name, tool))
    description = "\n\n".join([f"{definition.description} The tools:", *found.values()])
    return ToolDefinition(definition.name, description, definition.parameters)


def _function_name(tool: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", tool)


def _signature(name: str, tool: ToolDefinition) -> str:
    """Return the head of a function, what it does, and what its parameters are."""
    properties = tool.parameters.get("properties") or {}
    required = tool.parameters.get("required", ())
    heads, said = ["*"] if properties else [], [tool.description]
    for each, schema in properties.items():
        heads.append(f"{each}: {_type(schema)}{'' if each in required else ' = ...'}")
        if isinstance(schema, Mapping) and schema.get("description"):
            said.append(f"{each}: {schema['description']}")
    return "\n    ".join([f"async def {name}({', '.join(heads)})", *said])


def _type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "object"
    choices = schema.get("enum")
    if isinstance(choices, list) and len(choices) <= _MAX_CHOICES:
        return f"Literal[{', '.join(map(repr, choices))}]"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_TYPES.get(each, "object") for each in kind)
    items = schema.get("items")
    if kind == "array" and items:
        return f"list[{_type(items)}]"
    return _TYPES.get(kind, "object") if isinstance(kind, str) else "object"
