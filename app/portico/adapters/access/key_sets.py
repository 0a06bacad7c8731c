"""Key set of an issuer: fetched in the background, cached, and used for a day while the issuer does not answer.

Theory of operation

1. `run` is the only one that fetches, so there is one fetch at a time. It fetches at start, and then when the set is
   `FRESH_S` old. After a failure it tries again, after 1, 2, 4 … `RETRY_S` seconds.
2. A token that names an unknown key asks for a fetch and waits for it, at most once per `RETRY_S`: the issuer may have
   a new key. In between, such a token is refused at once, so that a flood of them reaches no issuer.
3. A set that could not be fetched again is used until it is `STALE_S` old. Without a usable set no token can be
   verified or refused, and the answer is 503.
"""

from collections.abc import Awaitable, Callable, Collection
from math import inf
from typing import Final

import anyio

from portico.adapters.access.refusals import unauthenticated
from portico.adapters.access.verification_key import KeySetError, VerificationKey, read_key_set
from portico.domain.failures import AccessFailure, Code
from portico.ports.runtime import Clock

FRESH_S: Final = 600.0
RETRY_S: Final = 30.0
FIRST_RETRY_S: Final = 5.0
"""The longest delay before the next fetch while there is no usable set."""
STALE_S: Final = 86_400.0
WAIT_S: Final = 6.0
"""The longest that a request waits for a fetch: longer than a fetch takes."""
_MAX_DOUBLINGS: Final = 10
_MAX_WAITS: Final = 2
"""Fetches that a request waits for: one that was under way may have begun before the issuer had a new key."""
Fetch = Callable[[], Awaitable[bytes]]
"""Fetch of the key set. Raises: KeySetError."""


class KeySets:
    """Current key set of one issuer; `on_failure` gets the reason of the first of consecutive failures to fetch it."""

    def __init__(
        self, fetch: Fetch, algorithms: Collection[str], clock: Clock, on_failure: Callable[[str], None]
    ) -> None:
        self._fetch = fetch
        self._algorithms = frozenset(algorithms)
        self._clock = clock
        self._on_failure = on_failure
        self._keys: tuple[VerificationKey, ...] = ()
        self._fetched_at = -inf
        self._asked_at = -inf
        self._failures = 0
        self._is_pending = True
        self._wanted = anyio.Event()
        self._answered = anyio.Event()

    async def run(self) -> None:
        """Fetch the set whenever it is due or asked for, until cancelled."""
        while True:
            self._wanted, self._is_pending = anyio.Event(), True
            await self._update()
            self._is_pending = False
            self._answered.set()
            self._answered = anyio.Event()
            with anyio.move_on_after(self._delay()):
                await self._wanted.wait()

    async def find(self, kid: str | None, algorithm: str) -> VerificationKey:
        """Return the key that a token names. Raises: AccessFailure (ACCESS_UNAUTHENTICATED, ACCESS_UNAVAILABLE)."""
        for _ in range(_MAX_WAITS):
            if (key := self._find(kid, algorithm)) is not None:
                return key
            if not self._is_pending and not self._may_ask():
                break
            await self._next_answer()
        if (key := self._find(kid, algorithm)) is not None:
            return key
        if not self._is_usable():
            message = "the keys of the issuer are not available; no token can be verified"
            raise AccessFailure(Code.ACCESS_UNAVAILABLE, message, retry_after=self._delay())
        raise unauthenticated("the token is signed with an unknown key")

    def _find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """Return the one key that fits; without a `kid` the set must have one key only."""
        if not self._is_usable():
            return None
        candidates = self._keys if kid is None else [key for key in self._keys if key.kid == kid]
        fitting = [key for key in candidates if key.algorithm == algorithm]
        return fitting[0] if len(fitting) == 1 and (kid is not None or len(self._keys) == 1) else None

    def _is_usable(self) -> bool:
        return bool(self._keys) and self._clock.monotonic() - self._fetched_at < STALE_S

    def _may_ask(self) -> bool:
        """Return True once per `RETRY_S`: then an unknown key is a reason to fetch."""
        now = self._clock.monotonic()
        if not self._is_usable() or now - self._asked_at < RETRY_S:
            return False
        self._asked_at = now
        return True

    async def _next_answer(self) -> None:
        """Have the set fetched, unless it is being fetched, and wait until that is done or takes too long."""
        answered = self._answered
        if not self._is_pending:
            self._is_pending = True
            self._wanted.set()
        with anyio.move_on_after(WAIT_S):
            await answered.wait()

    async def _update(self) -> None:
        began_at = self._clock.monotonic()
        try:
            self._keys = read_key_set(await self._fetch(), self._algorithms)
        except KeySetError as error:
            self._failures += 1
            if self._failures == 1:
                self._on_failure(str(error))
        else:
            self._failures, self._fetched_at = 0, began_at

    def _delay(self) -> float:
        """Return the seconds until the next fetch."""
        if not self._failures:
            return FRESH_S
        doubled = 2.0 ** min(self._failures - 1, _MAX_DOUBLINGS)
        return min(RETRY_S if self._is_usable() else FIRST_RETRY_S, doubled)
