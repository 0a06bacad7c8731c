"""The report of a context: tokens of each term of the budget, and what was cut, redacted, chosen and retrieved.

It has ids and counts and never a text, so that everybody who may see an execution may see it.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from portico.domain.value import value


@value(slots=False)
class ContextTerms:
    """The budget equation in tokens: the terms of its left side, and the `limit` on its right.

    `system` is the system prompt without skills. `history` includes a summary of earlier turns. `memory` is the
    retrieved context and `message` the last message.
    """

    system: int
    history: int
    message: int
    tools: int
    skills: int = 0
    memory: int = 0
    limit: int = 0

    @property
    def used(self) -> int:
        """Return the sum of the left side."""
        return self.system + self.history + self.message + self.tools + self.skills + self.memory


@value(slots=False)
class HistoryCut:
    """Messages of the earlier conversation that are not in the context; `summarised` of them are in a summary.

    `repaired` counts tool results that were dropped without a call or added for a call that had none.
    """

    messages: int = 0
    summarised: int = 0
    repaired: int = 0


NOTHING_CUT: Final = HistoryCut()


@value(slots=False)
class UsedSkill:
    """A skill in the context."""

    name: str
    tokens: int


@value(slots=False)
class ExcludedSkill:
    """A candidate that is not in the context, and why."""

    name: str
    reason: str


@value(slots=False)
class ContextChunk:
    """A chunk of a document that was found; one that is not `used` did not fit or was refused."""

    document_id: str
    chunk: int
    score: float
    tokens: int
    used: bool = True


@value(slots=False)
class ContextReport:
    """Context of the first inference. `redacted` counts replaced values by kind."""

    terms: ContextTerms
    cut: HistoryCut = NOTHING_CUT
    redacted: Mapping[str, int] = field(default_factory=dict)
    skills: tuple[UsedSkill, ...] = ()
    excluded: tuple[ExcludedSkill, ...] = ()
    chunks: tuple[ContextChunk, ...] = ()
