"""Embedders: hashed n-grams, which are built in, and a configured engine, which charges its caller.

An engine gets the texts in batches, each of which reserves its tokens and its cost from the limits of the caller before
it is sent. Vectors are only accepted if there is one of the same size for each text, and all numbers are finite.
"""

from array import array
from collections.abc import Sequence
from itertools import chain
from math import isfinite
from typing import Final, Protocol

from portico.capabilities.limits.quotas import Quotas, unpriced_failure
from portico.capabilities.limits.usage_meter import UsageMeter
from portico.domain.access.principal import Principal
from portico.domain.contract.response import TokenUsage
from portico.domain.failures import Failure
from portico.domain.memory import DEFAULT_DIMENSION, EmbeddingCharge
from portico.domain.token_prices import FREE
from portico.domain.value import value
from portico.ports.memory import EmbeddingEngine, Embeddings, VectorSpace
from portico.ports.model import EngineError
from portico.ports.runtime import Clock, ThreadPool

HASHED_NGRAMS: Final = "hashed_ngrams"
"""Name of the embedder that is built in."""
FLOAT_BYTES: Final = 4
_VERSION: Final = "1"
_BATCH: Final = 64
_LEAST_BYTES_PER_TOKEN: Final = 2
_BYTES_PER_TOKEN: Final = 4
"""Bytes of text that a token stands for: for a reservation, and where an engine does not count them."""


class EmbeddingError(Exception):
    """Failure to embed texts: the engine failed, the limits of the caller refuse it, or its vectors are unusable."""


@value
class EmbeddedTexts:
    """Vectors of texts in their order, and the charge for them, which the built-in embedder does not have."""

    vectors: Sequence[bytes]
    charge: EmbeddingCharge | None = None


class Embedder(Protocol):
    """Maker of vectors of texts."""

    @property
    def space(self) -> VectorSpace: ...

    async def embed(self, texts: Sequence[str], principal: Principal) -> EmbeddedTexts:
        """Return the vectors of the texts, which are charged to the principal. Raises: EmbeddingError."""
        ...


class HashedNgramEmbedder:
    """Embedder that needs no model."""

    def __init__(self, thread_pool: ThreadPool, dimension: int | None) -> None:
        self._dimension = dimension or DEFAULT_DIMENSION
        self._thread_pool = thread_pool
        self.space = VectorSpace(HASHED_NGRAMS, _VERSION, self._dimension)

    async def embed(self, texts: Sequence[str], principal: Principal) -> EmbeddedTexts:
        def make() -> list[bytes]:
            # numpy is imported when it is used first, by a thread, since it takes 0.1 s.
            from portico.capabilities.memory.hashed_ngrams import hashed_vectors  # noqa: PLC0415 - see above

            return hashed_vectors(texts, self._dimension)

        return EmbeddedTexts(await self._thread_pool.run(make))


@value
class EmbeddingAccounts:
    """The limits and the usage that embeddings are charged to."""

    quotas: Quotas
    usage: UsageMeter
    clock: Clock


class EngineEmbedder:
    """Embedder that asks a configured engine."""

    def __init__(self, engine: EmbeddingEngine, accounts: EmbeddingAccounts, dimension: int | None) -> None:
        profile = engine.profile
        self._engine = engine
        self._accounts = accounts
        self._prices = profile.price or FREE
        self.space = VectorSpace(profile.name, profile.model, dimension)

    async def embed(self, texts: Sequence[str], principal: Principal) -> EmbeddedTexts:
        try:
            return await self.charge_and_embed(texts, principal)
        except (EngineError, Failure) as cause:
            raise EmbeddingError(str(cause)) from cause

    async def charge_and_embed(self, texts: Sequence[str], principal: Principal) -> EmbeddedTexts:
        """Return the vectors of the texts, for a caller to whom the cause of a failure matters.

        Raises: EngineError; Failure of the limits; EmbeddingError for unusable vectors.
        """
        batches = [
            await self._embed_batch(texts[start : start + _BATCH], principal) for start in range(0, len(texts), _BATCH)
        ]
        vectors = list(chain.from_iterable(each.vectors for each in batches))
        if len({len(vector) for vector in vectors}) > 1:
            raise EmbeddingError("the vectors have different sizes")
        tokens, profile = sum(each.tokens for each in batches), self._engine.profile
        return EmbeddedTexts(vectors, EmbeddingCharge(profile.name, profile.model, tokens, self._cost(tokens)))

    async def _embed_batch(self, texts: Sequence[str], principal: Principal) -> Embeddings:
        """Return the vectors of some texts. Raises: EngineError; EmbeddingError; Failure of the limits."""
        quota = self._accounts.quotas.of(principal.tenant, principal.key_id, principal.limits)
        if quota is not None and quota.has_cost_limit and self._engine.profile.price is None:
            raise unpriced_failure()
        sent = [text.encode("utf-8", "replace").decode() for text in texts]
        size = sum(len(text.encode()) for text in sent)
        most = size // _LEAST_BYTES_PER_TOKEN + len(sent)
        reservation = None
        if quota is not None and quota.needs_reservation:
            reservation = await quota.reserve(most, self._cost(most))
        tokens = 0
        try:
            embeddings = await self._engine.embed(sent, self.space.dimension)
            tokens = embeddings.tokens or size // _BYTES_PER_TOKEN + len(sent)
        finally:
            if reservation is not None:
                reservation.settle(tokens, self._cost(tokens))
            if tokens:
                at = self._accounts.clock.now()
                self._accounts.usage.charge(principal, self._engine.profile.model, at, tokens, self._cost(tokens))
        _check(embeddings.vectors, len(sent))
        return Embeddings(embeddings.vectors, tokens)

    def _cost(self, tokens: int) -> float:
        return self._prices.cost_of(TokenUsage(input_tokens=tokens, output_tokens=0, total_tokens=tokens))


def _check(vectors: Sequence[bytes], count: int) -> None:
    """Raise EmbeddingError unless there are so many vectors, which are neither empty nor have endless numbers."""
    if len(vectors) != count:
        raise EmbeddingError(f"the engine gave {len(vectors)} vectors for {count} texts")
    for vector in vectors:
        if not vector or len(vector) % FLOAT_BYTES:
            raise EmbeddingError("a vector is empty")
        if not all(map(isfinite, array("f", vector))):
            raise EmbeddingError("a vector has a number that is not finite")
