"""The offered tool that a text means, and the arguments that it names.

A tool can be called when the text names all that it requires, and is meant when the text has its words: each word of
its name counts 2, each other word of its description 1, each argument that stands beside its name or has its form 2,
and 2 are needed. A tool that requires nothing needs all words of its name, or one of them and a count of 3. The highest
count wins, the first offered among equals. Nothing here knows which tools there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from portico.adapters.engines.rehearsal.schema_values import SchemaFiller, fill
from portico.adapters.engines.rehearsal.text_values import TextValues, stems
from portico.domain.tools import ToolDefinition
from portico.domain.value import value


@value
class ToolMatch:
    """A tool, the arguments that the text names for it, and how well the text fits it."""

    tool: ToolDefinition
    arguments: dict[str, Any]
    score: int
    is_meant: bool


def match_tool(tools: Sequence[ToolDefinition], text: str) -> ToolMatch | None:
    """Return the tool that the text means, with all that it requires; None without one."""
    return _best([match for match in (_match(tool, text) for tool in tools) if match.is_meant])


def match_forced_tool(tools: Sequence[ToolDefinition], text: str) -> ToolMatch | None:
    """Return the tool that the text fits best, with invented values for what it lacks; None without tools."""
    best = _best([_match(tool, text) for tool in tools])
    if best is None:
        return None
    invented = fill(best.tool.parameters, text)
    missing = invented if isinstance(invented, dict) else {}
    return ToolMatch(best.tool, {**missing, **best.arguments}, best.score, is_meant=False)


def _best(matches: Sequence[ToolMatch]) -> ToolMatch | None:
    return max(matches, key=lambda match: match.score, default=None)


def _match(tool: ToolDefinition, text: str) -> ToolMatch:
    properties = tool.parameters.get("properties")
    schemas = properties if isinstance(properties, Mapping) else {}
    required = tool.parameters.get("required")
    needed = [name for name in required if name in schemas] if isinstance(required, list) else []
    values = TextValues(text)
    filler = SchemaFiller(tool.parameters, values)
    rules = {name: filler.simplified(schema) for name, schema in schemas.items()}
    found = {name: value for name in schemas if (value := values.named(name, rules[name])) is not None}
    words, name = stems(text), stems(tool.name)
    score = 2 * len(name & words) + len((stems(tool.description) - name) & words) + 2 * len(found)
    found |= {
        name: value for name in needed if name not in found and (value := values.next_of(rules[name])) is not None
    }
    if needed:
        is_meant = score >= 2 and all(name in found for name in needed)
    else:
        is_meant = name <= words or (not name.isdisjoint(words) and score >= 3)
    return ToolMatch(tool, {name: found[name] for name in schemas if name in found}, score, is_meant)
