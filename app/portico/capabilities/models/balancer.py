"""Balancer: the deployments of an engine that an inference tries, in order.

The one that answered last in this execution comes first. Behind it the order is that of a weighted rendezvous hash, so
that of n deployments one that leaves moves only what it had: u ** (1 / weight), with u in [0, 1) a hash of the seed and
the deployment, is largest as often as its share of the weights [Efraimidis and Spirakis]. Weights are divided by the
number of running attempts and one, but in a session, whose turns stay where the provider has cached them.

Those without room come last, and the one that has some first at the very end: an attempt on the last one waits.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from portico.capabilities.limits.caps import CallSize
from portico.capabilities.models.deployments import DeployedEngine
from portico.capabilities.models.health import DeploymentHealth, ProviderHealth
from portico.capabilities.models.lane import Lane
from portico.domain.value import value
from portico.ports.model import Engine

BUSY_S: Final = 1.0
"""Seconds for which one that has no free connection counts as busy."""
_HASH_VALUES: Final = 2**56


@value
class Order:
    """The deployments to try, those that are left out, and in how many seconds the first of these may be tried."""

    tried: Sequence[Engine]
    left_out: Sequence[Engine]
    closed_for: float


@value
class Choice:
    """Inputs of the order of deployments, besides their health.

    `seed` is a text of the execution and the inference, or of a session; `last` the deployment that answered last.
    """

    seed: str
    in_session: bool
    last: str | None
    size: CallSize


def order(engine: DeployedEngine, choice: Choice, health: ProviderHealth, lanes: Mapping[str, Lane]) -> Order:
    """Return the deployments of the engine in order."""
    free: list[DeploymentHealth] = []
    waiting: list[tuple[float, DeploymentHealth]] = []
    left_out: list[Engine] = []
    closed_for = []
    for each in health.deployments[engine.profile.name]:
        closed = None if each.is_well else each.seconds_left_out()
        if closed is not None:
            left_out.append(each.deployment.engine)
            closed_for.append(closed)
            continue
        room = health.rooms[each.address]
        wait = 0.0 if each.is_well and room.caps is None else room.seconds_until(choice.size)
        if not lanes[each.address].free:
            wait = max(wait, BUSY_S)
        if wait:
            waiting.append((wait, each))
        else:
            free.append(each)
    tried = _by_balance(free, choice, engine)[: engine.most]
    if waiting and len(tried) < engine.most:
        waiting.sort(key=lambda pair: pair[0])
        tried += [each.deployment.engine for _, each in reversed(waiting[: engine.most - len(tried)])]
    return Order(tried, left_out, min(closed_for, default=0.0))


def _by_balance(free: Sequence[DeploymentHealth], choice: Choice, engine: DeployedEngine) -> list[Engine]:
    """Return those with room in order, the one that answered last first."""
    if engine.balance == "priority":
        ranked = [(float(-index), each.deployment) for index, each in enumerate(free)]
    else:
        ranked = [
            (
                (
                    int.from_bytes(blake2b(f"{choice.seed}:{each.address}".encode(), digest_size=7).digest())
                    / _HASH_VALUES
                )
                ** ((1 if choice.in_session else each.running + 1) / each.deployment.weight),
                each.deployment,
            )
            for each in free
        ]
    last = choice.last
    if last is not None:
        ranked = [(2.0 if each.engine.profile.deployment == last else rank, each) for rank, each in ranked]
    ranked.sort(key=lambda pair: pair[0], reverse=True)
    return [each.engine for _, each in ranked]
