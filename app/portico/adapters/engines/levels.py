"""Levels of reasoning: what is sent for each level of `hints.reasoning`, by the model.

A model is sent the nearest level that it has, never a higher one; only `none` may become its lowest. A table has a row
for each family of models, the first that matches decides. An empty cell is a level that the family lacks. In the cell
of `none` stands what turns reasoning off, else the family's lowest level. The two values of a switch are no levels:
switched on, a model reasons as much as it likes.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, get_args

from portico.domain.contract.request import ReasoningLevel

Cell: TypeAlias = str | int | bool | None
LEVELS: Final[Sequence[ReasoningLevel]] = get_args(ReasoningLevel)
SWITCH: Final[Sequence[Cell]] = (False, True, True, True, True)
OFF: Final = ("none", 0, False)
"""The values that turn reasoning off."""


class LevelRow(NamedTuple):
    """The models of a family by pattern, and what they are sent for each of `LEVELS`."""

    models: str
    cells: Sequence[Cell]


class SentLevel(NamedTuple):
    """Value that is sent for a level, and whether it is exactly that level."""

    value: str | int | bool
    is_exact: bool


# fmt: off
OPENAI_EFFORTS: Final[Sequence[LevelRow]] = (
    #                                       none       low    medium    high    max
    LevelRow(r"gpt-5-pro",                ("high",    None,  None,     "high", None)),
    LevelRow(r"gpt-5[.-]\d+-pro",         ("medium",  None,  "medium", "high", "xhigh")),
    LevelRow(r"(gpt-5(-|[.-]1-)|)codex(?!-max)|gpt-oss|o\d", ("low", "low", "medium", "high", None)),
    LevelRow(r"gpt-5[.-]\d+-codex",       ("low",     "low", "medium", "high", "xhigh")),
    LevelRow(r"gpt-5[.-]1(?!\d)",         ("none",    "low", "medium", "high", None)),
    LevelRow(r"gpt-5[.-][2-5](?!\d)",     ("none",    "low", "medium", "high", "xhigh")),
    LevelRow(r"gpt-5(?![.-]\d\d?(?!\d))",    ("minimal", "low", "medium", "high", None)),
    LevelRow(r"gpt-(5[.-]|[6-9]|\d\d)",   ("none",    "low", "medium", "high", "max")),
    LevelRow(r"grok-3-mini",              ("low",     "low", None,     "high", None)),
    LevelRow(r"mi(ni)?stral-",            ("none",    None,  None,     "high", None)),
    LevelRow(r"",                         ("none",    "low", "medium", "high", None)),
)
CLAUDE_EFFORTS: Final[Sequence[LevelRow]] = (
    LevelRow(r"claude-[a-z]+-(5-[1-9](?!\d)|[6-9])", ("low", "low", "medium", "high", "max")),
    LevelRow(r"",                         ("none",    "low", "medium", "high", "max")),
)
CLAUDE_BUDGETS: Final[Sequence[LevelRow]] = (
    LevelRow(r"claude-3-7|claude-[a-z]+-4(?!\d)(?!-[6-9](?!\d))", (0, 2_048, 8_192, 24_576, 49_152)),
)
GEMINI_BUDGETS: Final[Sequence[LevelRow]] = (
    LevelRow(r"gemini-2\.5-pro",          (128,       2_048, 8_192,    24_576, 32_768)),
    LevelRow(r"gemini-2\.5",              (0,         2_048, 8_192,    24_576, None)),
)
GEMINI_LEVELS: Final[Sequence[LevelRow]] = (
    LevelRow(r"gemini-3-pro",             ("LOW",     "LOW", None,     "HIGH", None)),
    LevelRow(r"gemini.*flash",            ("MINIMAL", "LOW", "MEDIUM", "HIGH", None)),
    LevelRow(r"",                         ("LOW",     "LOW", "MEDIUM", "HIGH", None)),
)
OLLAMA_LEVELS: Final[Sequence[LevelRow]] = (
    LevelRow(r"gpt-oss",                  ("low",     "low", "medium", "high", None)),
    LevelRow(r"",                         SWITCH),
)
SWITCHES: Final[Sequence[LevelRow]] = (LevelRow(r"", SWITCH),)
# fmt: on
TABLES: Final[Mapping[str, Sequence[LevelRow]]] = MappingProxyType(
    {
        "reasoning_effort": OPENAI_EFFORTS,
        "output_config.effort": CLAUDE_EFFORTS,
        "thinking.budget_tokens": CLAUDE_BUDGETS,
        "thinkingConfig.thinkingBudget": GEMINI_BUDGETS,
        "thinkingConfig.thinkingLevel": GEMINI_LEVELS,
        "think": OLLAMA_LEVELS,
        "switch": SWITCHES,
    }
)
"""Every table by the parameter that it is for."""


def find_level(wanted: ReasoningLevel, table: Sequence[LevelRow], model: str) -> SentLevel | None:
    """Return what a model is sent for a level; None if it has no such level and no lower one, or is not in the table.

    What stands before the model's name, as a vendor's name or a region, is ignored.
    """
    row = next((row for row in table if re.search(rf"(^|[/:.])({row.models})", model)), None)
    if row is None:
        return None
    position = LEVELS.index(wanted)
    found = next((n for n in range(position, -1, -1) if _is_level(row.cells, n) or n == position == 0), None)
    if found is None:
        return None
    value = row.cells[found]
    assert value is not None  # noqa: S101 - the cell of `none` is never empty
    return SentLevel(value, found == position and value is not True and _is_level(row.cells, found))


def _is_level(cells: Sequence[Cell], position: int) -> bool:
    """Tell whether the cell is the level of its column: that of `none` may hold the lowest one."""
    cell = cells[position]
    return cell is not None and (position > 0 or cell in OFF)
