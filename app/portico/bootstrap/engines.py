"""Builders of engines by their scheme, and the profiles of configured engines."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from ssl import SSLContext
from types import MappingProxyType

from portico.adapters.engines import scripted
from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.http.aiohttp_transport import AiohttpTransport, HttpSession, Route
from portico.adapters.engines.http.engine import STREAM_PARSERS, Endpoint, HttpEngine, ReplyLimits, StreamParser
from portico.adapters.engines.http.tls import tls_context
from portico.adapters.engines.http.transport import Transport
from portico.adapters.engines.llama_cpp import engine as llama_cpp
from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.adapters.engines.openai import models
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.adapters.engines.openai.vendors import GENERIC, OPENAI, VENDORS
from portico.adapters.engines.rehearsal import engine as rehearsal
from portico.adapters.engines.timeouts import Timeouts
from portico.adapters.telemetry.genai import ModelName
from portico.bootstrap import clouds
from portico.capabilities.models.breaker import FailoverPolicy
from portico.capabilities.models.catalogue import EngineCatalogue
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.token_prices import TokenPrices
from portico.domain.value import value
from portico.ports.engine_schemes import SCHEMES
from portico.ports.model import Engine, EngineProfile
from portico.ports.runtime import Clock
from portico.settings import EngineSettings, Price, Settings, known_features, missing_capabilities


@value
class EngineResources:
    """Everything that the engines of a service share.

    Resources that an engine opens are closed with the `stack`. `on_unknown_frames` counts the frames of an engine's
    streams that its dialect does not know.
    """

    clock: Clock
    session: HttpSession
    stack: AsyncExitStack
    on_unknown_frames: Callable[[str, int], None]


@value
class EngineBuild:
    """Everything that an engine is built from."""

    engine: EngineSettings
    profile: EngineProfile
    settings: Settings
    resources: EngineResources

    @property
    def timeouts(self) -> Timeouts:
        """Return the timeouts of its attempts."""
        failover = self.settings.failover
        return Timeouts(
            connect_seconds=failover.connect_timeout,
            attempt_seconds=failover.attempt_timeout,
            first_token_seconds=failover.first_token_timeout,
            idle_seconds=failover.idle_timeout,
        )


def _http(
    spec: EngineBuild,
    dialect: Dialect,
    authenticated: Callable[[Transport], Transport] | None = None,
    stream_parsers: Mapping[str, Callable[[int], StreamParser]] = STREAM_PARSERS,
) -> Engine:
    base_url = server_url(spec.engine)
    limits = ReplyLimits(spec.settings.limits.upstream_bytes, spec.settings.limits.upstream_line_bytes)
    headers = {name: value.read() or "" for name, value in spec.engine.headers.items()}
    endpoint = Endpoint(base_url, spec.engine.api_key.read, spec.timeouts, limits, headers, stream_parsers)
    proxy = spec.settings.proxy_for(spec.engine, base_url)
    route = Route(_tls(spec), spec.timeouts.connect_seconds, proxy)
    transport: Transport = AiohttpTransport(spec.resources.session, route)
    return HttpEngine(
        spec.profile,
        dialect,
        endpoint=endpoint,
        transport=transport if authenticated is None else authenticated(transport),
        clock=spec.resources.clock,
        on_unknown_frames=spec.resources.on_unknown_frames,
    )


def _tls(spec: EngineBuild) -> SSLContext:
    try:
        return tls_context(spec.engine.ca_file)
    except OSError as error:
        raise ConfigurationFailure(
            Code.CONFIG_INVALID, f"engines.{spec.profile.name}.ca_file: must be a file of certificates in PEM format"
        ) from error


def _openai(spec: EngineBuild) -> Engine:
    """Build an engine for one of the two APIs of OpenAI; compatible providers have the older one."""
    vendor = VENDORS[spec.engine.vendor or OPENAI]
    return _http(spec, ResponsesDialect() if _api(spec) == "responses" else ChatCompletionsDialect(vendor))


def _api(spec: EngineBuild) -> str:
    if spec.engine.api is not None:
        return spec.engine.api
    name = spec.profile.known_as or spec.profile.model
    return "responses" if models.requires_responses_api(name) else "chat_completions"


def _azure(spec: EngineBuild) -> Engine:
    return _http(spec, *clouds.azure(spec.engine, _api(spec), spec.resources.clock))


def _bedrock(spec: EngineBuild) -> Engine:
    return _http(spec, *clouds.bedrock(spec.engine))


def _vertex(spec: EngineBuild) -> Engine:
    return _http(spec, *clouds.vertex(spec.engine, spec.resources.clock))


def _llamacpp(spec: EngineBuild) -> Engine:
    engine = llama_cpp.LlamaCppEngine(spec.profile, spec.timeouts)
    spec.resources.stack.push_async_exit(engine)
    return engine


def _scripted(spec: EngineBuild) -> Engine:
    return scripted.ScriptedEngine.from_file(spec.profile, Path(spec.engine.model.model), spec.resources.clock)


def _rehearsal(spec: EngineBuild) -> Engine:
    return rehearsal.RehearsalEngine(spec.profile, spec.resources.clock)


BUILDERS: Mapping[str, Callable[[EngineBuild], Engine]] = MappingProxyType(
    {
        "openai": _openai,
        "anthropic": partial(_http, dialect=AnthropicDialect()),
        "gemini": partial(_http, dialect=GeminiDialect()),
        "azure": _azure,
        "bedrock": _bedrock,
        "vertex": _vertex,
        "ollama": partial(_http, dialect=OllamaDialect()),
        "llamacpp": _llamacpp,
        "scripted": _scripted,
        "rehearsal": _rehearsal,
    }
)
"""The builder of the engines of each scheme; `SCHEMES` has the facts."""


def build_engine(name: str, settings: Settings, resources: EngineResources) -> Engine:
    """Build a configured engine. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    return BUILDERS[settings.engines[name].model.scheme](
        EngineBuild(settings.engines[name], engine_profile(name, settings), settings, resources)
    )


def engine_catalogue(settings: Settings, engines: Mapping[str, Engine]) -> EngineCatalogue:
    """Return the catalogue of these engines with the configured routes."""
    routes = settings.routes.items()
    return EngineCatalogue(
        engines,
        {name: route.engines for name, route in routes},
        rerouting=[name for name, route in routes if route.on_content_failure == "next"],
        by_cause={name: route.on.lists() for name, route in routes},
    )


def server_url(engine: EngineSettings) -> str:
    """Return the URL of the server that the engine asks; an empty one if it asks none."""
    scheme, address = SCHEMES[engine.model.scheme], engine.model.address
    if scheme.places:
        return (engine.base_url or clouds.cloud_url(engine.model)) + clouds.vertex_path(engine.model)
    return engine.base_url or (f"http://{address}" if address else scheme.base_url)


def model_names(settings: Settings) -> Mapping[str, ModelName]:
    """Return the names of the configured models in telemetry, by engine."""
    urls = {name: engine.model for name, engine in settings.engines.items()}
    return {name: ModelName.of(url.scheme, url.model) for name, url in urls.items()}


def engine_profile(name: str, settings: Settings) -> EngineProfile:
    """Return the facts about an engine: what is configured, then what is known of the model, then defaults."""
    engine = settings.engines[name]
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
