"""Builders of engines by their scheme, the profiles of configured engines, and the metrics that know their names."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from importlib import import_module

from portico.adapters.engines.openai.vendors import GENERIC, VENDORS
from portico.adapters.telemetry.genai import ModelName
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.bootstrap import engine_builders
from portico.bootstrap.engine_builders.build import EngineBuild, EngineResources
from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.models.deployments import (
    DeployedEngine,
    Deployment,
    DeploymentState,
    ReportedLimits,
    common_profile,
)
from portico.capabilities.models.health import (
    BreakerState,
    CircuitBreaker,
    DeploymentHealth,
    FailoverPolicy,
    ProviderHealth,
)
from portico.domain.access.limits import NO_LIMITS, AccessLimits
from portico.domain.token_prices import TokenPrices
from portico.domain.value import replace
from portico.ports.engine_schemes import SCHEMES
from portico.ports.model import Engine, EngineProfile
from portico.settings import EngineSettings, Price, Settings, known_features, missing_capabilities


def build_engine(name: str, settings: Settings, resources: EngineResources) -> Engine | DeployedEngine:
    """Build a configured engine. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    engine, profile = settings.engines[name], engine_profile(name, settings)
    if not engine.deployments:
        return _builder(engine.model.scheme)(EngineBuild(engine, profile, settings, resources))
    deployments = [_build_deployment(profile, key, settings, resources) for key in engine.deployments]
    return DeployedEngine(profile, deployments, engine.balance, settings.failover.max_deployments)


def _builder(scheme: str) -> Callable[[EngineBuild], Engine]:
    """Return the builder of the engines of a scheme; its module is imported now, since most are never needed."""
    build: Callable[[EngineBuild], Engine] = import_module(f"{engine_builders.__name__}.{scheme}").build
    return build


def _build_deployment(shared: EngineProfile, key: str, settings: Settings, resources: EngineResources) -> Deployment:
    """Build a deployment of the engine of that profile, whose window and capabilities it has."""
    engine, limits = settings.engines[shared.name], ReportedLimits()
    endpoint, deployment = engine.endpoint(key), engine.deployments[key]
    profile = replace(
        _profile(shared.name, endpoint, settings),
        context_window=shared.context_window,
        capabilities=shared.capabilities,
        max_connections=deployment.concurrency or engine.max_connections,
        deployment=key,
        account=deployment.account or key,
    )
    built = _builder(endpoint.model.scheme)(EngineBuild(endpoint, profile, settings, resources, limits))
    return Deployment(built, deployment.weight, endpoint.api_key.read, limits)


def engine_limits(settings: Settings) -> Mapping[str, Mapping[str, AccessLimits]]:
    """Return the caps by the address of an engine or a deployment: its own, and those of its engine, by their names."""
    found: dict[str, Mapping[str, AccessLimits]] = {}
    for name, engine in settings.engines.items():
        whole = {} if engine.limits == NO_LIMITS else {name: engine.limits}
        found[name] = {} if engine.deployments else whole
        for key, deployment in engine.deployments.items():
            address = f"{name}/{key}"
            own = {} if deployment.limits == NO_LIMITS else {address: deployment.limits}
            found[address] = {**whole, **own}
    return {address: limits for address, limits in found.items() if limits}


def engine_catalogue(settings: Settings, engines: Mapping[str, Engine | DeployedEngine]) -> EngineCatalogue:
    """Return the catalogue of these engines with the configured routes."""
    routes = settings.routes.items()
    return EngineCatalogue(
        engines,
        {name: route.engines for name, route in routes},
        rerouting=[name for name, route in routes if route.on_content_failure == "next"],
        by_cause={name: route.on.lists() for name, route in routes},
    )


def endpoint_settings(settings: Settings) -> Mapping[str, EngineSettings]:
    """Return the settings of what attempts are made on by its address: engines, and `ENGINE/DEPLOYMENT`."""
    found: dict[str, EngineSettings] = {}
    for name, engine in settings.engines.items():
        found |= {f"{name}/{key}": engine.endpoint(key) for key in engine.deployments} or {name: engine}
    return found


def model_names(settings: Settings) -> Mapping[str, ModelName]:
    """Return the names of the configured models in telemetry, by engine."""
    urls = {name: engine.model for name, engine in settings.engines.items()}
    return {name: ModelName.of(url.scheme, url.model) for name, url in urls.items()}


def engine_profile(name: str, settings: Settings) -> EngineProfile:
    """Return the facts about an engine: what is configured, then what is known of the model, then defaults.

    Those of an engine with deployments hold for all of them.
    """
    engine = settings.engines[name]
    profile = _profile(name, engine, settings)
    if not engine.deployments:
        return profile
    return common_profile(profile, [_profile(name, engine.endpoint(key), settings) for key in engine.deployments])


def _profile(name: str, engine: EngineSettings, settings: Settings) -> EngineProfile:
    scheme, identity = SCHEMES[engine.model.scheme], engine.identity
    known_prices = _known_prices(engine, settings.telemetry.currency)
    missing = [
        name for name in missing_capabilities(identity.scheme, identity.model) if name not in engine.capabilities
    ]
    known = {
        "context_window": "context_window" not in engine.model_fields_set and _known_window(engine),
        "price": engine.price is None and known_prices,
        "price.cached": engine.price is not None and engine.price.cached is None and known_prices,
        "price.cache_write": engine.price is not None and engine.price.cache_write is None and known_prices,
        **{f"capabilities.{capability}": True for capability in missing},
    }
    return EngineProfile(
        name=name,
        model=engine.model.model,
        scheme=engine.model.scheme,
        context_window=engine.context_window,
        response_reserve=engine.response_reserve,
        options=frozenset(engine.options),
        price=_prices(engine.price, known_prices),
        capabilities=replace(
            scheme.capabilities,
            **{**_features(engine), **dict.fromkeys(missing, False), **engine.capabilities},
        ),
        known=tuple(fact for fact, is_known in known.items() if is_known),
        max_connections=engine.max_connections,
        caches_prompts=engine.prompt_cache == "auto" and _takes_cache_marks(engine),
        propagates_trace=settings.telemetry.propagate and not scheme.is_offline,
        known_as=identity.model if engine.known_as else "",
    )


def _missing_capabilities(engine: EngineSettings) -> Iterable[str]:
    """Return the capabilities of its scheme that the engine lacks for its model, or for the one it is known as."""
    own, known = engine.model, engine.identity
    return dict.fromkeys(
        [*missing_capabilities(known.scheme, known.model), *missing_capabilities(own.scheme, own.model)]
    )


def _features(engine: EngineSettings) -> Mapping[str, bool]:
    """Return the capabilities that the model is known to have, as far as the API of the engine takes them."""
    taken = set(SCHEMES[engine.model.scheme].features)
    if engine.vendor is not None:
        vendor = VENDORS[engine.vendor]
        has = {"reasoning": engine.vendor != GENERIC, "documents": vendor.documents, "audio": vendor.audio}
        taken = {name for name, is_taken in has.items() if is_taken}
    return dict.fromkeys(taken & known_features(engine.identity.model), True)


def _takes_cache_marks(engine: EngineSettings) -> bool:
    """Tell whether the engine takes what says what to cache.

    Of OpenAI's API it is a parameter of few vendors. Bedrock refuses it for models whose cached input costs no less.
    """
    if engine.model.scheme == "bedrock":
        known = engine.known
        return known is not None and known.prices.cached < known.prices.input
    return engine.vendor is None or VENDORS[engine.vendor].prompt_cache_key


def _known_window(engine: EngineSettings) -> int | None:
    return None if engine.known is None else engine.known.context_window


def _known_prices(engine: EngineSettings, currency: str) -> TokenPrices | None:
    """Return the known prices of the model. They are in US dollars, and hold up to its known context window."""
    known = engine.known
    if known is None or currency != "USD" or engine.context_window > (known.context_window or engine.context_window):
        return None
    return known.prices


def _prices(price: Price | None, known: TokenPrices | None) -> TokenPrices | None:
    """Return the configured prices, and for those that are absent the known ones, else the price of other input."""
    if price is None:
        return known
    others = known or TokenPrices.without_cache(price.input, price.output)
    return TokenPrices(
        price.input,
        price.output,
        others.cached if price.cached is None else price.cached,
        others.cache_write if price.cache_write is None else price.cache_write,
    )


def failover_policy(settings: Settings) -> FailoverPolicy:
    """Return how often a failed attempt is made again, and when a provider is left alone."""
    failover = settings.failover
    return FailoverPolicy(
        max_retries=failover.max_retries,
        retry_after_cap=failover.retry_after_cap,
        breaker_failures=failover.breaker_failures,
        breaker_window=failover.breaker_window,
        breaker_cooldown=failover.breaker_cooldown,
        retry_budget=failover.retry_budget,
        retry_floor=failover.retry_floor,
    )


def observe_engines(observe: Callable[..., None], health: ProviderHealth) -> None:
    """Let the metrics read the states of breakers and deployments."""
    for provider, breaker in health.breakers.items():
        for state in BreakerState:
            observe("portico_breaker_state", partial(_is_in_state, breaker, state), provider, state)
    for provider, members in health.deployments.items():
        for member in members:
            for condition in DeploymentState:
                is_so = partial(_is_deployment_in_state, member, condition)
                observe("portico_deployment_state", is_so, provider, member.deployment.name, condition)


def _is_in_state(breaker: CircuitBreaker, state: BreakerState) -> bool:
    return breaker.state is state


def _is_deployment_in_state(deployment: DeploymentHealth, state: DeploymentState) -> bool:
    return deployment.status().state is state


def metrics_sink(settings: Settings, tools: Collection[str], step_types: Collection[str]) -> MetricsSink:
    """Return the metrics, which know the names of this configuration."""
    models, currency = model_names(settings), settings.telemetry.currency
    deployments = {name: tuple(engine.deployments) for name, engine in settings.engines.items()}
    return MetricsSink(
        models=models,
        tools=tools,
        step_types=step_types,
        currency=currency,
        guards=settings.guardrails,
        deployments=deployments,
    )
