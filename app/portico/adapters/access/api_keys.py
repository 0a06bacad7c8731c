"""Authentication by API key.

Theory of operation

1. A key that was found and whose secret matched is in memory, at most `CACHE_SIZE` of them. What was not found is never
   remembered, so a new key works at once.
2. A result is used for `MAX_AGE_S`, counted from the moment at which the database was asked. So every replica honours
   a revocation within that time, and answers 503 once it has had no database for as long.
3. `refresh`, which is called every second, reads the keys again that are in use, so that no request waits for it; and
   it stores when keys were used last, at most once per `USE_INTERVAL_S`.
4. The secret of an unknown key is compared with a dummy: an unknown id and a wrong secret take the same work.
"""

from hmac import compare_digest
from typing import Final, NamedTuple

from portico.adapters.access.bootstrap_key import BootstrapKey
from portico.adapters.access.refusals import unauthenticated
from portico.domain.access.api_key import ApiKey
from portico.domain.access.principal import Principal
from portico.domain.ids import KeyId
from portico.ports.access import KeyStore, StoredKey
from portico.ports.runtime import Clock

CACHE_SIZE: Final = 10_000
MAX_AGE_S: Final = 5.0
REFRESH_AGE_S: Final = 2.0
REFRESH_INTERVAL_S: Final = 1.0
USE_INTERVAL_S: Final = 60.0
_DUMMY_HASH: Final = "0" * 64
_INVALID: Final = "the key is unknown, revoked or expired"


class _CachedKey(NamedTuple):
    """A key as it was stored at `read_at`, a monotonic time."""

    key: StoredKey
    principal: Principal
    read_at: float


class ApiKeys:
    """Authentication by the bootstrap key, if there is one, and by the stored keys."""

    def __init__(
        self, store: KeyStore, clock: Clock, bootstrap: BootstrapKey | None = None, *, cache_size: int = CACHE_SIZE
    ) -> None:
        self._store = store
        self._clock = clock
        self._bootstrap = bootstrap
        self._cache_size = cache_size
        self._cache: dict[KeyId, _CachedKey] = {}
        self._used: dict[KeyId, float] = {}
        self._marked: dict[KeyId, float] = {}

    async def authenticate(self, key: ApiKey) -> Principal:
        """Return the caller that the key stands for. Raises: AccessFailure (ACCESS_UNAUTHENTICATED); StorageFailure."""
        secret_hash = key.secret_hash
        if self._bootstrap is not None:
            principal = self._bootstrap.principal(key.key_id, secret_hash)
            if principal is not None:
                return principal
        asked_at = self._clock.monotonic()
        cached = await self._recent(key.key_id, asked_at)
        matches = compare_digest(_DUMMY_HASH if cached is None else cached.key.secret_hash, secret_hash)
        if cached is None or not matches or not cached.key.is_valid(self._clock.now()):
            raise unauthenticated(_INVALID)
        if cached.read_at == asked_at:
            self._remember(cached)
        return cached.principal

    async def confirm(self, key_id: KeyId) -> Principal:
        """Return the caller that the key stands for in the database now. Raises: as `authenticate`."""
        if self._bootstrap is not None and (principal := self._bootstrap.holder(key_id)) is not None:
            return principal
        found = await self._store.find((key_id,))
        if not found or not found[0].is_valid(self._clock.now()):
            raise unauthenticated(_INVALID)
        return found[0].principal

    async def is_current(self, key_id: KeyId) -> bool:
        """Return whether a key that was authenticated before is still valid. Raises: StorageFailure."""
        if self._bootstrap is not None and self._bootstrap.holder(key_id) is not None:
            return True
        cached = await self._recent(key_id, self._clock.monotonic())
        return cached is not None and cached.key.is_valid(self._clock.now())

    async def _recent(self, key_id: KeyId, asked_at: float) -> _CachedKey | None:
        """Return the key as it was stored at most `MAX_AGE_S` ago; None if there is none. Raises: StorageFailure."""
        self._used[key_id] = self._clock.now()
        cached = self._cache.get(key_id)
        if cached is not None and asked_at - cached.read_at < MAX_AGE_S:
            return cached
        found = await self._store.find((key_id,))
        return _CachedKey(found[0], found[0].principal, asked_at) if found else None

    async def refresh(self) -> None:
        """Read the keys again that were used since they were read, and store the times of use. Raises: StorageFailure.

        Keys that are not in use are forgotten when their results are too old to be used.
        """
        asked_at = self._clock.monotonic()
        used, self._used = self._used, {}
        aged = [each for each in self._cache.values() if asked_at - each.read_at >= REFRESH_AGE_S]
        in_use = {each.key.key_id for each in aged if each.key.key_id in used}
        for each in aged:
            if each.key.key_id not in in_use and asked_at - each.read_at >= MAX_AGE_S:
                self._cache.pop(each.key.key_id, None)
        if in_use:
            found = {key.key_id: key for key in await self._store.find(in_use)}
            for key_id in in_use:
                self._cache.pop(key_id, None)
                if key_id in found:
                    self._remember(_CachedKey(found[key_id], found[key_id].principal, asked_at))
        await self._mark_used(used)

    async def _mark_used(self, used: dict[KeyId, float]) -> None:
        """Store the times of use, of each key at most once per interval."""
        due = {key_id: at for key_id, at in used.items() if at - self._marked.get(key_id, 0.0) >= USE_INTERVAL_S}
        if due:
            await self._store.mark_used(due, interval=USE_INTERVAL_S)
            self._marked = {key_id: at for key_id, at in self._marked.items() if key_id in self._cache} | due

    def _remember(self, cached: _CachedKey) -> None:
        """Put the key behind all others; beyond the size of the cache, the one that was read first is forgotten."""
        self._cache.pop(cached.key.key_id, None)
        self._cache[cached.key.key_id] = cached
        if len(self._cache) > self._cache_size:
            del self._cache[next(iter(self._cache))]
