"""The composition root: opens resources, picks adapters, yields one Service.

Here alone a port and its adapter are named in one breath: an engine, a tool or a pattern more is a row more.
"""

import gc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import anyio
from pydantic import BaseModel, Field

from app.adapters.clock import SystemClock
from app.adapters.durable.inline import InlineRunner
from app.adapters.engines.anthropic import Messages
from app.adapters.engines.dialect import Dialect
from app.adapters.engines.gemini import GenerateContent
from app.adapters.engines.http_engine import Caps, Endpoint, HttpEngine, Timeouts
from app.adapters.engines.http_session import Session, open_session
from app.adapters.engines.llama_cpp import LlamaCppEngine
from app.adapters.engines.ollama import OllamaChat
from app.adapters.engines.openai_compatible import ChatCompletions
from app.adapters.engines.openai_models import needs_responses
from app.adapters.engines.openai_responses import Responses
from app.adapters.engines.rehearsal import RehearsalEngine
from app.adapters.engines.scripted import ScriptedEngine
from app.adapters.entropy import SystemEntropy
from app.adapters.event_bus import EventBus
from app.adapters.stores.memory import MemoryJournal
from app.adapters.telemetry.lag import watch_lag
from app.adapters.telemetry.logs import LogSink, open_logger, route_stdlib
from app.adapters.telemetry.metrics import MetricsSink
from app.adapters.threads import Threads
from app.adapters.tools.builtin import BUILTIN_TOOLS
from app.capabilities.failover import FailoverPolicy, ProviderHealth
from app.capabilities.inference import CAPABILITIES, Catalogue
from app.capabilities.tokens import EstimatingCounter
from app.capabilities.tools.executor import ToolExecutor
from app.capabilities.tools.registry import ToolRegistry
from app.domain.failures import Code, ConfigurationFailure
from app.domain.lifecycle import Mode
from app.orchestration.admission import ConfiguredLimits
from app.orchestration.facade import Facade, Pattern
from app.orchestration.patterns import agent_loop, plan_executor, redundant_loop, specialized_loop
from app.orchestration.planning.planner import held_against, plan
from app.orchestration.world import World
from app.ports import Clock, Engine, EngineProfile
from app.settings import EngineSettings, Settings

READER_CAPACITY = 4_096
"""Events that may wait for one live reader."""
REMEMBERED_IDS = 10_000
"""Ended executions whose request_id is still refused."""
LAG_WARNING_S = 0.5
_GC_THRESHOLDS = (50_000, 20, 50)
"""Measured: after freezing what start-up made, 1.37 times the requests and a quarter of the p99."""

PATTERNS: Mapping[Mode, Pattern] = MappingProxyType(
    {
        Mode.CHAT: Pattern(agent_loop.agent_loop, agent_loop.VERSION),
        Mode.STRUCTURED: Pattern(specialized_loop.specialized_loop, specialized_loop.VERSION),
        Mode.REDUNDANT: Pattern(redundant_loop.redundant_loop, redundant_loop.VERSION),
        Mode.PLAN: Pattern(plan_executor.plan_executor, plan_executor.VERSION),
    }
)


class Readiness(BaseModel):
    """Whether this replica takes work."""

    ready: bool = Field(description="Whether it does.")
    reason: str | None = Field(None, description="Why not.")


@dataclass(frozen=True, slots=True)
class Service:
    """Everything that runs in one process, as entry points see it."""

    facade: Facade
    settings: Settings
    telemetry: MetricsSink
    runner: InlineRunner

    def metrics(self) -> tuple[bytes, str]:
        """The Prometheus exposition and its content type."""
        return self.telemetry.render()

    def refused(self, code: Code) -> None:
        """Counts a request that never became an execution."""
        self.telemetry.refused(code)

    def readiness(self) -> Readiness:
        """Not ready while it drains."""
        return Readiness(ready=False, reason="draining") if self.runner.draining else Readiness(ready=True)

    async def drain(self) -> None:
        """Takes no new work, and returns when running executions have ended; at `drain_seconds` they are cancelled."""
        await self.runner.drain(self.facade.cancel_all)


@asynccontextmanager
async def open_service(settings: Settings, patterns: Mapping[Mode, Pattern] = PATTERNS) -> AsyncIterator[Service]:
    """One service, open until the context ends. Raises: ConfigurationFailure."""
    clock = SystemClock()
    logger = open_logger(settings.telemetry.log_level, clock)
    route_stdlib(logger, settings.telemetry.log_level)
    registry = ToolRegistry(*BUILTIN_TOOLS)
    patterns = _planned(patterns, settings, registry)
    logs = LogSink(logger)
    metrics = MetricsSink(providers=settings.engines, tools=registry.names())
    async with AsyncExitStack() as stack, open_session() as session, anyio.create_task_group() as group:
        runner = InlineRunner(
            group,
            max_in_flight=settings.server.max_in_flight,
            drain_seconds=settings.server.drain_seconds,
            on_bug=partial(_bug, logs, metrics),
        )
        metrics.read_in_flight(lambda: runner.in_flight)
        group.start_soon(partial(watch_lag, clock, metrics.lag, logs.lag, threshold=LAG_WARNING_S))
        engines = {name: _engine(name, settings, clock, session, stack) for name in settings.engines}
        world = _world(settings, clock, engines, registry, _bus(logs, metrics))
        facade = Facade(world, runner, patterns, limits=_limits(settings), currency=settings.telemetry.currency)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        yield Service(facade, settings, metrics, runner)
        await runner.drain(facade.cancel_all)
        group.cancel_scope.cancel()


def _bug(logs: LogSink, metrics: MetricsSink, execution_id: str, bug: Exception) -> None:
    logs.bug(execution_id, bug)
    metrics.bug("execution")


def _bus(logs: LogSink, metrics: MetricsSink) -> EventBus:
    def on_fault(fault: Exception) -> None:
        logs.fault(fault)
        metrics.bug("sink")

    return EventBus([metrics, logs], capacity=READER_CAPACITY, on_fault=on_fault, on_drop=metrics.reader_dropped)


def _world(
    settings: Settings, clock: Clock, engines: Mapping[str, Engine], registry: ToolRegistry, bus: EventBus
) -> World:
    entropy = SystemEntropy(clock)
    routes = settings.routes.items()
    moving = [name for name, route in routes if route.on_content_failure == "next"]
    return World(
        journal=MemoryJournal(clock, bus, keep_ended=REMEMBERED_IDS),
        clock=clock,
        entropy=entropy,
        watchers=bus,
        catalogue=Catalogue(engines, {name: route.engines for name, route in routes}, moving=moving),
        registry=registry,
        tools=ToolExecutor(registry, clock, entropy, settings.limits.tool_result_bytes),
        health=ProviderHealth(_policy(settings), clock, list(engines)),
        counter=EstimatingCounter(),
        workers=Threads(),
    )


def _planned(patterns: Mapping[Mode, Pattern], settings: Settings, registry: ToolRegistry) -> Mapping[Mode, Pattern]:
    """The patterns, with what plans for the one that needs it. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    static = settings.planner.steps if settings.planner.kind == "static" else None
    against = None if static is None else held_against(static, settings.plan_policy(registry.names()))
    if against is not None:
        told = (f"planner.{each['path']}: {each['message']}" for each in against.details["violations"])
        raise ConfigurationFailure(Code.CONFIG_INVALID, "; ".join(told))
    return {
        mode: replace(pattern, planning=partial(plan, static=static), static=static) if mode is Mode.PLAN else pattern
        for mode, pattern in patterns.items()
    }


def _limits(settings: Settings) -> ConfiguredLimits:
    limits = settings.limits
    return ConfiguredLimits(
        messages=limits.messages,
        tools=limits.tools,
        tool_rounds=limits.tool_rounds,
        calls_per_reply=limits.calls_per_reply,
        timeout=limits.timeout,
        max_retries=settings.failover.max_retries,
        attempts=limits.attempts,
        replicas=limits.replicas,
        plan_steps=limits.plan_steps,
    )


def _policy(settings: Settings) -> FailoverPolicy:
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


@dataclass(frozen=True, slots=True)
class Making:
    """What an engine is made of; what it opens is closed with the `stack`."""

    engine: EngineSettings
    profile: EngineProfile
    settings: Settings
    clock: Clock
    session: Session
    stack: AsyncExitStack

    @property
    def timeouts(self) -> Timeouts:
        """How long this engine is waited for."""
        failover = self.settings.failover
        return Timeouts(
            connect=failover.connect_timeout,
            attempt=failover.attempt_timeout,
            first_token=failover.first_token_timeout,
            idle=failover.idle_timeout,
        )


def _http(making: Making, dialect: Dialect) -> Engine:
    address = making.engine.model.address
    base_url = making.engine.base_url or (f"http://{address}" if address else dialect.base_url)
    caps = Caps(making.settings.limits.upstream_bytes, making.settings.limits.upstream_line_bytes)
    endpoint = Endpoint(base_url, making.engine.api_key.read, making.timeouts, caps)
    return HttpEngine(making.profile, dialect, endpoint=endpoint, session=making.session, clock=making.clock)


def _openai(making: Making) -> Engine:
    """OpenAI speaks two dialects; the others that use this scheme speak the older."""
    api = making.engine.api or ("responses" if needs_responses(making.profile.model) else "chat_completions")
    return _http(making, Responses() if api == "responses" else ChatCompletions())


def _anthropic(making: Making) -> Engine:
    return _http(making, Messages())


def _gemini(making: Making) -> Engine:
    return _http(making, GenerateContent())


def _ollama(making: Making) -> Engine:
    return _http(making, OllamaChat())


def _llamacpp(making: Making) -> Engine:
    engine = LlamaCppEngine(making.profile, making.timeouts)
    making.stack.push_async_exit(engine)
    return engine


def _scripted(making: Making) -> Engine:
    return ScriptedEngine.from_file(making.profile, Path(making.engine.model.model), making.clock)


def _rehearsal(making: Making) -> Engine:
    return RehearsalEngine(making.profile, making.clock)


ENGINES: Mapping[str, Callable[[Making], Engine]] = MappingProxyType(
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


def _engine(name: str, settings: Settings, clock: Clock, session: Session, stack: AsyncExitStack) -> Engine:
    engine = settings.engines[name]
    profile = EngineProfile(
        name=name,
        model=engine.model.model,
        scheme=engine.model.scheme,
        context_window=engine.context_window,
        response_reserve=engine.response_reserve,
        options=frozenset(engine.options),
        price=None if engine.price is None else (engine.price.input, engine.price.output),
        capabilities=replace(CAPABILITIES[engine.model.scheme], **engine.capabilities),
    )
    return ENGINES[profile.scheme](Making(engine, profile, settings, clock, session, stack))
