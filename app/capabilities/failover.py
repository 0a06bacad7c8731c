"""FailoverDecide: drives the fallback machine over the attempts of one inference.

Theory of operation

1. What happened to an attempt is a `Reason`; `RULES` says, reason by reason, what the machine is told, which code a
   client sees, and what the provider's breaker learns. Nothing else in the service decides about providers.
2. `decide` is deterministic: it sees outcomes only. Whether a retry is granted, and after how long, was settled when
   the attempt failed, by `Attempts.grant`, and is part of its outcome.
3. Breakers and the retry budget are shared by all executions of this process; they are asked when an attempt begins
   and told when it ends, never from `decide`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from app.domain.effects import AttemptFailed, Candidate, Offered, Reason, Replied, Reply
from app.domain.events import FallbackTransition
from app.domain.failures import Code, Failure, InferenceFailure, failure
from app.domain.fallback import Event, FallbackFsm, State
from app.ports import Clock, EngineFault


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


class Handling(StrEnum):
    """What follows a failed attempt."""

    RETRY = "retry"
    RETRY_AT_ONCE = "retry_at_once"
    LEAVE = "leave"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class Rule:
    """What one reason means. `counts` says whether the breaker learns of it, `trips` whether it opens at once."""

    handling: Handling
    code: Code
    condition: str | None = None
    counts: bool = True
    trips: bool = False


_H, _C, _R = Handling, Code, Reason
# fmt: off
RULES: Mapping[Reason, Rule] = MappingProxyType({
    _R.RATE_LIMITED:     Rule(_H.RETRY, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.OVERLOADED:       Rule(_H.RETRY, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.SERVER_ERROR:     Rule(_H.RETRY, _C.INFERENCE_ENGINE_ERROR, "transport"),
    _R.BROKEN:           Rule(_H.RETRY, _C.INFERENCE_ENGINE_ERROR, "transport"),
    _R.MALFORMED:        Rule(_H.RETRY, _C.INFERENCE_MALFORMED_RESPONSE),
    _R.TIMED_OUT:        Rule(_H.RETRY_AT_ONCE, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.UNREACHABLE:      Rule(_H.LEAVE, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.TLS:              Rule(_H.LEAVE, _C.INFERENCE_ENGINE_ERROR, "transport"),
    _R.CREDENTIALS:      Rule(_H.LEAVE, _C.INFERENCE_ENGINE_ERROR, "refused"),
    _R.QUOTA:            Rule(_H.LEAVE, _C.INFERENCE_MODEL_UNAVAILABLE, trips=True),
    _R.MODEL_MISSING:    Rule(_H.LEAVE, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.BREAKER_OPEN:     Rule(_H.LEAVE, _C.INFERENCE_MODEL_UNAVAILABLE, counts=False),
    _R.CONTEXT_EXCEEDED: Rule(_H.FATAL, _C.INFERENCE_CONTEXT_EXCEEDED, counts=False),
    _R.REFUSED:          Rule(_H.FATAL, _C.INFERENCE_ENGINE_ERROR, "refused", counts=False),
    _R.CONTENT_FILTERED: Rule(_H.FATAL, _C.INFERENCE_CONTENT_FILTERED, counts=False),
    _R.OVER_BUDGET:      Rule(_H.FATAL, _C.ORCHESTRATION_BUDGET_EXCEEDED, counts=False),
})
# fmt: on


class BreakerState(StrEnum):
    """Whether a provider is tried: `half_open` lets one probe through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
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
    def seconds_closed(self) -> float:
        """How long until an attempt is let through again; 0 when one is now, or when a probe is out."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._policy.breaker_cooldown - self._clock.monotonic())

    @property
    def admits(self) -> bool:
        """Whether an attempt may begin."""
        return self._opened_at is None or (self.state is BreakerState.HALF_OPEN and not self._probing)

    def enter(self) -> bool:
        """Begins an attempt, the one probe when half open; False when none may begin."""
        if not self.admits:
            return False
        self._probing = self._opened_at is not None
        return True

    def leave(self) -> None:
        """The attempt ended without a verdict: refused, cancelled or out of time."""
        self._probing = False

    def succeeded(self) -> None:
        """The attempt succeeded; a probe closes the breaker."""
        if self._probing:
            self._probing, self._opened_at = False, None
            self._past.clear()
            self._failed = 0
        self._remember(failed=False)

    def failed(self, *, trip: bool) -> None:
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

    def attempted(self) -> None:
        """Counts an attempt."""
        self._current()[1] += 1

    def grant(self) -> bool:
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


_BACKOFF_BASE_S = 0.5
_BACKOFF_CAP_S = 8.0
_JITTER_ON_RETRY_AFTER_S = 0.25


class ProviderHealth:
    """Breakers and retry budget of all providers, shared by every execution of this process."""

    def __init__(self, policy: FailoverPolicy, clock: Clock, providers: Sequence[str]) -> None:
        self.policy = policy
        self.breakers: Mapping[str, Breaker] = {name: Breaker(policy, clock) for name in providers}
        self._budget = RetryBudget(policy, clock)

    def enter(self, provider: str) -> bool:
        """Begins an attempt; False while the breaker is open."""
        if not self.breakers[provider].enter():
            return False
        self._budget.attempted()
        return True

    def leave(self, provider: str, answer: Reply | EngineFault | None) -> None:
        """Tells the breaker how the attempt ended; None when it was cut off, which says nothing of the provider."""
        breaker = self.breakers[provider]
        if isinstance(answer, Reply):
            breaker.succeeded()
        elif answer is not None and RULES[answer.reason].counts:
            breaker.failed(trip=RULES[answer.reason].trips)
        else:
            breaker.leave()

    def grant(
        self, provider: str, fault: EngineFault, *, spent: int, seconds_left: float, jitter: float
    ) -> float | None:
        """Seconds to wait before this provider is tried again; None when it is to be left.

        `spent` are retries spent on it, `jitter` is in [0, 1). Retry-After is never shortened: above the cap or the
        deadline there is no retry, nor where this very failure has opened the breaker. Nothing is taken from the
        budget unless the wait is granted.
        """
        if spent >= self.policy.max_retries or not self.breakers[provider].admits:
            return None
        wait = self._wait(RULES[fault.reason].handling, fault.retry_after, spent, jitter)
        if wait is None or wait >= seconds_left or not self._budget.grant():
            return None
        return wait

    def _wait(self, handling: Handling, retry_after: float | None, spent: int, jitter: float) -> float | None:
        if handling is Handling.RETRY_AT_ONCE:
            return 0.0
        if handling is not Handling.RETRY:
            return None
        if retry_after is None:
            return jitter * min(_BACKOFF_CAP_S, _BACKOFF_BASE_S * float(2**spent))
        if retry_after > self.policy.retry_after_cap:
            return None
        return retry_after + jitter * _JITTER_ON_RETRY_AFTER_S


class Attempts(Protocol):
    """What `decide` needs of the door: one attempt, one wait, and to be heard."""

    async def attempt(self, candidate: Candidate, number: int, fsm: FallbackFsm) -> Replied | AttemptFailed: ...

    async def wait(self, number: int, seconds: float, fsm: FallbackFsm) -> None: ...

    def retract(self, number: int) -> None: ...

    def moved(self, transition: FallbackTransition) -> None: ...

    def segment(self, number: int) -> str: ...


class _Walk:
    """The machine with its narration: every state change becomes an event."""

    def __init__(self, door: Attempts, candidates: Sequence[Candidate], max_retries: int) -> None:
        self.fsm = FallbackFsm(len(candidates), max_retries)
        self.number = -1
        self.candidate: Candidate | None = None
        self._door = door
        self._left = iter(candidates)

    def fire(self, event: Event, reason: str) -> State:
        before = self.fsm.state
        after = self.fsm.fire(event)
        if after is State.ATTEMPTING:
            self.number += 1
            if before is State.SELECTING:
                self.candidate = next(self._left)
        self._door.moved(self.transition(before, event, reason))
        return after

    def transition(self, before: State, event: Event, reason: str) -> FallbackTransition:
        return transition(
            self.fsm, before, event, reason,
            candidate=None if self.fsm.state is State.EXHAUSTED else self.candidate,
            segment=None if self.number < 0 else self._door.segment(self.number),
        )  # fmt: skip


def transition(
    fsm: FallbackFsm, before: State, event: Event, reason: str, *, candidate: Candidate | None, segment: str | None
) -> FallbackTransition:
    """The machine's last move as an event."""
    return FallbackTransition(
        from_state=before,
        to_state=fsm.state,
        fsm_event=event,
        provider=candidate.provider if candidate else None,
        model=candidate.model if candidate else None,
        retry_count=fsm.retries_spent,
        reason=reason,
        segment=segment,
    )


async def decide(door: Attempts, offered: Offered, max_retries: int) -> tuple[Candidate, Replied]:
    """Who answered, and what.

    Raises: InferenceFailure when the request is at fault, or when every candidate failed; OrchestrationFailure
    (ORCHESTRATION_BUDGET_EXCEEDED) when an attempt was refused by the budget.
    """
    walk = _Walk(door, offered.candidates, max_retries)
    walk.fire(Event.START, "started")
    failed: list[tuple[Candidate, AttemptFailed]] = []
    while walk.fire(Event.PROVIDER_SUCCESS, "selected") is State.ATTEMPTING:
        assert walk.candidate is not None  # noqa: S101 - ATTEMPTING is entered with a candidate only
        outcome = await _try(walk, door)
        if isinstance(outcome, Replied):
            return walk.candidate, outcome
        failed.append((walk.candidate, outcome))
    raise exhausted(failed, offered)


async def _try(walk: _Walk, door: Attempts) -> Replied | AttemptFailed:
    """All attempts on the candidate that was selected; the last one's outcome, with the machine back in SELECTING."""
    candidate = walk.candidate
    assert candidate is not None  # noqa: S101 - see decide
    while True:
        outcome = await door.attempt(candidate, walk.number, walk.fsm)
        if isinstance(outcome, Replied):
            walk.fire(Event.PROVIDER_SUCCESS, "answered")
            return outcome
        rule = RULES[outcome.reason]
        if rule.handling is Handling.FATAL:
            walk.fire(Event.FATAL_ERROR, outcome.reason)
            raise _refused(candidate, outcome)
        if await _move_on(walk, door, outcome, rule.handling) is State.SELECTING:
            if outcome.streamed and walk.fsm.candidates_left:
                door.retract(walk.number)
            return outcome
        if outcome.streamed:
            door.retract(walk.number - 1)


async def _move_on(walk: _Walk, door: Attempts, outcome: AttemptFailed, handling: Handling) -> State:
    timed_out = handling is Handling.RETRY_AT_ONCE
    walk.fire(Event.TIMEOUT if timed_out else Event.RETRYABLE_ERROR, outcome.reason)
    if outcome.wait is None and (handling is Handling.LEAVE or walk.fsm.retry_left):
        return walk.fire(Event.TIMEOUT, "left")
    if outcome.wait:
        await door.wait(walk.number, outcome.wait, walk.fsm)
    return walk.fire(Event.RETRYABLE_ERROR, "retry" if walk.fsm.retry_left else "retries_spent")


def _refused(candidate: Candidate, outcome: AttemptFailed) -> Failure:
    rule = RULES[outcome.reason]
    details = {"provider": candidate.provider, "reason": outcome.reason.value, **outcome.details}
    return failure(rule.code, outcome.message, details=details, condition=rule.condition)


def exhausted(failed: Sequence[tuple[Candidate, AttemptFailed]], offered: Offered) -> InferenceFailure:
    """What a client is told when no candidate is left: the code that all last failures share, if they share one."""
    rules = [RULES[outcome.reason] for _, outcome in failed] + [RULES[Reason.BREAKER_OPEN]] * len(offered.left_out)
    codes = {rule.code for rule in rules}
    code = codes.pop() if len(codes) == 1 else Code.INFERENCE_MODEL_UNAVAILABLE
    conditions = {rule.condition for rule in rules}
    condition = None
    if code is Code.INFERENCE_ENGINE_ERROR:
        condition = "transport" if "transport" in conditions else "refused"
    attempts = [{"provider": each.provider, "reason": outcome.reason.value} for each, outcome in failed]
    attempts += [{"provider": each.provider, "reason": Reason.BREAKER_OPEN.value} for each in offered.left_out]
    raised = InferenceFailure(code, "no provider answered", {"attempts": attempts}, condition)
    waits = [outcome.retry_after for _, outcome in failed if outcome.retry_after is not None]
    if offered.left_out:
        waits.append(offered.closed_for)
    raised.retry_after = min(waits, default=None)
    return raised
