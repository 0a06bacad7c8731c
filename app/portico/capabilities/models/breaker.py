"""Health of the configured engines: their circuit breakers and the retry budget."""

from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NewType

from portico.domain.model_call import RULES, FailureAction, Reply
from portico.domain.value import value
from portico.ports.model import EngineError
from portico.ports.runtime import Clock

BreakerPeriod = NewType("BreakerPeriod", int)
"""Number of a period of a breaker, from 1: the next one begins whenever it opens or closes."""


@value
class FailoverPolicy:
    """The `[failover]` settings, with times in seconds and the retry budget as a share of the attempts."""

    max_retries: int
    retry_after_cap: float
    breaker_failures: int
    breaker_window: float
    breaker_cooldown: float
    retry_budget: float
    retry_floor: int


class BreakerState(StrEnum):
    """The state of a breaker: `half_open` lets one probe through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """The circuit breaker of one provider.

    It opens when at least `breaker_failures` attempts within `breaker_window` failed and they are more than half of the
    attempts there; after `breaker_cooldown` one probe is let through, and its success closes the breaker. With
    `breaker_failures` 0 it never opens. Only an attempt that began in the current period counts: one from before can
    neither end a probe nor decide about the breaker.
    """

    def __init__(self, policy: FailoverPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._attempts: deque[tuple[float, bool]] = deque()
        self._failed = 0
        self._opened_at: float | None = None
        self._probing = False
        self._period = BreakerPeriod(1)

    @property
    def state(self) -> BreakerState:
        """Return the state that a new attempt would meet."""
        if self._opened_at is None:
            return BreakerState.CLOSED
        if self._clock.monotonic() - self._opened_at < self._policy.breaker_cooldown:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    @property
    def seconds_open(self) -> float | None:
        """Return the time since it last opened; None while it is closed."""
        return None if self._opened_at is None else self._clock.monotonic() - self._opened_at

    @property
    def seconds_until_probe(self) -> float:
        """Return the time until an attempt is let through; 0 if one is now, or while a probe is under way."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._policy.breaker_cooldown - self._clock.monotonic())

    @property
    def allows_attempt(self) -> bool:
        """Return True if an attempt may begin."""
        return self._opened_at is None or (self.state is BreakerState.HALF_OPEN and not self._probing)

    def try_begin(self) -> BreakerPeriod | None:
        """Begin an attempt, the one probe if half open, and return its period; None if none may begin."""
        if self._opened_at is not None and not self.allows_attempt:
            return None
        self._probing = self._opened_at is not None
        return self._period

    def end_without_result(self, period: BreakerPeriod) -> None:
        """End an attempt without a result: refused, cancelled or out of time."""
        if period == self._period:
            self._probing = False

    def record_success(self, period: BreakerPeriod) -> None:
        """Record a successful attempt; a probe closes the breaker."""
        if period != self._period:
            return
        if self._probing:
            self._begin_period(opened_at=None)
        self._record(failed=False)

    def record_failure(self, period: BreakerPeriod, *, trip: bool) -> None:
        """Record a failed attempt; `trip` opens the breaker at once, and so does a failed probe."""
        if period != self._period:
            return
        self._record(failed=True)
        enough = self._failed >= self._policy.breaker_failures and self._failed * 2 > len(self._attempts)
        if self._policy.breaker_failures and (trip or self._probing or enough):
            self._begin_period(opened_at=self._clock.monotonic())

    def _begin_period(self, *, opened_at: float | None) -> None:
        self._period = BreakerPeriod(self._period + 1)
        self._opened_at = opened_at
        self._probing = False
        self._attempts.clear()
        self._failed = 0

    def _record(self, *, failed: bool) -> None:
        now = self._clock.monotonic()
        self._attempts.append((now, failed))
        self._failed += failed
        while self._attempts[0][0] <= now - self._policy.breaker_window:
            self._failed -= self._attempts.popleft()[1]


_BUDGET_WINDOW_S = 10.0
_BACKOFF_BASE_S = 0.5
_BACKOFF_CAP_S = 8.0
_JITTER_ON_RETRY_AFTER_S = 0.25


class RetryBudget:
    """Limit of the retries of the last 10 s: the share `retry_budget` of the attempts, but at least `retry_floor`."""

    def __init__(self, policy: FailoverPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._seconds: deque[list[int]] = deque()

    def record_attempt(self) -> None:
        """Record an attempt."""
        self._current()[1] += 1

    def try_take(self) -> bool:
        """Take one retry if the budget allows it."""
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


class ProviderHealth:
    """Breakers and retry budget of all providers, shared by every execution of this process."""

    def __init__(self, policy: FailoverPolicy, clock: Clock, providers: Sequence[str]) -> None:
        self.policy = policy
        self.breakers: Mapping[str, CircuitBreaker] = {name: CircuitBreaker(policy, clock) for name in providers}
        self._budget = RetryBudget(policy, clock)

    def begin_attempt(self, provider: str) -> BreakerPeriod | None:
        """Begin an attempt and return the breaker's period, which ends it; None while the breaker is open."""
        period = self.breakers[provider].try_begin()
        if period is not None:
            self._budget.record_attempt()
        return period

    def end_attempt(self, provider: str, period: BreakerPeriod, answer: Reply | EngineError | None) -> None:
        """Update the breaker with the end of the attempt; a cancelled one, None, says nothing about the provider."""
        breaker = self.breakers[provider]
        if isinstance(answer, Reply):
            breaker.record_success(period)
        elif answer is not None and RULES[answer.reason].counts_as_failure:
            breaker.record_failure(period, trip=RULES[answer.reason].opens_breaker)
        else:
            breaker.end_without_result(period)

    def retry_delay(
        self, provider: str, fault: EngineError, *, spent: int, seconds_left: float, jitter: float
    ) -> float | None:
        """Return the seconds to wait before a retry of this provider; None if it is to be left.

        `spent` are retries spent on it, `jitter` is in [0, 1). Retry-After is never shortened: above the cap or the
        deadline there is no retry, nor if this failure has opened the breaker. The budget is charged only if the
        wait is granted.
        """
        if spent >= self.policy.max_retries or not self.breakers[provider].allows_attempt:
            return None
        wait = self._wait(RULES[fault.reason].action, fault.retry_after, spent, jitter)
        if wait is None or wait >= seconds_left or not self._budget.try_take():
            return None
        return wait

    def _wait(self, handling: FailureAction, retry_after: float | None, spent: int, jitter: float) -> float | None:
        if handling is FailureAction.RETRY_IMMEDIATELY:
            return 0.0
        if handling is not FailureAction.RETRY:
            return None
        if retry_after is None:
            return jitter * min(_BACKOFF_CAP_S, _BACKOFF_BASE_S * float(2**spent))
        if retry_after > self.policy.retry_after_cap:
            return None
        return retry_after + jitter * _JITTER_ON_RETRY_AFTER_S
