"""Failover decisions: the effect of each reason on the state machine, the breaker and the retry budget."""

from collections.abc import Sequence

import pytest

from portico.capabilities.models.failover import FailoverWalk
from portico.capabilities.models.health import BreakerState, FailoverPolicy, ProviderHealth, RetryBudget
from portico.domain.contract.response import TokenUsage
from portico.domain.failures import Code, Failure, InferenceFailure
from portico.domain.fallback import State, max_transitions
from portico.domain.ids import ExecutionId
from portico.domain.journal.events import FallbackTransition
from portico.domain.journal.outcomes import AttemptFailed, AttemptSucceeded, Candidate, InferenceSetup
from portico.domain.journal.step_key import StepKey
from portico.domain.model_call import RULES, AttemptFailureReason, FailureAction, Reply
from portico.ports.model import EngineError
from tests.support.harness import POLICY, scripted_engine
from tests.support.virtual_time import VirtualClock

REPLY = Reply("hi", (), "stop", "", TokenUsage(), "m")
RUN = ExecutionId("run")
A, B = Candidate("a", "a-model"), Candidate("b", "b-model")


def failed(
    reason: AttemptFailureReason, wait: float | None = None, retry_after: float | None = None, *, streamed: bool = False
) -> AttemptFailed:
    return AttemptFailed(reason, "failed", wait, retry_after, streamed, "", TokenUsage(), 1.0)


class Walked:
    """An inference whose attempts end as listed, and what its walk came to."""

    def __init__(self, *outcomes: AttemptFailed | AttemptSucceeded) -> None:
        self.outcomes = list(outcomes)
        self.moves: list[FallbackTransition] = []
        self.waits: list[float] = []
        self.tried: list[str] = []

    @property
    def path(self) -> list[str]:
        return [f"{move.fsm_event}>{move.to_state}" for move in self.moves]

    def run(
        self, candidates: Sequence[Candidate] = (A, B), left_out: Sequence[Candidate] = (), retries: int = 1
    ) -> Candidate:
        """Return the candidate that answered. Raises: Failure, as an inference does."""
        setup = InferenceSetup((), tuple(candidates), tuple(left_out), closed_for=4.0)
        walk = FailoverWalk(StepKey("0"), setup, retries)
        self.moves += walk.select()
        while walk.candidate is not None:
            if self._attempt(walk):
                return walk.candidate
            self.moves += walk.select()
        raise walk.failure()

    def _attempt(self, walk: FailoverWalk) -> bool:
        """Attempt the candidate until it answers or is left."""
        while walk.state is State.ATTEMPTING:
            assert walk.candidate is not None
            assert walk.segment == f"0/{len(self.tried)}"
            self.tried.append(walk.candidate.provider)
            outcome = self.outcomes.pop(0)
            if isinstance(outcome, AttemptSucceeded):
                self.moves += walk.succeed()
                return True
            self.moves += walk.fail(outcome)
            if walk.refusal is not None:
                raise walk.refusal
            if walk.state is State.RETRYING:
                self.waits += [outcome.wait] if outcome.wait else []
                self.moves += walk.retry()
        return False


def test_every_reason_has_a_rule() -> None:
    assert set(RULES) == set(AttemptFailureReason)


@pytest.mark.parametrize(
    "reason", [reason for reason in AttemptFailureReason if RULES[reason].action is FailureAction.RETRY]
)
async def test_a_retryable_reason_waits_as_granted_and_tries_the_same_provider_again(
    reason: AttemptFailureReason,
) -> None:
    walked = Walked(failed(reason, wait=2.0), AttemptSucceeded(REPLY, 1.0))
    assert walked.run() is A
    assert (walked.tried, walked.waits) == (["a", "a"], [2.0])
    assert walked.path[2:] == ["RETRYABLE_ERROR>RETRYING", "RETRYABLE_ERROR>ATTEMPTING", "PROVIDER_SUCCESS>SUCCEEDED"]


async def test_a_timed_out_attempt_is_retried_without_waiting(clock: VirtualClock) -> None:
    walked = Walked(failed(AttemptFailureReason.TIMED_OUT, wait=0.0), AttemptSucceeded(REPLY, 1.0))
    walked.run()
    assert walked.waits == []
    assert walked.path[2:4] == ["TIMEOUT>RETRYING", "RETRYABLE_ERROR>ATTEMPTING"]


@pytest.mark.parametrize(
    "reason", [reason for reason in AttemptFailureReason if RULES[reason].action is FailureAction.NEXT_PROVIDER]
)
async def test_if_a_retry_is_pointless_the_next_provider_is_tried_at_once(
    reason: AttemptFailureReason,
) -> None:
    walked = Walked(failed(reason), AttemptSucceeded(REPLY, 1.0))
    assert walked.run() is B
    assert (walked.tried, walked.waits) == (["a", "b"], [])
    assert walked.path[2:5] == ["RETRYABLE_ERROR>RETRYING", "TIMEOUT>SELECTING", "PROVIDER_SUCCESS>ATTEMPTING"]


@pytest.mark.parametrize(
    "reason", [reason for reason in AttemptFailureReason if RULES[reason].action is FailureAction.FATAL]
)
async def test_a_request_at_fault_is_neither_retried_nor_failed_over(reason: AttemptFailureReason) -> None:
    walked = Walked(failed(reason))
    with pytest.raises(Failure) as caught:
        walked.run()
    assert caught.value.code is RULES[reason].code
    assert walked.path[-1] == "FATAL_ERROR>ABORTED"


async def test_a_retry_the_budget_refused_leaves_the_provider_at_once() -> None:
    walked = Walked(failed(AttemptFailureReason.SERVER_ERROR, wait=None), AttemptSucceeded(REPLY, 1.0))
    assert walked.run() is B
    assert walked.path[2:4] == ["RETRYABLE_ERROR>RETRYING", "TIMEOUT>SELECTING"]


async def test_the_second_provider_gets_its_own_retries() -> None:
    error = failed(AttemptFailureReason.SERVER_ERROR, wait=1.0)
    walked = Walked(error, failed(AttemptFailureReason.SERVER_ERROR), error, AttemptSucceeded(REPLY, 1.0))
    assert walked.run() is B
    assert walked.tried == ["a", "a", "b", "b"]


@pytest.mark.parametrize("candidates", [0, 1, 2, 3])
@pytest.mark.parametrize("retries", [0, 1, 2, 3])
async def test_all_providers_down_ends_within_the_proven_bound(candidates: int, retries: int) -> None:
    names = [Candidate(f"p{index}", "m") for index in range(candidates)]
    walked = Walked(*[failed(AttemptFailureReason.OVERLOADED, wait=1.0)] * 20)
    with pytest.raises(InferenceFailure) as caught:
        walked.run(names, left_out=[] if names else [A], retries=retries)
    assert caught.value.code is Code.INFERENCE_MODEL_UNAVAILABLE
    assert len(walked.tried) == candidates * (retries + 1)
    assert len(walked.moves) <= max_transitions(candidates, retries)
    assert walked.moves[-1].to_state is State.EXHAUSTED


@pytest.mark.parametrize(
    ("reasons", "code", "status"),
    [
        ([AttemptFailureReason.SERVER_ERROR, AttemptFailureReason.BROKEN], Code.INFERENCE_ENGINE_ERROR, 502),
        ([AttemptFailureReason.CREDENTIALS, AttemptFailureReason.CREDENTIALS], Code.INFERENCE_ENGINE_ERROR, 500),
        ([AttemptFailureReason.CREDENTIALS, AttemptFailureReason.TLS], Code.INFERENCE_ENGINE_ERROR, 502),
        ([AttemptFailureReason.MALFORMED, AttemptFailureReason.MALFORMED], Code.INFERENCE_MALFORMED_RESPONSE, 502),
        ([AttemptFailureReason.MALFORMED, AttemptFailureReason.SERVER_ERROR], Code.INFERENCE_MODEL_UNAVAILABLE, 503),
        ([AttemptFailureReason.RATE_LIMITED, AttemptFailureReason.UNREACHABLE], Code.INFERENCE_MODEL_UNAVAILABLE, 503),
        ([AttemptFailureReason.QUOTA, AttemptFailureReason.MODEL_MISSING], Code.INFERENCE_MODEL_UNAVAILABLE, 503),
    ],
)
async def test_at_exhausted_the_code_is_the_one_all_last_failures_share(
    reasons: list[AttemptFailureReason], code: Code, status: int
) -> None:
    with pytest.raises(InferenceFailure) as caught:
        Walked(*map(failed, reasons)).run(retries=0)
    assert (caught.value.code, caught.value.status) == (code, status)


async def test_retry_after_of_the_failure_is_the_least_of_all_providers() -> None:
    walked = Walked(
        failed(AttemptFailureReason.RATE_LIMITED, retry_after=7.0),
        failed(AttemptFailureReason.RATE_LIMITED, retry_after=3.0),
    )
    with pytest.raises(InferenceFailure) as caught:
        walked.run(retries=0)
    assert caught.value.retry_after == 3.0


def health(clock: VirtualClock, **changes: float) -> ProviderHealth:
    values = {name: getattr(POLICY, name) for name in POLICY.__slots__} | changes
    engines = {name: scripted_engine(clock, name) for name in ("a", "b")}
    return ProviderHealth(FailoverPolicy(**values), clock, engines)


def fault(reason: AttemptFailureReason) -> EngineError:
    return EngineError(reason, "failed")


def attempt(here: ProviderHealth, answer: Reply | EngineError | None) -> None:
    period = here.begin_attempt("a")
    assert period is not None
    here.end_attempt("a", period, answer, RUN)


BROKEN = fault(AttemptFailureReason.BROKEN)


@pytest.mark.parametrize(
    "late", [REPLY, BROKEN, fault(AttemptFailureReason.QUOTA), None], ids=["success", "failure", "quota", "cancelled"]
)
async def test_an_attempt_from_before_the_breaker_opened_neither_ends_the_probe_nor_decides(
    clock: VirtualClock, late: Reply | EngineError | None
) -> None:
    here = health(clock, breaker_failures=1)
    early = here.begin_attempt("a")
    assert early is not None
    attempt(here, BROKEN)
    await clock.sleep(15)
    probe = here.begin_attempt("a")
    assert probe is not None
    here.end_attempt("a", early, late, RUN)
    assert here.breakers["a"].state is BreakerState.HALF_OPEN
    assert here.begin_attempt("a") is None
    here.end_attempt("a", probe, REPLY, RUN)
    assert here.breakers["a"].state is BreakerState.CLOSED


async def test_failures_of_attempts_from_before_an_outage_do_not_open_the_closed_breaker_again(
    clock: VirtualClock,
) -> None:
    here = health(clock, breaker_failures=1)
    early = here.begin_attempt("a")
    assert early is not None
    attempt(here, BROKEN)
    await clock.sleep(15)
    attempt(here, REPLY)
    here.end_attempt("a", early, BROKEN, RUN)
    assert here.breakers["a"].state is BreakerState.CLOSED


async def test_the_breaker_opens_at_the_threshold_lets_one_probe_through_and_closes_on_its_success(
    clock: VirtualClock,
) -> None:
    here = health(clock)
    for _ in range(5):
        attempt(here, fault(AttemptFailureReason.SERVER_ERROR))
    assert here.breakers["a"].state is BreakerState.OPEN
    assert here.begin_attempt("a") is None
    assert here.begin_attempt("b") is not None
    await clock.sleep(15)
    assert here.breakers["a"].state is BreakerState.HALF_OPEN
    probe = here.begin_attempt("a")
    assert probe is not None
    assert here.begin_attempt("a") is None
    here.end_attempt("a", probe, REPLY, RUN)
    assert here.breakers["a"].state is BreakerState.CLOSED


async def test_a_failed_probe_opens_the_breaker_again_and_a_cancelled_one_allows_another(clock: VirtualClock) -> None:
    here = health(clock, breaker_failures=1)
    attempt(here, fault(AttemptFailureReason.BROKEN))
    await clock.sleep(15)
    attempt(here, None)
    attempt(here, fault(AttemptFailureReason.BROKEN))
    assert here.breakers["a"].state is BreakerState.OPEN


async def test_failures_that_are_not_more_than_half_do_not_open_the_breaker(clock: VirtualClock) -> None:
    here = health(clock)
    for _ in range(20):
        attempt(here, REPLY)
        attempt(here, fault(AttemptFailureReason.SERVER_ERROR))
    assert here.breakers["a"].state is BreakerState.CLOSED


async def test_failures_outside_the_window_are_forgotten(clock: VirtualClock) -> None:
    here = health(clock)
    for _ in range(10):
        attempt(here, fault(AttemptFailureReason.SERVER_ERROR))
        await clock.sleep(10)
    assert here.breakers["a"].state is BreakerState.CLOSED


@pytest.mark.parametrize("reason", [reason for reason in AttemptFailureReason if not RULES[reason].counts_as_failure])
async def test_a_refused_request_says_nothing_of_the_provider(
    clock: VirtualClock, reason: AttemptFailureReason
) -> None:
    here = health(clock, breaker_failures=1)
    attempt(here, fault(reason))
    assert here.breakers["a"].state is BreakerState.CLOSED


async def test_a_quota_error_opens_the_breaker_at_once(clock: VirtualClock) -> None:
    here = health(clock)
    attempt(here, fault(AttemptFailureReason.QUOTA))
    assert here.breakers["a"].state is BreakerState.OPEN


async def test_breaker_failures_zero_switches_breakers_off(clock: VirtualClock) -> None:
    here = health(clock, breaker_failures=0)
    for _ in range(50):
        attempt(here, fault(AttemptFailureReason.QUOTA))


def granted(
    here: ProviderHealth, reason: AttemptFailureReason, retry_after: float | None, **changes: float
) -> float | None:
    values = {"spent": 0, "seconds_left": 600.0, "jitter": 0.5} | changes
    return here.retry_delay("a", EngineError(reason, "failed", retry_after), **values)


async def test_retry_after_is_never_shortened_and_above_cap_or_deadline_the_provider_is_left(
    clock: VirtualClock,
) -> None:
    here = health(clock)
    assert granted(here, AttemptFailureReason.RATE_LIMITED, 2.0) >= 2.0
    assert granted(here, AttemptFailureReason.RATE_LIMITED, 30.0) >= 30.0
    assert granted(here, AttemptFailureReason.RATE_LIMITED, 30.5) is None
    assert granted(here, AttemptFailureReason.RATE_LIMITED, 10.0, seconds_left=9.0) is None
    assert granted(here, AttemptFailureReason.RATE_LIMITED, 0.0, jitter=0.0) == 0.0


async def test_without_retry_after_the_wait_is_exponential_with_full_jitter(clock: VirtualClock) -> None:
    here = health(clock, max_retries=9)
    assert [
        granted(here, AttemptFailureReason.SERVER_ERROR, None, spent=spent, jitter=0.999) for spent in range(6)
    ] == pytest.approx([0.4995, 0.999, 1.998, 3.996, 7.992, 7.992])
    assert granted(here, AttemptFailureReason.SERVER_ERROR, None, jitter=0.0) == 0.0


async def test_no_retry_is_granted_where_the_failure_itself_has_opened_the_breaker(clock: VirtualClock) -> None:
    here = health(clock, breaker_failures=1)
    attempt(here, fault(AttemptFailureReason.RATE_LIMITED))
    assert granted(here, AttemptFailureReason.RATE_LIMITED, 3.0) is None


async def test_candidates_left_out_by_open_breakers_give_the_time_of_the_next_try() -> None:
    with pytest.raises(InferenceFailure) as caught:
        Walked(failed(AttemptFailureReason.RATE_LIMITED, retry_after=9.0)).run([A], left_out=[B], retries=0)
    assert caught.value.retry_after == 4.0


async def test_nothing_is_granted_or_taken_when_no_retry_remains(clock: VirtualClock) -> None:
    here = health(clock, retry_floor=1, retry_budget=0.0)
    assert granted(here, AttemptFailureReason.SERVER_ERROR, None, spent=1) is None
    assert granted(here, AttemptFailureReason.UNREACHABLE, None) is None
    assert granted(here, AttemptFailureReason.SERVER_ERROR, None) is not None
    assert granted(here, AttemptFailureReason.SERVER_ERROR, None) is None


async def test_the_retry_budget_is_a_share_of_the_last_ten_seconds_with_a_floor(clock: VirtualClock) -> None:
    budget = RetryBudget(POLICY, clock)
    for _ in range(100):
        budget.record_attempt()
    assert sum(budget.try_take() for _ in range(50)) == 20
    await clock.sleep(11)
    assert sum(budget.try_take() for _ in range(50)) == 10
