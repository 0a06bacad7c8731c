"""Embedding of stored documents: at once when they are stored, and again later if that fails.

A document is due to be embedded as long as its chunks have no vectors. When it is stored, it is due after some time, in
which it is embedded at once; when that fails, or takes too long, a job that runs on every replica takes over. Each
failure doubles the time until the next one.
"""

from typing import Final

import anyio

from portico.capabilities.memory.embedder import Embedder, EmbeddingError
from portico.domain.access.principal import Principal
from portico.ports.memory import DocumentKey, EmbeddingQueue
from portico.ports.runtime import Clock, Entropy

PATIENCE_S: Final = 2.0
"""Seconds in which a document that is stored, or a query, has to be embedded."""
LEASE_S: Final = 300.0
"""Seconds for which one replica embeds a document."""
FIRST_RETRY_S: Final = 15.0
LAST_RETRY_S: Final = 3_600.0
_MAX_FAILURES: Final = 16
_CLAIMED: Final = 4


class DocumentEmbedder:
    """Embedder of documents that are stored."""

    def __init__(self, queue: EmbeddingQueue, embedder: Embedder, clock: Clock, entropy: Entropy) -> None:
        self._queue = queue
        self._embedder = embedder
        self._clock = clock
        self._entropy = entropy

    async def embed(self, key: DocumentKey, principal: Principal, seconds: float, failures: int = 0) -> bool:
        """Embed the document within that time, or let it be due again later. Raises: StorageFailure."""
        texts = await self._queue.texts(key)
        if not texts:
            return False
        vectors = None
        with anyio.move_on_after(seconds):
            try:
                vectors = (await self._embedder.embed(texts, principal)).vectors
            except EmbeddingError:
                vectors = None
        if vectors and await self._queue.finish(key, self._embedder.space, vectors, self._entropy.uuid7()):
            return True
        wait = min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(failures, _MAX_FAILURES))
        await self._queue.postpone(key, until=self._clock.now() + wait, failures=failures + 1)
        return False

    async def embed_due(self) -> None:
        """Embed documents that are due, a few at a time, until there are none. Raises: StorageFailure."""
        while True:
            now = self._clock.now()
            due = await self._queue.claim(now=now, until=now + LEASE_S, limit=_CLAIMED)
            if not due:
                return
            for each in due:
                principal = Principal(each.key.tenant, each.key.user, each.key_id)
                await self.embed(each.key, principal, LEASE_S / (2 * _CLAIMED), each.failures)
