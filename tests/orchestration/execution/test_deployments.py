"""Deployments of an engine in executions: who is asked, what is recorded, and what a failure costs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

from portico.capabilities.models.deployments import DeployedEngine, Deployment, common_profile
from portico.domain.access.limits import AccessLimits, Rate
from portico.domain.contract.response import SystemResponse, TokenUsage
from portico.domain.failures import Code
from portico.domain.journal.events import FallbackTransition, InferenceStart
from portico.domain.journal.outcomes import AttemptFailed, Candidate, InferenceSetup
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.token_prices import TokenPrices
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineError, EngineProfile, Progress
from tests.support.harness import (
    POLICY,
    Harness,
    chat_request,
    make_harness,
    profile,
    replay_offline,
    scripted_engine,
)
from tests.support.usage import quote_of
from tests.support.virtual_time import VirtualClock

RATE = AttemptFailureReason.RATE_LIMITED
USAGE = TokenUsage(input_tokens=5, output_tokens=1, total_tokens=6)


class Behind:
    """A deployment that answers, or fails as a test says, and counts its attempts."""

    def __init__(self, clock: VirtualClock, name: str, engine: str = "main", **facts: Any) -> None:
        self.profile: EngineProfile = profile(engine, deployment=name, account=facts.pop("account", name), **facts)
        self.fault: EngineError | None = None
        self.recovers = False
        """True if it fails once only."""
        self.asked = 0
        self.seconds = 0.0
        self.calls: list[EngineCall] = []
        self._clock = clock

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        self.asked += 1
        self.calls.append(call)
        if self.seconds:
            await self._clock.sleep(self.seconds)
        fault = self.fault
        if fault is not None:
            if self.recovers:
                self.fault = None
            raise EngineError(fault.reason, fault.message, fault.retry_after, fault.status)
        progress.text("hi")
        return Reply("hi", (), "stop", "", USAGE, "m", kept=({"type": "reasoning"},))

    async def ping(self) -> str:
        return "answered"


def deployed(*members: Behind, balance: Any = "priority", most: int = 3) -> DeployedEngine:
    shared = common_profile(profile("main"), [each.profile for each in members])
    return DeployedEngine(shared, [Deployment(each) for each in members], balance, most)


def here(clock: VirtualClock, *members: Behind, **rest: Any) -> Harness:
    engines = rest.pop("engines", ())
    engine = deployed(*members, balance=rest.pop("balance", "priority"), most=rest.pop("most", 3))
    return make_harness(clock, engine, *engines, **rest)


def three(clock: VirtualClock, fault: EngineError | None = None) -> tuple[Behind, Behind, Behind]:
    members = (Behind(clock, "a"), Behind(clock, "b"), Behind(clock, "c"))
    for each in members:
        each.fault = fault
    return members


def starts(record: ExecutionHistory) -> list[str | None]:
    return [item.event.deployment for item in record.events if isinstance(item.event, InferenceStart)]


def attempts(response: SystemResponse) -> list[Mapping[str, str]]:
    assert response.error is not None
    return list(response.error.details["attempts"])


SERVER_ERROR = EngineError(AttemptFailureReason.SERVER_ERROR, "500", status=500)


@pytest.mark.parametrize(
    "reason",
    [
        *("rate_limited", "overloaded", "server_error", "broken", "malformed", "timed_out", "unreachable", "tls"),
        *("credentials", "model_missing", "quota"),
    ],
)
async def test_a_failure_of_one_deployment_is_left_for_the_next_at_once_and_replays(
    clock: VirtualClock, reason: str
) -> None:
    first, second, third = three(clock)
    first.fault = EngineError(AttemptFailureReason(reason), "no")
    world, began = here(clock, first, second, third), clock.monotonic()
    response, record = await world.run(chat_request())
    assert (response.content, response.metadata.provider, response.metadata.deployment) == ("hi", "main", "b")
    assert starts(record) == ["a", "b"]
    assert clock.monotonic() == began
    moves = [item.event for item in record.events if isinstance(item.event, FallbackTransition)]
    assert [(move.deployment, move.reason) for move in moves[2:5]] == [("a", reason), ("a", "left"), ("b", "selected")]
    assert replay_offline(record) == len(record.steps)
    setup = next(step.outcome for step in record.steps.values() if isinstance(step.outcome, InferenceSetup))
    assert [each.fingerprint for each in setup.candidates] == [f"attempt:main:main-model:{name}" for name in "abc"]


async def test_an_error_names_each_deployment_and_the_last_one_is_retried(clock: VirtualClock) -> None:
    members = three(clock, SERVER_ERROR)
    response, record = await here(clock, *members).run(chat_request())
    assert [each.asked for each in members] == [1, 1, 2]
    assert [each["deployment"] for each in attempts(response)] == ["a", "b", "c"]
    assert replay_offline(record) == len(record.steps)


async def test_an_inference_tries_no_more_deployments_than_it_may(clock: VirtualClock) -> None:
    members = [Behind(clock, name) for name in "abcdef"]
    for each in members:
        each.fault = SERVER_ERROR
    world = here(clock, *members)
    await world.run(chat_request())
    assert sum(each.asked for each in members) == 4
    rounds, retried = 21, 2
    assert quote_of(world, chat_request()).inferences == rounds * retried * 3


async def test_an_engine_without_deployments_names_none(clock: VirtualClock) -> None:
    response, record = await make_harness(clock, scripted_engine(clock, "plain", {"text": "hi"})).run(chat_request())
    assert response.metadata.deployment is None
    assert "deployment" not in response.metadata.model_dump(mode="json")
    assert starts(record) == [None]
    assert Candidate("a", "m").fingerprint == "attempt:a:m"


async def test_in_a_brown_out_the_retry_budget_of_the_engine_bounds_what_providers_get(clock: VirtualClock) -> None:
    members = three(clock, SERVER_ERROR)
    world = here(clock, *members, policy=replace(POLICY, breaker_failures=0))

    async def run_later(delay: float) -> None:
        await clock.sleep(delay)
        await world.run(chat_request())

    async with anyio.create_task_group() as group:
        for number in range(300):
            group.start_soon(run_later, number / 30)
    asked = sum(each.asked for each in members)
    assert 300 < asked <= 375 + POLICY.retry_floor


async def run_at_once(world: Harness, count: int, at_once: int) -> list[SystemResponse]:
    """Return the responses of so many executions, so many of them at the same time."""
    responses: list[SystemResponse] = []

    async def work() -> None:
        responses.extend([(await world.run(chat_request()))[0] for _ in range(count // at_once)])

    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(work)
    return responses


async def test_500_executions_25_at_once_lose_a_key_a_rate_and_a_region_without_an_error(clock: VirtualClock) -> None:
    members = [Behind(clock, name) for name in ("one", "two", "three", "azure", "bedrock")]
    revoked, limited, *_, bedrock = members
    for each in members:
        each.seconds = 0.2
    revoked.fault = EngineError(AttemptFailureReason.CREDENTIALS, "401", status=401)
    limited.fault = EngineError(RATE, "429", 30.0, 429)
    world = here(clock, *members, balance="least_busy")
    responses = await run_at_once(world, 100, 25)
    bedrock.fault = SERVER_ERROR
    responses += await run_at_once(world, 400, 25)
    assert [each.error for each in responses] == [None] * 500
    assert {each.metadata.deployment for each in responses} == {"three", "azure", "bedrock"}
    states = {each.deployment.name: each.status().state for each in world.environment.health.deployments["main"]}
    assert states == {
        "one": "refused",
        "two": "resting",
        "three": "available",
        "azure": "available",
        "bedrock": "ejected",
    }
    assert revoked.asked + limited.asked < 25
    assert bedrock.asked < 75


@pytest.mark.parametrize("at_once", [25, 100])
async def test_a_region_that_fails_from_the_start_reaches_no_user_however_many_ask_at_once(
    clock: VirtualClock, at_once: int
) -> None:
    members = three(clock)
    for each in members:
        each.seconds = 0.2
    members[0].fault = SERVER_ERROR
    members[1].fault = EngineError(AttemptFailureReason.TIMED_OUT, "no answer")
    responses = await run_at_once(here(clock, *members, balance="least_busy"), 2 * at_once, at_once)
    assert [each.error for each in responses] == [None] * 2 * at_once
    assert members[2].asked == 2 * at_once


async def test_all_at_once_a_brown_out_is_still_bounded_by_the_retry_budget(clock: VirtualClock) -> None:
    members = three(clock, SERVER_ERROR)
    for each in members:
        each.seconds = 0.2
    world = here(clock, *members, balance="least_busy", policy=replace(POLICY, breaker_failures=0))
    await run_at_once(world, 300, 300)
    assert 300 < sum(each.asked for each in members) <= 375 + POLICY.retry_floor


async def test_a_denied_attempt_leaves_the_engine_for_the_next_of_the_route(clock: VirtualClock) -> None:
    members = three(clock, SERVER_ERROR)
    backup = scripted_engine(clock, "backup", {"text": "hello"})
    policy = replace(POLICY, retry_floor=0, retry_budget=0.0)
    response, record = await here(clock, *members, engines=[backup], policy=policy).run(chat_request())
    assert (response.content, response.metadata.provider, response.metadata.deployment) == ("hello", "backup", None)
    assert starts(record) == ["a", None]
    failed = [step.outcome for step in record.steps.values() if isinstance(step.outcome, AttemptFailed)]
    assert [each.leaves_engine for each in failed] == [True]
    assert replay_offline(record) == len(record.steps)


async def test_a_limited_key_gets_one_request_a_rest(clock: VirtualClock) -> None:
    members = three(clock)
    members[0].fault = EngineError(RATE, "429", 30.0, 429)
    world = here(clock, *members)
    for _ in range(20):
        response, _ = await world.run(chat_request())
        assert response.content == "hi"
    assert members[0].asked == 1
    await clock.sleep(31)

    async def run() -> None:
        await world.run(chat_request())

    for each in members:
        each.seconds = 0.5
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(run)
    assert members[0].asked == 2


async def test_the_last_deployment_that_rests_is_waited_for_if_it_rests_no_longer_than_the_cap(
    clock: VirtualClock,
) -> None:
    only = Behind(clock, "only")
    world = here(clock, only)
    world.environment.health.deployments["main"][0].rest(20.0)
    began = clock.monotonic()
    response, record = await world.run(chat_request())
    assert (response.content, clock.monotonic() - began) == ("hi", pytest.approx(20.0))
    world.environment.health.deployments["main"][0].rest(100.0)
    response, record = await world.run(chat_request())
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_MODEL_UNAVAILABLE
    assert attempts(response) == [{"provider": "main", "deployment": "only", "reason": "limited"}]
    assert response.error.details["retry_after"] == pytest.approx(100, abs=1)
    assert only.asked == 1
    assert replay_offline(record) == len(record.steps)


async def test_every_deployment_out_at_once_is_unavailable_with_the_time_of_the_next_try(clock: VirtualClock) -> None:
    members = three(clock, EngineError(AttemptFailureReason.CREDENTIALS, "401", status=401))
    world = here(clock, *members)
    await world.run(chat_request())
    response, record = await world.run(chat_request())
    assert [each.asked for each in members] == [1, 1, 1]
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_MODEL_UNAVAILABLE
    assert [each["deployment"] for each in attempts(response)] == ["a", "b", "c"]
    assert response.error.details["retry_after"] == pytest.approx(300, abs=1)
    assert replay_offline(record) == len(record.steps)


@pytest.mark.parametrize(
    "denied",
    [
        EngineError(AttemptFailureReason.CREDENTIALS, "403", status=403),
        EngineError(AttemptFailureReason.MODEL_MISSING, "404", status=404),
    ],
)
async def test_what_one_request_makes_every_deployment_refuse_takes_none_from_the_next(
    clock: VirtualClock, denied: EngineError
) -> None:
    members = three(clock, denied)
    world = here(clock, *members)
    await world.run(chat_request())
    for each in members:
        each.fault = None
    response, _ = await world.run(chat_request())
    assert response.content == "hi"
    assert members[0].asked == 2


async def test_a_cap_passes_exactly_as_many_of_concurrent_attempts_as_it_allows(clock: VirtualClock) -> None:
    first, second = Behind(clock, "a"), Behind(clock, "b")
    first.seconds = second.seconds = 1.0
    caps = {"main/a": {"main/a": AccessLimits(requests=Rate(7, 86_400))}}
    world = here(clock, first, second, caps=caps)

    async def run() -> None:
        response, _ = await world.run(chat_request())
        assert response.content == "hi"

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(run)
    assert (first.asked, second.asked) == (7, 43)


async def test_an_engine_whose_cap_is_used_up_is_left_for_the_next_provider_or_ends_with_retry_after(
    clock: VirtualClock,
) -> None:
    caps = {"main/a": {"main": AccessLimits(requests=Rate(1, 3_600))}}
    backup = scripted_engine(clock, "backup", {"text": "hello"})
    world = here(clock, Behind(clock, "a"), engines=[backup], caps=caps)
    assert (await world.run(chat_request()))[0].metadata.provider == "main"
    assert (await world.run(chat_request()))[0].metadata.provider == "backup"
    response, record = await world.run(chat_request(model="main"))
    assert attempts(response) == [{"provider": "main", "deployment": "a", "reason": "limited"}]
    assert response.error is not None
    assert response.error.details["retry_after"] == pytest.approx(3_600, abs=2)
    assert replay_offline(record) == len(record.steps)


async def test_a_cap_of_an_engine_without_deployments_is_waited_for(clock: VirtualClock) -> None:
    engine = scripted_engine(clock, "plain", {"text": "one"}, {"text": "two"})
    world = make_harness(clock, engine, caps={"plain": {"plain": AccessLimits(requests=Rate(1, 10))}})
    await world.run(chat_request())
    began = clock.monotonic()
    assert (await world.run(chat_request()))[0].content == "two"
    assert clock.monotonic() - began == pytest.approx(10, abs=0.1)


async def test_tokens_are_reserved_before_sending_and_settled_at_the_end(clock: VirtualClock) -> None:
    caps = {"main/a": {"main/a": AccessLimits(tokens=Rate(3_000, 86_400))}}
    first, second = Behind(clock, "a", response_reserve=1_000), Behind(clock, "b", response_reserve=1_000)
    world = here(clock, first, second, caps=caps)
    for _ in range(10):
        await world.run(chat_request())
    assert (first.asked, second.asked) == (10, 0)
    first.seconds = second.seconds = 1.0

    async def run() -> None:
        await world.run(chat_request())

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(run)
    assert (first.asked, second.asked) == (12, 3)


async def test_what_an_account_encrypts_goes_back_to_that_account_only(clock: VirtualClock) -> None:
    first, second = Behind(clock, "a", binds_kept=True), Behind(clock, "b", binds_kept=True)
    world = here(clock, first, second)
    first_response, _ = await world.run(chat_request())
    [answer] = first_response.messages
    assert getattr(answer, "account", None) == "a"
    [question] = chat_request().messages
    follow_up = chat_request().model_copy(update={"messages": [question, answer, question]})
    await world.run(follow_up)
    assert [getattr(each, "kept", None) for each in first.calls[-1].messages] == [None, [{"type": "reasoning"}], None]
    world.environment.health.deployments["main"][0].rest(200.0)
    response, record = await world.run(follow_up)
    assert all(not hasattr(each, "kept") for each in second.calls[-1].messages)
    assert response.metadata.left_out == ["messages.kept.main"]
    assert replay_offline(record) == len(record.steps)


async def test_kept_blocks_that_a_provider_cannot_read_are_dropped_and_the_request_is_sent_again_at_once(
    clock: VirtualClock,
) -> None:
    only = Behind(clock, "a", binds_kept=True)
    world = here(clock, only)
    first, _ = await world.run(chat_request())
    only.fault = EngineError(AttemptFailureReason.KEPT_REFUSED, "400", status=400)
    only.recovers = True
    messages = [chat_request().messages[0], *first.messages, chat_request().messages[0]]
    response, record = await world.run(chat_request().model_copy(update={"messages": messages}))
    assert response.content == "hi"
    assert [sum(hasattr(each, "kept") for each in call.messages) for call in only.calls] == [0, 1, 0]
    assert response.metadata.left_out == ["messages.kept.main"]
    assert replay_offline(record) == len(record.steps)


async def test_a_crash_between_the_attempts_on_two_deployments_goes_on_with_the_second(clock: VirtualClock) -> None:
    first, second = Behind(clock, "a"), Behind(clock, "b")
    first.fault, second.seconds = SERVER_ERROR, 10.0
    before = here(clock, first, second)
    execution = before.execution(chat_request())
    with anyio.move_on_after(5):
        await before.drive(execution)
    assert (first.asked, second.asked) == (1, 1)
    response, ended = await here(clock, first, second).recover(before.record(execution))
    assert (response.content, response.metadata.deployment) == ("hi", "b")
    assert (first.asked, second.asked) == (1, 2)
    assert starts(ended) == ["a", "b", "b"]
    assert replay_offline(ended) == len(ended.steps)


async def test_a_recorded_deployment_that_is_configured_no_longer_fails_as_model_missing(clock: VirtualClock) -> None:
    first, second = Behind(clock, "a"), Behind(clock, "b")
    before = here(clock, first, second)
    execution = before.execution(chat_request())
    first.seconds = 10.0
    with anyio.move_on_after(5):
        await before.drive(execution)
    record = before.record(execution)
    after = here(clock, second)
    response, ended = await after.recover(record)
    assert response.content == "hi"
    assert starts(ended)[-1] == "b"
    reasons = [step.outcome.reason for step in ended.steps.values() if isinstance(step.outcome, AttemptFailed)]
    assert reasons == [AttemptFailureReason.MODEL_MISSING]


def test_the_profile_of_an_engine_holds_for_all_of_its_deployments() -> None:
    wide = profile("main", context_window=100_000, price=TokenPrices.without_cache(1, 2))
    narrow = profile("main", context_window=8_000, price=TokenPrices.without_cache(3, 1))
    shared = common_profile(wide, [wide, narrow])
    assert shared.context_window == 8_000
    assert shared.price is not None
    assert (shared.price.input, shared.price.output) == (3, 2)
    assert common_profile(wide, [wide, profile("main")]).price is None
