"""Memory ports: the search of the documents that are stored for retrieval."""

from typing import Protocol

from app.domain.access.principal import Principal
from app.domain.memory import MemorySearchResult


class MemorySearch(Protocol):
    """Search of the documents that a caller may read: its own, and those that are shared in its tenant."""

    async def search(
        self, principal: Principal, query: str, *, max_chunks: int, min_score: float = 0.0
    ) -> MemorySearchResult:
        """Return the chunks that fit the query best, at most so many and with at least that score.

        Nothing is raised for a failure: a leg that fails is reported in the result. What the embedding of the query
        takes is charged to the limits and the usage of the principal.
        """
        ...
