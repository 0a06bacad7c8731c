"""FailoverDecide: drives the fallback machine over the attempts of one inference.

Theory of operation

1. What happened to an attempt is a `Reason`; `RULES` says, reason by reason, what the machine is told, which code a
   client sees, and what the provider's breaker learns. Nothing else in the service decides about providers.
2. `decide` is deterministic: it sees outcomes only. Whether a retry is granted, and after how long, was settled when
   the attempt failed, by `Attempts.grant`, and is part of its outcome.
3. Breakers and the retry budget are shared by all executions of this process; they are asked when an attempt begins
   and told when it ends, never from `decide`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from app.capabilities.models.breaker import CircuitBreaker, FailoverPolicy, RetryBudget
from app.domain.failures import Code, Failure, InferenceFailure, failure
from app.domain.fallback import Event, FallbackFsm, State
from app.domain.journal.events import FallbackTransition
from app.domain.journal.outcomes import AttemptFailed, AttemptSucceeded, Candidate, InferenceSetup
from app.domain.model_call import AttemptFailureReason, Reply
from app.ports.model import EngineError
from app.ports.runtime import Clock


class FailureAction(StrEnum):
    """What follows a failed attempt."""

    RETRY = "retry"
    RETRY_IMMEDIATELY = "retry_at_once"
    NEXT_PROVIDER = "leave"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """What one reason means. `counts` says whether the breaker learns of it, `trips` whether it opens at once."""

    action: FailureAction
    code: Code
    condition: str | None = None
    counts_as_failure: bool = True
    opens_breaker: bool = False


_H, _C, _R = FailureAction, Code, AttemptFailureReason
# fmt: off
RULES: Mapping[AttemptFailureReason, FailureRule] = MappingProxyType({
    _R.RATE_LIMITED:     FailureRule(_H.RETRY, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.OVERLOADED:       FailureRule(_H.RETRY, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.SERVER_ERROR:     FailureRule(_H.RETRY, _C.INFERENCE_ENGINE_ERROR, "transport"),
    _R.BROKEN:           FailureRule(_H.RETRY, _C.INFERENCE_ENGINE_ERROR, "transport"),
    _R.MALFORMED:        FailureRule(_H.RETRY, _C.INFERENCE_MALFORMED_RESPONSE),
    _R.TIMED_OUT:        FailureRule(_H.RETRY_IMMEDIATELY, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.UNREACHABLE:      FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.TLS:              FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_ENGINE_ERROR, "transport"),
    _R.CREDENTIALS:      FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_ENGINE_ERROR, "refused"),
    _R.QUOTA:            FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_MODEL_UNAVAILABLE, opens_breaker=True),
    _R.MODEL_MISSING:    FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.BREAKER_OPEN:     FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_MODEL_UNAVAILABLE, counts_as_failure=False),
    _R.CONTEXT_EXCEEDED: FailureRule(_H.FATAL, _C.INFERENCE_CONTEXT_EXCEEDED, counts_as_failure=False),
    _R.REFUSED:          FailureRule(_H.FATAL, _C.INFERENCE_ENGINE_ERROR, "refused", counts_as_failure=False),
    _R.CONTENT_FILTERED: FailureRule(_H.FATAL, _C.INFERENCE_CONTENT_FILTERED, counts_as_failure=False),
    _R.OVER_BUDGET:      FailureRule(_H.FATAL, _C.ORCHESTRATION_BUDGET_EXCEEDED, counts_as_failure=False),
})
# fmt: on


_BACKOFF_BASE_S = 0.5
_BACKOFF_CAP_S = 8.0
_JITTER_ON_RETRY_AFTER_S = 0.25


class ProviderHealth:
    """Breakers and retry budget of all providers, shared by every execution of this process."""

    def __init__(self, policy: FailoverPolicy, clock: Clock, providers: Sequence[str]) -> None:
        self.policy = policy
        self.breakers: Mapping[str, CircuitBreaker] = {name: CircuitBreaker(policy, clock) for name in providers}
        self._budget = RetryBudget(policy, clock)

    def begin_attempt(self, provider: str) -> bool:
        """Begins an attempt; False while the breaker is open."""
        if not self.breakers[provider].try_begin():
            return False
        self._budget.record_attempt()
        return True

    def end_attempt(self, provider: str, answer: Reply | EngineError | None) -> None:
        """Tells the breaker how the attempt ended; None when it was cut off, which says nothing of the provider."""
        breaker = self.breakers[provider]
        if isinstance(answer, Reply):
            breaker.record_success()
        elif answer is not None and RULES[answer.reason].counts_as_failure:
            breaker.record_failure(trip=RULES[answer.reason].opens_breaker)
        else:
            breaker.end_without_result()

    def retry_delay(
        self, provider: str, fault: EngineError, *, spent: int, seconds_left: float, jitter: float
    ) -> float | None:
        """Seconds to wait before this provider is tried again; None when it is to be left.

        `spent` are retries spent on it, `jitter` is in [0, 1). Retry-After is never shortened: above the cap or the
        deadline there is no retry, nor where this very failure has opened the breaker. Nothing is taken from the
        budget unless the wait is granted.
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


class Attempts(Protocol):
    """What `decide` needs of the door: one attempt, one wait, and to be heard."""

    async def attempt(
        self, candidate: Candidate, number: int, fsm: FallbackFsm
    ) -> AttemptSucceeded | AttemptFailed: ...

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
        return transition_event(
            self.fsm, before, event, reason,
            candidate=None if self.fsm.state is State.EXHAUSTED else self.candidate,
            segment=None if self.number < 0 else self._door.segment(self.number),
        )  # fmt: skip


def transition_event(
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


async def decide(door: Attempts, offered: InferenceSetup, max_retries: int) -> tuple[Candidate, AttemptSucceeded]:
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
        if isinstance(outcome, AttemptSucceeded):
            return walk.candidate, outcome
        failed.append((walk.candidate, outcome))
    raise all_providers_failed(failed, offered)


async def _try(walk: _Walk, door: Attempts) -> AttemptSucceeded | AttemptFailed:
    """All attempts on the candidate that was selected; the last one's outcome, with the machine back in SELECTING."""
    candidate = walk.candidate
    assert candidate is not None  # noqa: S101 - see decide
    while True:
        outcome = await door.attempt(candidate, walk.number, walk.fsm)
        if isinstance(outcome, AttemptSucceeded):
            walk.fire(Event.PROVIDER_SUCCESS, "answered")
            return outcome
        rule = RULES[outcome.reason]
        if rule.action is FailureAction.FATAL:
            walk.fire(Event.FATAL_ERROR, outcome.reason)
            raise _refused(candidate, outcome)
        if await _move_on(walk, door, outcome, rule.action) is State.SELECTING:
            if outcome.streamed and walk.fsm.candidates_left:
                door.retract(walk.number)
            return outcome
        if outcome.streamed:
            door.retract(walk.number - 1)


async def _move_on(walk: _Walk, door: Attempts, outcome: AttemptFailed, handling: FailureAction) -> State:
    timed_out = handling is FailureAction.RETRY_IMMEDIATELY
    walk.fire(Event.TIMEOUT if timed_out else Event.RETRYABLE_ERROR, outcome.reason)
    if outcome.wait is None and (handling is FailureAction.NEXT_PROVIDER or walk.fsm.retry_left):
        return walk.fire(Event.TIMEOUT, "left")
    if outcome.wait:
        await door.wait(walk.number, outcome.wait, walk.fsm)
    return walk.fire(Event.RETRYABLE_ERROR, "retry" if walk.fsm.retry_left else "retries_spent")


def _refused(candidate: Candidate, outcome: AttemptFailed) -> Failure:
    rule = RULES[outcome.reason]
    details = {"provider": candidate.provider, "reason": outcome.reason.value, **outcome.details}
    return failure(rule.code, outcome.message, details=details, condition=rule.condition)


def all_providers_failed(
    failed: Sequence[tuple[Candidate, AttemptFailed]], offered: InferenceSetup
) -> InferenceFailure:
    """What a client is told when no candidate is left: the code that all last failures share, if they share one."""
    rules = [RULES[outcome.reason] for _, outcome in failed] + [RULES[AttemptFailureReason.BREAKER_OPEN]] * len(
        offered.left_out
    )
    codes = {rule.code for rule in rules}
    code = codes.pop() if len(codes) == 1 else Code.INFERENCE_MODEL_UNAVAILABLE
    conditions = {rule.condition for rule in rules}
    condition = None
    if code is Code.INFERENCE_ENGINE_ERROR:
        condition = "transport" if "transport" in conditions else "refused"
    attempts = [{"provider": each.provider, "reason": outcome.reason.value} for each, outcome in failed]
    attempts += [
        {"provider": each.provider, "reason": AttemptFailureReason.BREAKER_OPEN.value} for each in offered.left_out
    ]
    raised = InferenceFailure(code, "no provider answered", {"attempts": attempts}, condition)
    waits = [outcome.retry_after for _, outcome in failed if outcome.retry_after is not None]
    if offered.left_out:
        waits.append(offered.closed_for)
    raised.retry_after = min(waits, default=None)
    return raised
