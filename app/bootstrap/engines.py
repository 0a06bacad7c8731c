"""Table of engine schemes and the engines they build."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from ssl import SSLContext
from types import MappingProxyType

from app.adapters.engines.anthropic.dialect import AnthropicDialect
from app.adapters.engines.dialect import Dialect
from app.adapters.engines.gemini.dialect import GeminiDialect
from app.adapters.engines.http.aiohttp_transport import AiohttpTransport, HttpSession, Route
from app.adapters.engines.http.engine import Endpoint, HttpEngine, ReplyLimits
from app.adapters.engines.http.tls import tls_context
from app.adapters.engines.llama_cpp.engine import LlamaCppEngine
from app.adapters.engines.ollama.dialect import OllamaDialect
from app.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from app.adapters.engines.openai.models import requires_responses_api
from app.adapters.engines.openai.responses import ResponsesDialect
from app.adapters.engines.rehearsal.engine import RehearsalEngine
from app.adapters.engines.scripted import ScriptedEngine
from app.adapters.engines.timeouts import Timeouts
from app.capabilities.models.catalogue import DEFAULT_CAPABILITIES
from app.domain.failures import Code, ConfigurationFailure
from app.ports.model import Engine, EngineProfile
from app.ports.runtime import Clock
from app.settings import EngineSettings, Settings


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """What an engine is made of; what it opens is closed with the `stack`."""

    engine: EngineSettings
    profile: EngineProfile
    settings: Settings
    clock: Clock
    session: HttpSession
    stack: AsyncExitStack

    @property
    def timeouts(self) -> Timeouts:
        """How long this engine is waited for."""
        failover = self.settings.failover
        return Timeouts(
            connect_seconds=failover.connect_timeout,
            attempt_seconds=failover.attempt_timeout,
            first_token_seconds=failover.first_token_timeout,
            idle_seconds=failover.idle_timeout,
        )


def _http(making: EngineBuild, dialect: Dialect) -> Engine:
    address = making.engine.model.address
    base_url = making.engine.base_url or (f"http://{address}" if address else dialect.base_url)
    caps = ReplyLimits(making.settings.limits.upstream_bytes, making.settings.limits.upstream_line_bytes)
    headers = {name: value.read() or "" for name, value in making.engine.headers.items()}
    endpoint = Endpoint(base_url, making.engine.api_key.read, making.timeouts, caps, headers)
    proxy = making.settings.proxy_for(making.engine, base_url)
    route = Route(_tls(making), making.timeouts.connect_seconds, proxy)
    transport = AiohttpTransport(making.session, route)
    return HttpEngine(making.profile, dialect, endpoint=endpoint, transport=transport, clock=making.clock)


def _tls(making: EngineBuild) -> SSLContext:
    try:
        return tls_context(making.engine.ca_file)
    except OSError as error:
        raise ConfigurationFailure(
            Code.CONFIG_INVALID, f"engines.{making.profile.name}.ca_file: must be a file of certificates in PEM format"
        ) from error


def _openai(making: EngineBuild) -> Engine:
    """OpenAI speaks two dialects; the others that use this scheme speak the older."""
    api = making.engine.api or ("responses" if requires_responses_api(making.profile.model) else "chat_completions")
    return _http(making, ResponsesDialect() if api == "responses" else ChatCompletionsDialect())


def _anthropic(making: EngineBuild) -> Engine:
    return _http(making, AnthropicDialect())


def _gemini(making: EngineBuild) -> Engine:
    return _http(making, GeminiDialect())


def _ollama(making: EngineBuild) -> Engine:
    return _http(making, OllamaDialect())


def _llamacpp(making: EngineBuild) -> Engine:
    engine = LlamaCppEngine(making.profile, making.timeouts)
    making.stack.push_async_exit(engine)
    return engine


def _scripted(making: EngineBuild) -> Engine:
    return ScriptedEngine.from_file(making.profile, Path(making.engine.model.model), making.clock)


def _rehearsal(making: EngineBuild) -> Engine:
    return RehearsalEngine(making.profile, making.clock)


ENGINES: Mapping[str, Callable[[EngineBuild], Engine]] = MappingProxyType(
    {
        "openai": _openai,
        "anthropic": _anthropic,
        "gemini": _gemini,
        "ollama": _ollama,
        "llamacpp": _llamacpp,
        "scripted": _scripted,
        "rehearsal": _rehearsal,
    }
)
"""What speaks to which scheme of a model URL."""


def build_engine(name: str, settings: Settings, clock: Clock, session: HttpSession, stack: AsyncExitStack) -> Engine:
    engine = settings.engines[name]
    profile = EngineProfile(
        name=name,
        model=engine.model.model,
        scheme=engine.model.scheme,
        context_window=engine.context_window,
        response_reserve=engine.response_reserve,
        options=frozenset(engine.options),
        price=None if engine.price is None else (engine.price.input, engine.price.output),
        capabilities=replace(DEFAULT_CAPABILITIES[engine.model.scheme], **engine.capabilities),
    )
    return ENGINES[profile.scheme](EngineBuild(engine, profile, settings, clock, session, stack))
