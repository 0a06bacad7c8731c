"""Balancer: shares by weight, few moves when a deployment leaves, and the place of those without room."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from portico.capabilities.limits.caps import CallSize
from portico.capabilities.models.balancer import Choice, order
from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.models.deployments import DeployedEngine, Deployment, common_profile
from portico.capabilities.models.health import ProviderHealth
from portico.domain.ids import ExecutionId
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.support.harness import POLICY, scripted_engine
from tests.support.virtual_time import VirtualClock

CHOICE = Choice(seed="", in_session=False, last=None, size=CallSize(10, 0.0))


class Balanced:
    """An engine with deployments of these weights, and the order that a choice gives."""

    def __init__(
        self, clock: VirtualClock, weights: Mapping[str, int], balance: Any = "least_busy", most: int = 64
    ) -> None:
        engines = {name: scripted_engine(clock, "main", deployment=name) for name in weights}
        members = [Deployment(engines[name], weight) for name, weight in weights.items()]
        shared = common_profile(members[0].engine.profile, [each.engine.profile for each in members])
        self.engine = DeployedEngine(shared, members, balance, most)
        self.catalogue = EngineCatalogue({"main": self.engine}, {"default": ["main"]})
        self.health = ProviderHealth(POLICY, clock, {"main": self.engine})
        self.members = {each.deployment.name: each for each in self.health.deployments["main"]}

    def order(self, seed: str = "x", **changes: Any) -> list[str | None]:
        choice = replace(CHOICE, seed=seed, **changes)
        found = order(self.engine, choice, self.health, self.catalogue.lanes)
        return [each.profile.deployment for each in found.tried]

    def shares(self, keys: int = 10_000, **changes: Any) -> Counter[str | None]:
        return Counter(self.order(f"key-{number}", **changes)[0] for number in range(keys))


async def test_shares_follow_the_weights(clock: VirtualClock) -> None:
    weights = {"a": 2, "b": 3, "c": 5}
    shares = Balanced(clock, weights).shares()
    for name, weight in weights.items():
        assert shares[name] == pytest.approx(1_000 * weight, rel=0.05)


async def test_a_deployment_that_leaves_moves_only_its_own_sessions(clock: VirtualClock) -> None:
    whole = Balanced(clock, dict.fromkeys("abcde", 1))
    fewer = Balanced(clock, dict.fromkeys("abde", 1))
    keys = [f"session-{number}" for number in range(2_000)]
    before = {key: whole.order(key, in_session=True)[0] for key in keys}
    after = {key: fewer.order(key, in_session=True)[0] for key in keys}
    assert {before[key] for key in keys if before[key] != after[key]} == {"c"}


async def test_running_attempts_lower_a_share_but_not_in_a_session(clock: VirtualClock) -> None:
    balanced = Balanced(clock, {"a": 1, "b": 1})
    before = balanced.shares(2_000, in_session=True)
    balanced.members["a"].running = 9
    assert balanced.shares(2_000)["a"] == pytest.approx(2_000 / 11, rel=0.3)
    assert balanced.shares(2_000, in_session=True) == before


async def test_priority_is_the_order_of_the_file(clock: VirtualClock) -> None:
    balanced = Balanced(clock, {"c": 1, "a": 9, "b": 1}, "priority")
    assert balanced.order() == ["c", "a", "b"]
    assert balanced.order(last="b") == ["b", "c", "a"]


async def test_the_one_that_answered_last_comes_first(clock: VirtualClock) -> None:
    balanced = Balanced(clock, {"a": 1, "b": 1_000, "c": 1})
    assert all(balanced.order(f"{number}", last="a")[0] == "a" for number in range(50))


async def test_those_that_rest_come_last_and_the_one_that_is_free_first_at_the_end(clock: VirtualClock) -> None:
    balanced = Balanced(clock, dict.fromkeys("abcd", 1), "priority", most=3)
    for name, seconds in {"a": 20.0, "b": 10.0, "c": 30.0}.items():
        balanced.members[name].rest(seconds)
    assert balanced.order() == ["d", "a", "b"]


async def test_one_without_a_free_connection_comes_behind_those_with_one(clock: VirtualClock) -> None:
    balanced = Balanced(clock, {"a": 1, "b": 1}, "priority")
    while balanced.catalogue.lanes["main/a"].enter_if_free(None):
        pass
    assert balanced.order() == ["b", "a"]


async def test_ejected_and_refused_ones_are_left_out_until_they_may_be_tried(clock: VirtualClock) -> None:
    balanced = Balanced(clock, dict.fromkeys("abc", 1), "priority")
    for name, reason, status in (("a", "credentials", 401), ("b", "server_error", 500)):
        for _ in range(5):
            begun = balanced.members[name].try_begin()
            if begun is not None:
                error = EngineError(AttemptFailureReason(reason), "no", status=status)
                balanced.members[name].end(begun, error, ExecutionId("run"))
    found = order(balanced.engine, CHOICE, balanced.health, balanced.catalogue.lanes)
    assert [each.profile.deployment for each in found.tried] == ["c"]
    assert [each.profile.deployment for each in found.left_out] == ["a", "b"]
    assert found.closed_for == POLICY.breaker_cooldown
