"""Makes a plan for whoever asks for one: the tool that the request means and what to make of it, else its parts.

A plan is asked for by the JSON Schema of one, which says how many steps there may be and of which types. The request
and the tools that a plan may call are what the prompt quotes under these names. Steps follow one another, for that is
allowed everywhere. The same request gives the same plan.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.adapters.engines.rehearsal.schema_values import match_forced_tool
from app.adapters.engines.rehearsal.text_arguments import match_tool
from app.capabilities.output.schema.compiled import compile_schema
from app.capabilities.prompting.prompts.planning import PlanGenerationOutput, PlannableTool
from app.domain.failures import ConfigurationFailure
from app.domain.tools import ToolDefinition

_QUOTATION = re.compile(r"^<(\w+)-([0-9a-f]{8})>\n(.*?)\n</\1-\2>$", re.MULTILINE | re.DOTALL)
_NEXT = re.compile(r"[.?!;]\s+|,?\s+(?:and\s+)?then\s+", re.IGNORECASE)

_LISTED = TypeAdapter(list[PlannableTool])
Step = dict[str, Any]
_STEPS: Mapping[str, Callable[[str], Step]] = MappingProxyType(
    {
        "infer": lambda text: {"input": text},
        "redundant": lambda text: {
            "input": {"messages": [{"role": "user", "content": text}], "schema": {"type": "string"}}
        },
        "validate": lambda text: {"input": text, "schema": {"type": "string"}},
        "rerank": lambda text: {"input": {"query": text, "candidates": [text]}},
    }
)
"""What a step of a type has beside name and type, the type that is preferred first."""


def make_plan(schema: Mapping[str, Any], said: Sequence[str]) -> dict[str, Any] | None:
    """A plan that keeps the schema, of what users said; None where the schema is not one of plans."""
    match schema:
        case {
            "title": PlanGenerationOutput.__name__,
            "properties": {"steps": {"maxItems": int(most)}},
            "$defs": {"PlanStep": {"properties": {"type": {"enum": [*types]}}}},
        }:
            quoted = _quoted(said)
            request = quoted.get("request", "").strip()
            steps = _calling(types, request, _tools(quoted.get("tools", "[]"))) or _parts(types, request)
            return {"rationale": "This is the rehearsal engine, no model was asked.", "steps": steps[:most]}
        case _:
            return None


def _quoted(said: Sequence[str]) -> dict[str, str]:
    """What the prompt quotes, by name; it stands before whatever was said about earlier answers."""
    quoted = ({name: text for name, _, text in _QUOTATION.findall(text)} for text in said)
    return next((each for each in quoted if "request" in each), {})


def _tools(text: str) -> list[ToolDefinition]:
    """The tools that the prompt lists; whoever only pretends to be a planner may list anything."""
    try:
        listed = _LISTED.validate_json(text)
    except ValidationError:
        return []
    return [ToolDefinition(tool.name, tool.description, tool.parameters) for tool in listed if _is_usable(tool)]


def _is_usable(tool: PlannableTool) -> bool:
    try:
        compile_schema(tool.parameters)
    except ConfigurationFailure:
        return False
    return True


def _calling(types: Sequence[str], request: str, tools: Sequence[ToolDefinition]) -> list[Step]:
    """A call of the tool that is meant, and an answer from its result where one can be asked for."""
    others = [each for each in _STEPS if each in types]
    chosen = match_tool(tools, request) or (None if others else match_forced_tool(tools, request))
    if chosen is None or "tool" not in types:
        return []
    call = {"name": "call", "type": "tool", "input": {"name": chosen.tool.name, "arguments": chosen.arguments}}
    return [call, {"name": "answer", "type": "infer"}] if "infer" in types else [call]


def _parts(types: Sequence[str], request: str) -> list[Step]:
    """One or two steps of the type that is preferred, one for each part of the request."""
    kind = next((each for each in _STEPS if each in types), None)
    if kind is None:
        return []
    parts = [part for part in _NEXT.split(request, maxsplit=1) if part.strip()] or [request]
    names = ("first", "second") if len(parts) == 2 else ("answer",)
    return [{"name": name, "type": kind, **_STEPS[kind](part)} for name, part in zip(names, parts, strict=True)]
