"""Health of a deployment: rests, refused keys and their return, and its breaker."""

import pytest

from portico.capabilities.models.deployments import Deployment, DeploymentState, ReportedLimits
from portico.capabilities.models.health import DeploymentHealth
from portico.domain.contract.response import TokenUsage
from portico.domain.ids import ExecutionId
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.ports.model import EngineError
from tests.support.harness import POLICY, scripted_engine
from tests.support.virtual_time import VirtualClock

REPLY = Reply("hi", (), "stop", "", TokenUsage(), "m")


class Watched:
    """A deployment with a key that can be changed, and what was said about refused keys."""

    def __init__(self, clock: VirtualClock) -> None:
        self.key = "first"
        self.said: list[tuple[str, str, str]] = []
        self.limits = ReportedLimits()
        deployment = Deployment(scripted_engine(clock, "main", deployment="eu"), 1, lambda: self.key, self.limits)
        self.health = DeploymentHealth(POLICY, clock, deployment, lambda *news: self.said.append(news))

    def end(
        self, reason: str | None = None, *, retry_after: float | None = None, status: int | None = None, run: str = "1"
    ) -> None:
        begun = self.health.try_begin()
        assert begun is not None
        answer = REPLY if reason is None else EngineError(AttemptFailureReason(reason), "no", retry_after, status)
        self.health.end(begun, answer, ExecutionId(run))

    @property
    def state(self) -> DeploymentState:
        return self.health.status().state

    @property
    def seconds(self) -> float | None:
        return self.health.status().seconds


@pytest.fixture
def watched(clock: VirtualClock) -> Watched:
    return Watched(clock)


@pytest.mark.parametrize(
    ("reason", "retry_after", "rest"),
    [
        ("rate_limited", 30.0, 30.0),
        ("rate_limited", None, 1.0),
        ("rate_limited", 10.0**8, 300.0),
        ("quota", None, 300.0),
        ("quota", 20.0, 20.0),
    ],
)
async def test_a_limit_of_the_provider_rests_it_and_is_no_failure(
    watched: Watched, reason: str, retry_after: float | None, rest: float
) -> None:
    watched.end(reason, retry_after=retry_after, status=429)
    assert (watched.state, watched.seconds) == (DeploymentState.RESTING, rest)
    assert watched.health.breaker.seconds_open is None


async def test_the_later_of_two_ends_holds(watched: Watched) -> None:
    early, late = watched.health.try_begin(), watched.health.try_begin()
    assert early is not None
    assert late is not None
    watched.health.end(late, EngineError(AttemptFailureReason.RATE_LIMITED, "", 60.0), ExecutionId("1"))
    watched.health.end(early, EngineError(AttemptFailureReason.RATE_LIMITED, "", 2.0), ExecutionId("2"))
    assert watched.seconds == 60.0


async def test_without_a_time_the_rest_doubles_in_a_row_to_a_minute(watched: Watched, clock: VirtualClock) -> None:
    rests = []
    for _ in range(8):
        watched.end("rate_limited")
        rests.append(watched.seconds)
        await clock.sleep(watched.seconds or 0)
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    watched.end()
    watched.end("rate_limited")
    assert watched.seconds == 1


async def test_after_a_rest_one_attempt_at_a_time_is_sent_until_one_is_answered(
    watched: Watched, clock: VirtualClock
) -> None:
    watched.end("rate_limited", retry_after=5.0)
    assert watched.health.seconds_until_free() == 5.0
    await clock.sleep(5)
    assert watched.health.seconds_until_free() == 0.0
    probe = watched.health.try_begin()
    assert probe is not None
    assert watched.health.seconds_until_free() > 0
    watched.health.end(probe, REPLY, ExecutionId("1"))
    assert watched.health.try_begin() is not None
    assert watched.health.seconds_until_free() == 0.0


@pytest.mark.parametrize("seconds", [5.0, 60.0, 10.0**9])
async def test_a_header_that_says_a_limit_is_used_up_rests_it_a_minute_at_most(
    watched: Watched, seconds: float
) -> None:
    watched.limits.report(seconds)
    assert (watched.state, watched.seconds) == (DeploymentState.RESTING, min(seconds, 60.0))


async def test_a_401_refuses_the_key_at_once_and_says_so_once(watched: Watched) -> None:
    running = watched.health.try_begin()
    watched.end("credentials", status=401)
    assert (watched.state, watched.seconds) == (DeploymentState.REFUSED, 300.0)
    assert running is not None
    watched.health.end(running, EngineError(AttemptFailureReason.CREDENTIALS, "", status=401), ExecutionId("2"))
    assert watched.said == [("main", "eu", AttemptFailureReason.CREDENTIALS)]
    assert watched.health.try_begin() is None


@pytest.mark.parametrize(("reason", "status"), [("credentials", 403), ("model_missing", 404)])
async def test_a_403_or_404_refuses_it_with_the_second_in_a_row_from_another_execution(
    watched: Watched, reason: str, status: int
) -> None:
    for _ in range(3):
        watched.end(reason, status=status, run="1")
    assert watched.state is DeploymentState.AVAILABLE
    watched.end(run="2")
    watched.end(reason, status=status, run="2")
    assert watched.state is DeploymentState.AVAILABLE
    watched.end(reason, status=status, run="3")
    assert watched.state is DeploymentState.REFUSED


async def test_a_refused_key_returns_when_it_is_changed(watched: Watched) -> None:
    watched.end("credentials", status=401)
    watched.key = "second"
    assert watched.state is DeploymentState.AVAILABLE
    watched.end()


async def test_a_401_for_the_key_of_before_refuses_nothing(watched: Watched) -> None:
    begun = watched.health.try_begin()
    watched.key = "second"
    assert begun is not None
    watched.health.end(begun, EngineError(AttemptFailureReason.CREDENTIALS, "", status=401), ExecutionId("1"))
    assert (watched.state, watched.said) == (DeploymentState.AVAILABLE, [])


async def test_a_refused_key_is_probed_once_in_five_minutes(watched: Watched, clock: VirtualClock) -> None:
    watched.end("credentials", status=401)
    await clock.sleep(299)
    assert watched.health.try_begin() is None
    await clock.sleep(1)
    probe = watched.health.try_begin()
    assert probe is not None
    assert watched.health.try_begin() is None
    watched.health.end(probe, EngineError(AttemptFailureReason.CREDENTIALS, "", status=401), ExecutionId("1"))
    await clock.sleep(300)
    watched.end()
    assert watched.state is DeploymentState.AVAILABLE
    assert len(watched.said) == 1


@pytest.mark.parametrize("reason", ["overloaded", "server_error", "broken", "malformed", "timed_out", "unreachable"])
async def test_failures_eject_it_until_its_breaker_lets_a_probe_through(
    watched: Watched, clock: VirtualClock, reason: str
) -> None:
    for _ in range(5):
        watched.end(reason)
    assert watched.state is DeploymentState.EJECTED
    assert watched.health.seconds_left_out() == POLICY.breaker_cooldown
    await clock.sleep(POLICY.breaker_cooldown)
    watched.end()
    assert watched.state is DeploymentState.AVAILABLE


async def test_what_is_the_requests_fault_says_nothing_about_it(watched: Watched) -> None:
    for reason in ("context_exceeded", "content_filtered", "refused"):
        for _ in range(10):
            watched.end(reason, status=400)
    assert watched.state is DeploymentState.AVAILABLE
