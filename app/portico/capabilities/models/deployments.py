"""Deployments of an engine: the keys, accounts, regions or hosts behind one name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from enum import StrEnum
from typing import Final, Literal

from portico.domain.model_call import RULES, AttemptFailureReason, FailureAction
from portico.domain.token_prices import TokenPrices
from portico.domain.value import replace, value
from portico.ports.memory import EmbeddingEngine, Embeddings
from portico.ports.model import ConfiguredEngine, Engine, EngineCapabilities, EngineError, EngineProfile

Balance = Literal["least_busy", "priority"]


def no_credential() -> object:
    """Return the credential of an endpoint that has none."""
    return None


class ReportedLimits:
    """Report of the limits that the headers of a provider's replies name."""

    def __init__(self) -> None:
        self.on_used_up: Callable[[float], None] = lambda _: None
        """Called with the seconds until a limit that is used up is reset."""

    def report(self, seconds: float) -> None:
        """Say that a limit is used up for so many seconds."""
        self.on_used_up(seconds)


class DeploymentState(StrEnum):
    """State of a deployment, as clients see it."""

    AVAILABLE = "available"
    RESTING = "resting"
    EJECTED = "ejected"
    REFUSED = "refused"


@value
class DeploymentStatus:
    """State of a deployment, for how many seconds it holds, if that is known, and its reason."""

    state: DeploymentState
    seconds: float | None = None
    reason: AttemptFailureReason | None = None


AVAILABLE: Final = DeploymentStatus(DeploymentState.AVAILABLE)


@value
class Deployment:
    """One deployment; `credential` returns what it presents now, to be compared with what was refused."""

    engine: Engine
    weight: int = 1
    credential: Callable[[], object] = no_credential
    limits: ReportedLimits = field(default_factory=ReportedLimits)

    @property
    def name(self) -> str:
        """Return its name within the engine."""
        return self.engine.profile.deployment or ""

    @property
    def address(self) -> str:
        """Return its name within the service: `ENGINE/DEPLOYMENT`."""
        return f"{self.engine.profile.name}/{self.name}"


class DeployedEngine:
    """Engine whose attempts go to its deployments; implements `ConfiguredEngine`, and `EmbeddingEngine`.

    Its profile holds for all of them: the smallest window, the capabilities that all have, and the dearest prices, or
    none if one has none. One inference tries at most `most` of them.
    """

    def __init__(self, profile: EngineProfile, deployments: Sequence[Deployment], balance: Balance, most: int) -> None:
        self.profile = profile
        self.deployments = tuple(deployments)
        self.balance: Final = balance
        self.most = min(most, len(self.deployments))

    async def embed(self, texts: Sequence[str], dimension: int | None) -> Embeddings:
        """Return the vectors of the texts by the first deployment that answers. Raises: EngineError of the last."""
        *others, last = [each.engine for each in self.deployments]
        for engine in others:
            try:
                return await _embedder(engine).embed(texts, dimension)
            except EngineError as error:
                if RULES[error.reason].action is FailureAction.FATAL:
                    raise
        return await _embedder(last).embed(texts, dimension)


def _embedder(engine: Engine) -> EmbeddingEngine:
    if not isinstance(engine, EmbeddingEngine):
        raise TypeError(f"{engine.profile.name} has no embeddings; the configuration is checked first")
    return engine


def common_profile(engine: EngineProfile, deployments: Sequence[EngineProfile]) -> EngineProfile:
    """Return the profile of an engine that holds for all of its deployments."""
    prices = [each.price for each in deployments]
    capabilities = [asdict(each.capabilities) for each in deployments]
    shared = {name: all(each[name] for each in capabilities) for name in capabilities[0]}
    return replace(
        engine,
        context_window=min(each.context_window for each in deployments),
        response_reserve=max(each.response_reserve for each in deployments),
        price=_dearest([each for each in prices if each is not None]) if None not in prices else None,
        capabilities=EngineCapabilities(**shared),
        known=tuple(fact for fact in engine.known if all(fact in each.known for each in deployments)),
        caches_prompts=any(each.caches_prompts for each in deployments),
    )


def _dearest(prices: Sequence[TokenPrices]) -> TokenPrices:
    return TokenPrices(
        max(each.input for each in prices),
        max(each.output for each in prices),
        max(each.cached for each in prices),
        max(each.cache_write for each in prices),
    )


def most_candidates(engine: ConfiguredEngine) -> int:
    """Return how many candidates of an inference the engine is at most."""
    return engine.most if isinstance(engine, DeployedEngine) else 1


def endpoints(engines: Mapping[str, Engine | DeployedEngine]) -> dict[str, Engine]:
    """Return what attempts are made on by its address: the engine's name, or `ENGINE/DEPLOYMENT`."""
    found: dict[str, Engine] = {}
    for name, engine in engines.items():
        if isinstance(engine, DeployedEngine):
            found |= {each.address: each.engine for each in engine.deployments}
        else:
            found[name] = engine
    return found
