"""Summary of the turns of a session that do not fit into a context any more."""

from dataclasses import asdict
from typing import Any, Final

from pydantic import JsonValue

from portico.domain.value import value

SUMMARY_DETAIL: Final = "summary"
"""Name of the summary among the details of a stored session, which clients do not see."""


@value
class SessionSummary:
    """Text that stands for the first `covered` messages of a session. It is untrusted if one of them was."""

    text: str
    covered: int
    is_untrusted: bool

    def stored(self) -> dict[str, JsonValue]:
        """Return the summary as a session stores it."""
        return asdict(self)

    @classmethod
    def read(cls, stored: Any) -> "SessionSummary | None":
        """Return a stored summary; None for anything else."""
        match stored:
            case {"text": str(text), "covered": int(covered), "is_untrusted": bool(is_untrusted)}:
                return cls(text, covered, is_untrusted)
            case _:
                return None
