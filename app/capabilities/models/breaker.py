"""Circuit breakers and retry budgets of the configured engines."""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from app.ports.runtime import Clock


@dataclass(frozen=True, slots=True)
class FailoverPolicy:
    """The `[failover]` settings this capability needs. Times in seconds, the budget as a share."""

    max_retries: int
    retry_after_cap: float
    breaker_failures: int
    breaker_window: float
    breaker_cooldown: float
    retry_budget: float
    retry_floor: int


class BreakerState(StrEnum):
    """Whether a provider is tried: `half_open` lets one probe through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """One provider's recent past.

    Opens when at least `breaker_failures` attempts within `breaker_window` failed and they are more than half of the
    attempts there; after `breaker_cooldown` one probe is let through, and its success closes it. With
    `breaker_failures` 0 it never opens.
    """

    def __init__(self, policy: FailoverPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._past: deque[tuple[float, bool]] = deque()
        self._failed = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """What a new attempt would meet."""
        if self._opened_at is None:
            return BreakerState.CLOSED
        if self._clock.monotonic() - self._opened_at < self._policy.breaker_cooldown:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    @property
    def seconds_until_probe(self) -> float:
        """How long until an attempt is let through again; 0 when one is now, or when a probe is out."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._policy.breaker_cooldown - self._clock.monotonic())

    @property
    def allows_attempt(self) -> bool:
        """Whether an attempt may begin."""
        return self._opened_at is None or (self.state is BreakerState.HALF_OPEN and not self._probing)

    def try_begin(self) -> bool:
        """Begins an attempt, the one probe when half open; False when none may begin."""
        if not self.allows_attempt:
            return False
        self._probing = self._opened_at is not None
        return True

    def end_without_result(self) -> None:
        """The attempt ended without a verdict: refused, cancelled or out of time."""
        self._probing = False

    def record_success(self) -> None:
        """The attempt succeeded; a probe closes the breaker."""
        if self._probing:
            self._probing, self._opened_at = False, None
            self._past.clear()
            self._failed = 0
        self._remember(failed=False)

    def record_failure(self, *, trip: bool) -> None:
        """The attempt failed; `trip` opens the breaker at once, and so does a failed probe."""
        self._remember(failed=True)
        enough = self._failed >= self._policy.breaker_failures and self._failed * 2 > len(self._past)
        if self._policy.breaker_failures and (trip or self._probing or (self._opened_at is None and enough)):
            self._opened_at = self._clock.monotonic()
        self._probing = False

    def _remember(self, *, failed: bool) -> None:
        now = self._clock.monotonic()
        self._past.append((now, failed))
        self._failed += failed
        while self._past[0][0] <= now - self._policy.breaker_window:
            self._failed -= self._past.popleft()[1]


_BUDGET_WINDOW_S = 10.0


class RetryBudget:
    """Keeps the retries of the last 10 s at `retry_budget` of the attempts; `retry_floor` are always granted."""

    def __init__(self, policy: FailoverPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._seconds: deque[list[int]] = deque()

    def record_attempt(self) -> None:
        """Counts an attempt."""
        self._current()[1] += 1

    def try_take(self) -> bool:
        """Takes one retry, if it is to be had."""
        current = self._current()
        attempts = sum(second[1] for second in self._seconds)
        retries = sum(second[2] for second in self._seconds)
        granted = retries < max(self._policy.retry_floor, self._policy.retry_budget * attempts)
        current[2] += granted
        return granted

    def _current(self) -> list[int]:
        now = int(self._clock.monotonic())
        while self._seconds and self._seconds[0][0] <= now - _BUDGET_WINDOW_S:
            self._seconds.popleft()
        if not self._seconds or self._seconds[-1][0] != now:
            self._seconds.append([now, 0, 0])
        return self._seconds[-1]
