"""Health of the configured engines: circuit breakers, deployments, and retry budgets.

`CONSEQUENCES` has what each failure of an attempt means for a deployment. The second denial in a row counts only if it
comes from another execution: what one request makes every deployment refuse must not take them from others. After a
rest for a refusal of the provider one attempt at a time is sent until one is answered.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NewType

from portico.capabilities.limits.caps import Caps
from portico.capabilities.models.deployments import (
    AVAILABLE,
    DeployedEngine,
    Deployment,
    DeploymentState,
    DeploymentStatus,
)
from portico.capabilities.models.room import Room
from portico.domain.ids import ExecutionId
from portico.domain.model_call import RULES, AttemptFailureReason, FailureAction, Reply
from portico.domain.value import value
from portico.ports.model import ConfiguredEngine, EngineError
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

    def has_failed_within(self, seconds: float) -> bool:
        """Return True if an attempt of the current period failed in the last seconds, at most the window."""
        since = self._clock.monotonic() - seconds
        return self._failed > 0 and any(failed and at > since for at, failed in self._attempts)

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


MOST_REST_S: Final = 300.0
QUOTA_REST_S: Final = 300.0
MOST_BACKOFF_S: Final = 60.0
MOST_HEADER_REST_S: Final = 60.0
"""Longest rest that the headers of a reply that succeeded can ask for."""
PROBE_INTERVAL_S: Final = 300.0
FORBIDDEN: Final = 403
KeyRefused = Callable[[str, str, AttemptFailureReason], None]
"""Receiver of the engine, the deployment and the reason when a credential is refused."""


class Consequence(StrEnum):
    """Meaning of a failed attempt for its deployment."""

    REST = "rests"
    FAILURE = "failure"
    DENIAL = "denied"
    NOTHING = "nothing"


_REST = (AttemptFailureReason.RATE_LIMITED, AttemptFailureReason.QUOTA)
_DENIAL = (AttemptFailureReason.CREDENTIALS, AttemptFailureReason.MODEL_MISSING)
CONSEQUENCES: Final[Mapping[AttemptFailureReason, Consequence]] = MappingProxyType(
    {
        reason: Consequence.REST
        if reason in _REST
        else Consequence.DENIAL
        if reason in _DENIAL
        else Consequence.FAILURE
        if rule.counts_as_failure
        else Consequence.NOTHING
        for reason, rule in RULES.items()
    }
)


@value
class DeploymentAttempt:
    """An attempt that runs: the period of the breaker in which it began, and the credential of then."""

    health: "DeploymentHealth"
    period: BreakerPeriod
    credential: object


@dataclass(slots=True)
class _Refusal:
    """The credential that was refused, and when one attempt may try it again."""

    credential: object
    reason: AttemptFailureReason
    probe_at: float
    probe: DeploymentAttempt | None = None


class DeploymentHealth:
    """Knowledge of this process about one deployment. Times are those of the monotonic clock."""

    def __init__(self, policy: FailoverPolicy, clock: Clock, deployment: Deployment, on_refused: KeyRefused) -> None:
        self.deployment = deployment
        self.address = deployment.address
        self.breaker = CircuitBreaker(policy, clock)
        self.running = 0
        """Attempts that run now."""
        self.is_well = True
        """True while nothing has to be looked at: no rest, no failure and no refusal."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when an attempt has ended."""
        deployment.limits.on_used_up = self._rest_for_reset
        self._clock = clock
        self._on_refused = on_refused
        self._rest = 0.0, AttemptFailureReason.RATE_LIMITED
        """When its last rest ends, and the reason of that."""
        self._rate_limits = 0
        """Refusals for a rate since the last answer, those during a rest not counted."""
        self._refusal: _Refusal | None = None
        self._denied_to: ExecutionId | None = None
        """The execution that was denied last, if nothing was answered since."""

    def status(self) -> DeploymentStatus:
        """Return its state now."""
        now, refusal = self._clock.monotonic(), self._current_refusal()
        if refusal is not None:
            return DeploymentStatus(DeploymentState.REFUSED, max(0.0, refusal.probe_at - now), refusal.reason)
        if self.breaker.seconds_open is not None:
            return DeploymentStatus(
                DeploymentState.EJECTED, self.breaker.seconds_until_probe, AttemptFailureReason.BREAKER_OPEN
            )
        until, reason = self._rest
        if now < until:
            return DeploymentStatus(DeploymentState.RESTING, until - now, reason)
        return AVAILABLE

    def seconds_left_out(self) -> float | None:
        """Return after how many seconds an attempt may begin that may not now; None if one may, perhaps after a rest.

        A breaker whose probe is under way answers 0.
        """
        refusal = self._current_refusal()
        if refusal is not None:
            seconds = refusal.probe_at - self._clock.monotonic()
            return seconds if seconds > 0 else None
        return None if self.breaker.allows_attempt else self.breaker.seconds_until_probe

    def seconds_until_free(self) -> float:
        """Return for how many seconds it rests; while the first attempt after a rest runs, until that ends: 1."""
        rest = self._rest[0] - self._clock.monotonic()
        if rest > 0:
            return rest
        is_closed = self._refusal is None and self.breaker.seconds_open is None
        self.is_well = is_closed and not self._rate_limits
        return 1.0 if self._rate_limits and self.running else 0.0

    def try_begin(self) -> DeploymentAttempt | None:
        """Begin an attempt; None if none may begin."""
        if not self.is_well and self.seconds_left_out() is not None:
            return None
        period = self.breaker.try_begin()
        if period is None:
            return None
        self.running += 1
        begun = DeploymentAttempt(self, period, self.deployment.credential())
        if self._refusal is not None:
            self._refusal.probe, self._refusal.probe_at = begun, self._clock.monotonic() + PROBE_INTERVAL_S
        return begun

    def end(self, attempt: DeploymentAttempt, answer: Reply | EngineError | None, execution_id: ExecutionId) -> None:
        """Take the end of an attempt; a cancelled one, None, says nothing about the deployment."""
        self.running -= 1
        if isinstance(answer, Reply):
            self.breaker.record_success(attempt.period)
            self._accept(attempt)
            self._rate_limits = 0
        elif answer is not None and CONSEQUENCES[answer.reason] is Consequence.FAILURE:
            self.breaker.record_failure(attempt.period, trip=False)
            self.is_well = False
        else:
            self.breaker.end_without_result(attempt.period)
            if answer is not None:
                self._take_refusal(attempt, answer, execution_id)
        self.on_change()

    def rest(self, seconds: float, reason: AttemptFailureReason = AttemptFailureReason.RATE_LIMITED) -> None:
        """Rest for so many seconds, at most 300; an earlier end than that of the present rest changes nothing."""
        until = self._clock.monotonic() + min(seconds, MOST_REST_S)
        if until > self._rest[0]:
            self._rest, self.is_well = (until, reason), False

    def _rest_for_reset(self, seconds: float) -> None:
        self.rest(min(seconds, MOST_HEADER_REST_S))

    def _accept(self, attempt: DeploymentAttempt) -> None:
        """Take that the provider knows the credential of the attempt; one from before a refusal does not end it."""
        self._denied_to = None
        if self._refusal is not None and self._refusal.probe is attempt:
            self._refusal = None

    def _take_refusal(self, attempt: DeploymentAttempt, error: EngineError, execution_id: ExecutionId) -> None:
        if CONSEQUENCES[error.reason] is Consequence.DENIAL:
            is_certain = error.reason is AttemptFailureReason.CREDENTIALS and error.status != FORBIDDEN
            if is_certain or self._denied_to not in {None, execution_id}:
                self._refuse(attempt, error.reason)
            else:
                self._denied_to = execution_id
            return
        self._accept(attempt)
        if error.reason is AttemptFailureReason.QUOTA:
            self.rest(QUOTA_REST_S if error.retry_after is None else error.retry_after, error.reason)
        elif error.reason is AttemptFailureReason.RATE_LIMITED:
            self._rate_limits += self._rest[0] <= self._clock.monotonic()
            backoff = min(MOST_BACKOFF_S, float(2 ** min(self._rate_limits - 1, 6)))
            self.rest(backoff if error.retry_after is None else error.retry_after, error.reason)
            self.is_well = False

    def _refuse(self, attempt: DeploymentAttempt, reason: AttemptFailureReason) -> None:
        """Refuse the credential of the attempt, unless there is another one by now."""
        if attempt.credential != self.deployment.credential():
            return
        is_news = self._refusal is None
        self._refusal = _Refusal(attempt.credential, reason, self._clock.monotonic() + PROBE_INTERVAL_S)
        self.is_well = False
        if is_news:
            profile = self.deployment.engine.profile
            self._on_refused(profile.name, self.deployment.name, reason)

    def _current_refusal(self) -> _Refusal | None:
        """Return the refusal, unless the credential has changed since."""
        if self._refusal is not None and self._refusal.credential != self.deployment.credential():
            self._refusal = self._denied_to = None
        return self._refusal


_BUDGET_WINDOW_S = 10.0
_BACKOFF_BASE_S = 0.5
_BACKOFF_CAP_S = 8.0
_JITTER_ON_RETRY_AFTER_S = 0.25


class RetryBudget:
    """Limit of the attempts on one engine that follow the first of an inference, within the last 10 s.

    They are at most the share `retry_budget` of all attempts, but at least `retry_floor`.
    """

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


NO_CAPS: Final[Mapping[str, Caps]] = MappingProxyType({})


def ignore_refusal(_engine: str, _deployment: str, _reason: AttemptFailureReason) -> None:
    """Ignore that a key was refused."""


class ProviderHealth:
    """Breakers, deployments and retry budgets of all engines, shared by every execution of this process.

    An address is the name of an engine, or `ENGINE/DEPLOYMENT` where it has deployments. `caps` are those by address,
    and `on_refused` is called once for each key that a provider refuses.
    """

    def __init__(
        self,
        policy: FailoverPolicy,
        clock: Clock,
        engines: Mapping[str, ConfiguredEngine],
        caps: Mapping[str, Caps] = NO_CAPS,
        on_refused: KeyRefused = ignore_refusal,
    ) -> None:
        self.policy = policy
        self.deployments: dict[str, Sequence[DeploymentHealth]] = {}
        """The deployments by engine, in the order of the configuration."""
        self.breakers: dict[str, CircuitBreaker] = {}
        """The breakers of engines without deployments."""
        self.rooms: dict[str, Room] = {}
        """Where attempts wait, by address: on deployments, and on engines with caps."""
        self._budgets: dict[str, RetryBudget] = {}
        """The retry budget of the engine by address."""
        self._breakers: dict[str, CircuitBreaker] = {}
        """All breakers by address."""
        self._deployed: dict[str, DeploymentHealth] = {}
        for name, engine in engines.items():
            budget = RetryBudget(policy, clock)
            if isinstance(engine, DeployedEngine):
                members = [DeploymentHealth(policy, clock, each, on_refused) for each in engine.deployments]
                self.deployments[name] = members
                self._deployed |= {each.address: each for each in members}
                self._breakers |= {each.address: each.breaker for each in members}
                self.rooms |= {each.address: Room(clock, each, caps.get(each.address)) for each in members}
                self._budgets |= dict.fromkeys([each.address for each in members], budget)
            else:
                self.breakers[name] = self._breakers[name] = CircuitBreaker(policy, clock)
                self._budgets[name] = budget
                if name in caps:
                    self.rooms[name] = Room(clock, None, caps[name])

    def begin_attempt(self, address: str) -> BreakerPeriod | DeploymentAttempt | None:
        """Begin an attempt and return what ends it; None while the breaker is open or the key is refused."""
        deployment = self._deployed.get(address)
        begun = self._breakers[address].try_begin() if deployment is None else deployment.try_begin()
        if begun is not None:
            self._budgets[address].record_attempt()
        return begun

    def end_attempt(
        self,
        address: str,
        begun: BreakerPeriod | DeploymentAttempt,
        answer: Reply | EngineError | None,
        execution_id: ExecutionId,
    ) -> None:
        """Update the health with the end of the attempt; a cancelled one, None, says nothing about the provider."""
        if isinstance(begun, DeploymentAttempt):
            begun.health.end(begun, answer, execution_id)
            return
        breaker = self._breakers[address]
        if isinstance(answer, Reply):
            breaker.record_success(begun)
        elif answer is not None and RULES[answer.reason].counts_as_failure:
            breaker.record_failure(begun, trip=RULES[answer.reason].opens_breaker)
        else:
            breaker.end_without_result(begun)

    def may_follow(self, address: str, following: Sequence[str]) -> bool:
        """Take another attempt, at the deployments that are following, from the retry budget, if that allows one.

        While one of these is available and has not failed lately, nothing is taken: it gets one attempt of each
        inference as it would anyway. So those that meet a bad deployment at the same time, before it is known as bad,
        do not use the budget up. With a `retry_budget` of 0 the floor alone counts.
        """
        is_free = self.policy.retry_budget > 0 and any(map(self._is_proper, following))
        return is_free or self._budgets[address].try_take()

    def _is_proper(self, address: str) -> bool:
        deployment = self._deployed[address]
        return deployment.status() is AVAILABLE and not deployment.breaker.has_failed_within(_BUDGET_WINDOW_S)

    def retry_delay(
        self, address: str, fault: EngineError, *, spent: int, seconds_left: float, jitter: float
    ) -> float | None:
        """Return the seconds to wait before a retry of this provider; None if it is to be left.

        `spent` are retries spent on it, `jitter` is in [0, 1). Retry-After is never shortened: above the cap or the
        deadline there is no retry, nor if this failure has opened the breaker. The budget is charged only if the
        wait is granted.
        """
        if spent >= self.policy.max_retries or not self._breakers[address].allows_attempt:
            return None
        wait = self._wait(RULES[fault.reason].action, fault.retry_after, spent, jitter)
        if wait is None or wait >= seconds_left or not self._budgets[address].try_take():
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
