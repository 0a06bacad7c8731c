"""Failover: which provider an inference attempts next, and what a failed attempt means.

Theory of operation

1. An attempt fails for an `AttemptFailureReason`. `RULES` maps each reason to the event of the fallback machine, the
   code that a client sees, and what the provider's breaker learns. Nothing else in the service decides about providers.
2. `FailoverWalk` is deterministic: it sees outcomes only. Whether a retry is granted, and after how long, was decided
   when the attempt failed, by `ProviderHealth.retry_delay`, and is part of its outcome.
3. A reason that makes the request fail may be a cause for which the route names other engines. Their candidates then
   replace those that are left, each cause once.
4. Each deployment of an engine is a candidate of its own. One that fails is left for the next, at once; the last is
   retried. An attempt that `leaves_engine` drops those that are left of its engine.
5. Breakers, deployments and retry budgets are shared by all executions of this process. They are asked when an attempt
   begins and updated when it ends, never by the walk.
"""

from collections.abc import Sequence
from itertools import takewhile

from portico.domain.failures import Code, Failure, InferenceFailure, failure
from portico.domain.fallback import Event, FallbackFsm, State
from portico.domain.journal.events import FallbackTransition
from portico.domain.journal.outcomes import AttemptFailed, Candidate, InferenceSetup
from portico.domain.journal.step_key import StepKey
from portico.domain.model_call import RULES, AttemptFailureReason, FailureAction

_SELECTING, _ATTEMPTING, _EXHAUSTED = State.SELECTING, State.ATTEMPTING, State.EXHAUSTED
"""Looked up once: in Python 3.11 the look-up of a member takes as long as a call."""
_RETRIED = frozenset({FailureAction.RETRY, FailureAction.RETRY_IMMEDIATELY})
_REASONS_OF_LIMITS = frozenset({AttemptFailureReason.OVER_LIMIT, AttemptFailureReason.LIMIT_UNKNOWN})
"""Reasons of our own; a provider's wait after a request that it refuses would help no one."""


class FailoverWalk:
    """The walk of one inference through its candidates, by the fallback machine.

    The methods that move the machine return its moves as events. `attempt_number` counts the attempts of all candidates
    from 0; `attempt_key` is the key of the current one, that of the inference before the first, and `segment` names its
    run in events.
    """

    def __init__(self, key: StepKey, setup: InferenceSetup, max_retries: int) -> None:
        self.setup = setup
        self.candidate: Candidate | None = None
        """The candidate to attempt; None before the first and once all have failed."""
        self.attempt_number = -1
        self.attempt_key = key
        self.segment: str = key
        self.refusal: Failure | None = None
        """The failure of the inference if the request is at fault, so that no other attempt would help."""
        self._key = key
        self._fsm = FallbackFsm(len(setup.candidates), max_retries)
        self.drops_kept = False
        """True once a provider could not read the blocks that it had given: no attempt has them from then on."""
        self._remaining = list(setup.candidates)
        self._by_cause: dict[AttemptFailureReason, Sequence[Candidate]] = {}
        """The candidates of the causes that have not occurred yet."""
        for each in setup.by_cause:
            self._by_cause[each.cause] = each.candidates
        self._failed: list[tuple[Candidate, AttemptFailed]] = []
        """The candidates that failed, each with its last outcome."""

    @property
    def state(self) -> State:
        """The state of the machine: ATTEMPTING, RETRYING, or SELECTING once the candidate is left."""
        return self._fsm.state

    @property
    def retries_spent(self) -> int:
        """Retries spent on the current candidate."""
        return self._fsm.retries_spent

    @property
    def has_candidates_left(self) -> bool:
        """True if another candidate follows the current one."""
        return self._fsm.candidates_left > 0

    @property
    def other_deployments(self) -> list[str]:
        """The addresses of the other deployments of the current engine that follow, in order."""
        current = None if self.candidate is None else self.candidate.provider
        return [each.address for each in takewhile(lambda each: each.provider == current, self._remaining)]

    def select(self) -> list[FallbackTransition]:
        """Move to the next candidate, if there is one."""
        started = [self._fire(Event.START, "started")] if self._fsm.state is State.IDLE else []
        return [*started, self._fire(Event.PROVIDER_SUCCESS, "selected")]

    def succeed(self) -> list[FallbackTransition]:
        """End the walk: the attempt was answered."""
        return [self._fire(Event.PROVIDER_SUCCESS, "answered")]

    def fail(self, outcome: AttemptFailed) -> list[FallbackTransition]:
        """Take the failure of the attempt: refuse the request, prepare a retry, or leave the candidate."""
        assert self.candidate is not None  # noqa: S101 - an attempt has a candidate
        action = RULES[outcome.reason].action
        if action is FailureAction.FATAL and not self._continue_by_cause(outcome.reason):
            self.refusal = _refused(self.candidate, outcome)
            return [self._fire(Event.FATAL_ERROR, outcome.reason)]
        if self._fsm.retries_spent:
            self._failed.pop()
        self._failed.append((self.candidate, outcome))
        self.drops_kept |= outcome.reason is AttemptFailureReason.KEPT_REFUSED
        if outcome.leaves_engine:
            self._replace([each for each in self._remaining if each.provider != self.candidate.provider])
        is_timeout = action is FailureAction.RETRY_IMMEDIATELY
        failed = self._fire(Event.TIMEOUT if is_timeout else Event.RETRYABLE_ERROR, outcome.reason)
        if outcome.wait is None and (action not in _RETRIED or self._fsm.retry_left):
            return [failed, self._fire(Event.TIMEOUT, "left")]
        return [failed]

    def retry(self) -> list[FallbackTransition]:
        """Move to the next attempt at the candidate, or leave it if its retries are spent."""
        return [self._fire(Event.RETRYABLE_ERROR, "retry" if self._fsm.retry_left else "retries_spent")]

    def abort(self, *, is_waiting: bool = False) -> FallbackTransition:
        """End the walk because it was cancelled, during an attempt or the delay after it."""
        return self._fire(Event.USER_ABORT, "stopped", is_waiting=is_waiting)

    def failure(self) -> InferenceFailure:
        """Return the failure of the inference once all candidates have failed."""
        return all_providers_failed(self._failed, self.setup)

    def _continue_by_cause(self, cause: AttemptFailureReason) -> bool:
        """Continue with the candidates of that cause but the current one; return False if there are none."""
        if cause not in self._by_cause or self.candidate is None:
            return False
        failed = self.candidate.fingerprint
        candidates = [each for each in self._by_cause.pop(cause) if each.fingerprint != failed]
        if candidates:
            self._replace(candidates)
        return bool(candidates)

    def _replace(self, candidates: Sequence[Candidate]) -> None:
        """Continue with these candidates instead of those that are left."""
        self._fsm.replace_candidates(len(candidates))
        self._remaining = [*candidates]

    def _fire(self, event: Event, reason: str, *, is_waiting: bool = False) -> FallbackTransition:
        """Move the machine and return its move; one during a wait or to the end of the candidates concerns none."""
        before, after = self._fsm.state, self._fsm.fire(event)
        if after is _ATTEMPTING:
            self.attempt_number += 1
            self.segment = self.attempt_key = self._key.child(self.attempt_number)
        if before is _SELECTING:
            self.candidate = self._remaining.pop(0) if after is _ATTEMPTING else None
        candidate = None if is_waiting or after is _EXHAUSTED else self.candidate
        return FallbackTransition(
            from_state=before,
            to_state=after,
            fsm_event=event,
            provider=candidate.provider if candidate else None,
            model=candidate.model if candidate else None,
            retry_count=self._fsm.retries_spent,
            reason=reason,
            segment=None if self.attempt_number < 0 else self.segment,
            deployment=candidate.deployment if candidate else None,
        )


def _refused(candidate: Candidate, outcome: AttemptFailed) -> Failure:
    rule = RULES[outcome.reason]
    details = {**_named(candidate, outcome.reason), **outcome.details}
    refusal = failure(rule.code, outcome.message, details=details, condition=rule.condition)
    if outcome.reason in _REASONS_OF_LIMITS:
        refusal.retry_after = outcome.retry_after
    return refusal


def _named(candidate: Candidate, reason: AttemptFailureReason) -> dict[str, str]:
    """Return an attempt as clients see it; only one on a deployment names it."""
    deployment = {} if candidate.deployment is None else {"deployment": candidate.deployment}
    return {"provider": candidate.provider, **deployment, "reason": reason.value}


def all_providers_failed(
    failed: Sequence[tuple[Candidate, AttemptFailed]], offered: InferenceSetup
) -> InferenceFailure:
    """Return the failure when no candidate is left, with the code that all last failures share, if they share one."""
    rules = [RULES[outcome.reason] for _, outcome in failed] + [RULES[AttemptFailureReason.BREAKER_OPEN]] * len(
        offered.left_out
    )
    codes = {rule.code for rule in rules}
    code = codes.pop() if len(codes) == 1 else Code.INFERENCE_MODEL_UNAVAILABLE
    conditions = {rule.condition for rule in rules}
    condition = None
    if code is Code.INFERENCE_ENGINE_ERROR:
        condition = "transport" if "transport" in conditions else "refused"
    attempts = [_named(each, outcome.reason) for each, outcome in failed]
    attempts += [_named(each, AttemptFailureReason.BREAKER_OPEN) for each in offered.left_out]
    raised = InferenceFailure(code, "no provider answered", {"attempts": attempts}, condition)
    waits = [outcome.retry_after for _, outcome in failed if outcome.retry_after is not None]
    if offered.left_out:
        waits.append(offered.closed_for)
    raised.retry_after = min(waits, default=None)
    return raised
