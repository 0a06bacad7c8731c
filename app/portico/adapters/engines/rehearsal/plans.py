"""Plans for a request: the tool that it means and an answer from its result, else one step for each of its parts.

A plan is requested by the JSON Schema of one, which limits the number of steps and their types. The request and the
tools that a plan may call are quoted by the prompt under these names. Steps follow one another, which every policy
allows. The same request gives the same plan.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from portico.adapters.engines.rehearsal.phases import without_repetition
from portico.adapters.engines.rehearsal.tool_choice import match_forced_tool, match_tool
from portico.capabilities.prompting.prompts.planning import PlanGenerationOutput, PlannableTool
from portico.domain.tools import ToolDefinition

_QUOTATION: Final = re.compile(r"^<(\w+)-([0-9a-f]{8})>\n(.*?)\n</\1-\2>$", re.MULTILINE | re.DOTALL)
_NEXT_PART: Final = re.compile(r"[.?!;]\s+|,?\s+(?:and\s+)?then\s+", re.IGNORECASE)
_TOOL_LIST: Final = TypeAdapter(list[PlannableTool])
Step: TypeAlias = dict[str, Any]
_STEP_FIELDS: Final[Mapping[str, Callable[[str], Step]]] = MappingProxyType(
    {
        "infer": lambda text: {"input": text},
        "redundant": lambda text: {
            "input": {"messages": [{"role": "user", "content": text}], "schema": {"type": "string"}}
        },
        "validate": lambda text: {"input": text, "schema": {"type": "string"}},
        "rerank": lambda text: {"input": {"query": text, "candidates": [text]}},
        "retrieve": lambda text: {"input": text},
        "subplan": lambda text: {"input": text},
    }
)
"""The fields of a step beside its name and type, the preferred type first."""


def make_plan(schema: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any] | None:
    """Return a plan that keeps the schema, from the texts of the users; None where the schema is not a plan's."""
    match schema:
        case {
            "title": PlanGenerationOutput.__name__,
            "properties": {"steps": {"maxItems": int(max_steps)}},
            "$defs": {"PlanStep": {"properties": {"type": {"enum": [*types]}}}},
        }:
            quoted = quoted_by(texts)
            request = without_repetition(quoted.get("task", quoted.get("request", "")))
            steps = _tool_steps(types, request, _tools(quoted.get("tools", "[]"))) or _part_steps(types, request)
            return {"rationale": "This is the rehearsal engine, no model was asked.", "steps": steps[:max_steps]}
        case _:
            return None


def quoted_by(texts: Sequence[str]) -> dict[str, str]:
    """Return what the prompt quotes, by name. The prompt comes before any correction of an earlier answer."""
    quoted = ({name: text for name, _, text in _QUOTATION.findall(each)} for each in texts)
    return next((each for each in quoted if "request" in each), {})


def _tools(text: str) -> list[ToolDefinition]:
    try:
        listed = _TOOL_LIST.validate_json(text)
    except ValidationError:
        return []
    return [ToolDefinition(tool.name, tool.description, tool.parameters) for tool in listed]


def _tool_steps(types: Sequence[str], request: str, tools: Sequence[ToolDefinition]) -> list[Step]:
    has_others = any(each in types for each in _STEP_FIELDS)
    chosen = match_tool(tools, request) or (None if has_others else match_forced_tool(tools, request))
    if chosen is None or "tool" not in types:
        return []
    call = {"name": "call", "type": "tool", "input": {"name": chosen.tool.name, "arguments": chosen.arguments}}
    return [call, {"name": "answer", "type": "infer"}] if "infer" in types else [call]


def _part_steps(types: Sequence[str], request: str) -> list[Step]:
    """Return one or two steps of the preferred type, one for each part of the request."""
    kind = next((each for each in _STEP_FIELDS if each in types), None)
    if kind is None:
        return []
    parts = [part for part in _NEXT_PART.split(request, maxsplit=1) if part.strip()] or [request]
    names = ("first", "second") if len(parts) == 2 else ("answer",)
    return [{"name": name, "type": kind, **_STEP_FIELDS[kind](part)} for name, part in zip(names, parts, strict=True)]
