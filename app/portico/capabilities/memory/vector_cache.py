"""Vectors in memory: those of the scopes that were searched last, as far as a bounded total has room.

The version of a scope is read at each search, so what another replica has changed is never missed: a chunk that was
deleted is not in the vectors of the new version. The vectors of a scope that has no room are read page by page at each
search. numpy is imported at the first search, by a thread, since it takes 0.1 s and not every service has documents.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio

from portico.domain.memory import MemoryScope
from portico.domain.value import value
from portico.ports.memory import MemoryIndex, VectorSpace
from portico.ports.runtime import ThreadPool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from portico.capabilities.memory.scores import Ranked

MAX_BYTES: Final = 256 * 2**20
PAGE_ROWS: Final = 4_096


class VectorSizeError(Exception):
    """Vectors that cannot be compared, because their sizes differ."""


@value
class _Page:
    """Vectors of some chunks as rows of length 1, with the ids of the chunks."""

    chunk_ids: "NDArray[Any]"
    rows: "NDArray[Any]"

    @property
    def size(self) -> int:
        return int(self.rows.nbytes + self.chunk_ids.nbytes)


@value
class _CachedScope:
    version: str
    pages: tuple[_Page, ...]

    @property
    def size(self) -> int:
        return sum(page.size for page in self.pages)


class VectorCache:
    """Vectors of one space, to which a query is compared. `max_bytes` bounds what stays in memory."""

    def __init__(
        self, index: MemoryIndex, space: VectorSpace, thread_pool: ThreadPool, *, max_bytes: int = MAX_BYTES
    ) -> None:
        self._index = index
        self._space = space
        self._thread_pool = thread_pool
        self._max_bytes = max_bytes
        self._scopes: OrderedDict[MemoryScope, _CachedScope] = OrderedDict()
        self._lock = anyio.Lock()

    @property
    def size(self) -> int:
        """The bytes that are in use."""
        return sum(each.size for each in self._scopes.values())

    async def is_empty(self, scope: MemoryScope, version: str | None) -> bool:
        """Return True if no chunk of the scope has a vector to compare. Raises: StorageFailure."""
        cached = self._current(scope, version)
        if cached is not None or version is None:
            return cached is None or not cached.pages
        return not await self._index.vectors(scope, self._space, after=0, limit=1)

    async def rank(self, scope: MemoryScope, version: str | None, query: bytes, limit: int) -> "Ranked":
        """Return the chunks of the scope, which has this version now, that are most similar to the query.

        Raises: StorageFailure; VectorSizeError.
        """
        if version is None:
            self._scopes.pop(scope, None)
            return []
        cached = self._current(scope, version)
        if cached is None:
            async with self._lock:
                cached = self._current(scope, version)
                if cached is None:
                    return await self._load(scope, version, query, limit)
        self._scopes.move_to_end(scope)
        return await self._compare(cached.pages, query, limit)

    def _current(self, scope: MemoryScope, version: str | None) -> _CachedScope | None:
        cached = self._scopes.get(scope)
        return cached if cached is not None and cached.version == version else None

    async def _load(self, scope: MemoryScope, version: str, query: bytes, limit: int) -> "Ranked":
        """Rank the chunks while their vectors are read, which stay in memory if all have room."""
        self._scopes.pop(scope, None)
        pages: list[_Page] = []
        ranked: Ranked = []
        size, after = 0, 0
        while rows := await self._index.vectors(scope, self._space, after=after, limit=PAGE_ROWS):
            page = await self._page(rows)
            size, after = size + page.size, rows[-1][0]
            if size <= self._max_bytes:
                pages.append(page)
            ranked += await self._compare((page,), query, limit)
        if size <= self._max_bytes and (await self._index.versions([scope]))[0] == version:
            self._scopes[scope] = _CachedScope(version, tuple(pages))
            while self.size > self._max_bytes:
                self._scopes.popitem(last=False)
        return _best(ranked, limit)

    async def _page(self, rows: Sequence[tuple[int, bytes]]) -> _Page:
        def build() -> _Page:
            import numpy as np  # noqa: PLC0415 - see above

            from portico.capabilities.memory.scores import unit_vectors  # noqa: PLC0415 - see above

            if len({len(vector) for _, vector in rows}) > 1:
                raise VectorSizeError
            ids = np.array([chunk_id for chunk_id, _ in rows], dtype=np.int64)
            return _Page(ids, unit_vectors([vector for _, vector in rows]))

        return await self._thread_pool.run(build)

    async def _compare(self, pages: Sequence[_Page], query: bytes, limit: int) -> "Ranked":
        def compare() -> "Ranked":
            from portico.capabilities.memory.scores import rank_by_vectors, unit_vectors  # noqa: PLC0415 - see above

            direction = unit_vectors([query])[0]
            if any(page.rows.shape[1] != len(direction) for page in pages):
                raise VectorSizeError
            ranked = [each for page in pages for each in rank_by_vectors(page.chunk_ids, page.rows, direction, limit)]
            return _best(ranked, limit)

        return await self._thread_pool.run(compare)


def _best(ranked: "Ranked", limit: int) -> "Ranked":
    return sorted(ranked, key=lambda each: (-each[1], each[0]))[:limit]
