"""Rules written in Python, by the names that requests use: a row of `CUSTOM_RULES` each.

A rule is pure, since a replay has to come to the same result, and takes no longer than reading the answer does.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from portico.capabilities.output.canonical_json import canonical_json
from portico.capabilities.output.rules.rule_set import CustomRule, RuleRegistry, rule
from portico.domain import json_path
from portico.domain.contract.rules import AnswerContent

MAX_ELEMENTS: Final = 5_000
_PLACEHOLDER = re.compile(
    r"\b(?:TODO|TBD|FIXME|lorem ipsum)\b|\[(?:your|insert|add|enter)\b[^\]\n]{0,80}\]|<(?:your|insert)\b[^>\n]{0,80}>",
    re.IGNORECASE,
)


@rule
def no_placeholder(answer: AnswerContent, _options: Mapping[str, Any]) -> str | None:
    """Reject a text with a placeholder that was left to be filled in, such as `[your name]`, `TBD` or `lorem ipsum`."""
    return None if _PLACEHOLDER.search(answer.text) is None else "holds a placeholder that was never filled in"


@rule
def unique_by(answer: AnswerContent, options: Mapping[str, Any]) -> str | None:
    """Reject two objects in the lists at the path `list` that have equal values of `member`."""
    elements: json_path.Matches = [((), answer.value)]
    for step in (*json_path.parse(options["list"]), None):
        elements = json_path.children(elements, step)
        if len(elements) > MAX_ELEMENTS:
            return f"has more than {MAX_ELEMENTS:,} elements, too many to compare"
    member = options["member"]
    found = [
        canonical_json(element[member]) for _, element in elements if isinstance(element, dict) and member in element
    ]
    return None if len(set(found)) == len(found) else f"has the same {member[:64]} twice"


CUSTOM_RULES: Mapping[str, CustomRule] = MappingProxyType({"no_placeholder": no_placeholder, "unique_by": unique_by})
"""The rules by name; a name alone stands for the rule without options."""
BUILT_IN_RULES: Final = RuleRegistry(CUSTOM_RULES)
"""The rules that every process has. Those of modules are run by worker processes, and what they find is recorded."""
