"""Triggers: which skills a message calls for, found with all words and expressions in one pass.

A word is found whole and in any case. Scripts that write words without spaces have no boundaries, so there a word is
found anywhere. An expression between slashes is searched as it is.
"""

import re
from collections.abc import Sequence
from typing import Final

from portico.capabilities.guards.pattern_set import PatternSet

MAX_SEARCHED_CHARACTERS: Final = 64 * 1024
"""Characters at the beginning of a message that triggers are searched in."""
_PATTERNS_PER_SET: Final = 64
_BEFORE: Final = r"(?:^|[^\pL\pN\pM_])"
_BEHIND: Final = r"(?:$|[^\pL\pN\pM_])"
_UNSPACED: Final = r"[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u9fff\uac00-\ud7ff\uf900-\ufaff]"
"""Characters of scripts without spaces between words, and of Hangul, whose words take endings. The pattern is compiled
when the first trigger is read.
"""


class TriggerIndex:
    """The triggers of skills, each of which is a number. Raises: ValueError if they are too many together."""

    def __init__(self, triggers: Sequence[Sequence[str]]) -> None:
        pairs = [(owner, _pattern(trigger)) for owner, each in enumerate(triggers) for trigger in each]
        self._sets = [
            (PatternSet([pattern for _, pattern in part]), [owner for owner, _ in part])
            for part in (pairs[at : at + _PATTERNS_PER_SET] for at in range(0, len(pairs), _PATTERNS_PER_SET))
        ]

    def owners(self, text: str) -> set[int]:
        """Return the numbers of the skills that have a trigger in the text."""
        searched = text[:MAX_SEARCHED_CHARACTERS]
        return {owners[index] for patterns, owners in self._sets for index in patterns.matched(searched)}


def is_usable(trigger: str) -> bool:
    """Return True if the trigger is a word, or an expression that RE2 has."""
    try:
        PatternSet([_pattern(trigger)])
    except ValueError:
        return False
    return True


def _pattern(trigger: str) -> str:
    if len(trigger) > 2 and trigger[0] == trigger[-1] == "/":
        return trigger[1:-1]
    begin = _BEFORE if _is_bounded(trigger[0]) else ""
    end = _BEHIND if _is_bounded(trigger[-1]) else ""
    words = r"\s+".join("".join(map(_quoted, word)) for word in trigger.split())
    return f"(?i:{begin}{words}{end})"


def _is_bounded(character: str) -> bool:
    """Return True if a word that has this character at its edge ends there only before another kind of character."""
    return (character.isalnum() or character == "_") and not re.match(_UNSPACED, character)


def _quoted(character: str) -> str:
    return character if character.isalnum() or character == "_" else f"\\x{{{ord(character):x}}}"
