"""Estimates that replies correct: for their tenant and model, and never in what is recorded."""

import pytest

from portico.capabilities.models.tokens import UNCORRECTED
from portico.domain.contract.response import TokenUsage
from portico.domain.failures import Code
from portico.domain.ids import TenantId
from portico.domain.model_call import EngineCall, Reply
from portico.ports.model import Progress
from portico.ports.runtime import Clock
from tests.support.harness import chat_request, make_harness, profile, replay_offline, response_of
from tests.support.virtual_time import VirtualClock

REQUEST = chat_request("word " * 800)
ESTIMATED = sum(map(UNCORRECTED.message, REQUEST.messages))


class HungryEngine:
    """An engine that reports more tokens than are estimated, by a factor."""

    def __init__(self, clock: Clock, name: str, factor: float, **changes: int) -> None:
        self.profile = profile(name, model=name, response_reserve=0, **changes)
        self._factor = factor

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Answer with two estimated tokens."""
        read, written = round(ESTIMATED * self._factor), round(2 * self._factor)
        usage = TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)
        return Reply("It is so", (), "stop", "", usage, self.profile.model)

    async def ping(self) -> str:
        """Return at once."""
        return "here"


async def test_a_context_that_is_larger_than_estimated_is_refused_once_replies_have_taught_it(
    clock: VirtualClock,
) -> None:
    here = make_harness(clock, HungryEngine(clock, "a", 1.5, context_window=round(ESTIMATED * 1.3)))
    accepted, records = 0, []
    while True:
        response, record = await here.run(REQUEST)
        records.append(record)
        if response.error is not None:
            break
        accepted += 1
    assert response.error.code is Code.INFERENCE_CONTEXT_EXCEEDED
    assert accepted == 5, "1 + 0.5 × (1 − 0.8⁵) is above 1.3, with one more power it is below"
    other = here.execution(REQUEST, tenant=TenantId("another"))
    await here.drive(other)
    assert response_of(other).error is None
    for record in records:
        assert replay_offline(record) == len(record.steps)


async def test_each_engine_of_a_route_is_measured_in_the_tokens_of_its_model(clock: VirtualClock) -> None:
    limit = round(ESTIMATED * 1.2)
    hungry, frugal = (
        HungryEngine(clock, "a", 1.5, context_window=limit),
        HungryEngine(clock, "b", 1.0, context_window=limit),
    )
    here = make_harness(clock, hungry, frugal)
    answered = [(await here.run(REQUEST))[0].metadata.provider for _ in range(5)]
    assert answered == ["a", "a", "a", "b", "b"]
    estimator, tenant = here.environment.token_estimator, here.execution(REQUEST).header.tenant
    assert estimator.counter(tenant, "a").ratio == pytest.approx(1.244, abs=0.001)
    assert estimator.counter(tenant, "b").ratio == pytest.approx(1.0, abs=0.001)
