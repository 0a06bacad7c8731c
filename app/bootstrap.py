"""The composition root: opens resources, picks adapters, yields one Service.

Here alone a port and its adapter are named in one breath: an engine, a tool or a pattern more is a row more.
"""

import gc
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import anyio
from pydantic import BaseModel, Field

from app.adapters.clock import SystemClock
from app.adapters.durable.dbos import DbosRunner
from app.adapters.durable.following import Following
from app.adapters.durable.inline import InlineRunner
from app.adapters.durable.slots import Slots, open_slots
from app.adapters.durable.tending import Health
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
from app.adapters.grammars import read_grammars
from app.adapters.stores.beside import open_beside
from app.adapters.stores.conversations import DatabaseConversations
from app.adapters.stores.journal import Keeping, open_journal
from app.adapters.stores.opening import open_database
from app.adapters.stores.store import DatabaseStore
from app.adapters.stores.writer import Loss
from app.adapters.telemetry.lag import watch_lag
from app.adapters.telemetry.logs import LogSink, open_logger, route_stdlib
from app.adapters.telemetry.metrics import MetricsSink
from app.adapters.threads import Threads
from app.adapters.tools.builtin import BUILTIN_TOOLS
from app.adapters.turns import Turns
from app.capabilities.failover import FailoverPolicy, ProviderHealth
from app.capabilities.inference import CAPABILITIES, Catalogue
from app.capabilities.tokens import EstimatingCounter
from app.capabilities.tools.executor import ToolExecutor
from app.capabilities.tools.registry import ToolRegistry
from app.domain.failures import Code, ConfigurationFailure, Failure
from app.domain.lifecycle import Mode
from app.keeping import Conversations
from app.orchestration.admission import ConfiguredLimits
from app.orchestration.facade import Deployment, Facade
from app.orchestration.patterns import agent_loop, plan_executor, redundant_loop, specialized_loop
from app.orchestration.planning.planner import held_against, plan
from app.orchestration.replaying import Archive
from app.orchestration.running import Launcher, Pattern
from app.orchestration.world import World
from app.ports import Clock, Engine, EngineProfile, Entropy, EventSink, Journal
from app.replication import Tended, limits_of, replica_on
from app.settings import EngineSettings, ServerSettings, Settings

READER_CAPACITY = 4_096
"""Events that may wait for one live reader."""
REMEMBERED_IDS = 10_000
"""Ended executions whose request_id is still refused."""
FORGOTTEN_AT_ONCE = 500
LAG_WARNING_S = 0.5
_GC_THRESHOLDS = (10_000, 3, 100)
"""Measured: after freezing what start-up made, 1.37 times the requests and a quarter of the p99.

All but the rarest passes look through 40,000 objects at most, since everybody waits for the end of one.
"""

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
    runner: InlineRunner | DbosRunner
    health: Health

    def metrics(self) -> tuple[bytes, str]:
        """The Prometheus exposition and its content type."""
        return self.telemetry.render()

    def refused(self, code: Code) -> None:
        """Counts a request that never became an execution."""
        self.telemetry.refused(code)

    def readiness(self) -> Readiness:
        """Not ready while it drains, and while the database does not answer."""
        if self.runner.draining:
            return Readiness(ready=False, reason="draining")
        return Readiness(ready=False, reason="storage") if self.health.storage_is_down else Readiness(ready=True)

    async def drain(self) -> None:
        """Takes no new work, and returns when running executions have ended.

        Readers of what does not run here are sent away first. At `drain_seconds` those held in memory are cancelled,
        and journaled ones left to the next owner.
        """
        self.facade.dismiss_waiting()
        await self.runner.drain(self.facade.stop_all)


@asynccontextmanager
async def open_service(settings: Settings, patterns: Mapping[Mode, Pattern] = PATTERNS) -> AsyncIterator[Service]:
    """One service, open until the context ends. Raises: ConfigurationFailure."""
    clock = SystemClock()
    logs = _logs(settings, clock)
    registry = ToolRegistry(*BUILTIN_TOOLS)
    patterns = _planned(patterns, settings, registry)
    metrics = MetricsSink(providers=settings.engines, tools=registry.names())
    entropy = SystemEntropy(clock)

    def lost(execution_id: str, failure: Failure) -> None:
        launcher.lose(execution_id, failure)

    loss = Loss(lost, metrics.record_dropped, partial(_fault, logs, metrics, "writer"))
    on_fault = partial(logs.fault, place="storage")
    async with (
        AsyncExitStack() as stack,
        open_session() as session,
        open_database(settings.storage.url, clock, entropy) as database,
    ):
        replica = replica_on(database, clock, entropy.uuid7(), settings.storage)
        bus = _bus(logs, metrics, replica.sinks)
        async with (
            open_journal(database, bus, clock, Keeping(replica.owner, REMEMBERED_IDS), loss) as journal,
            anyio.create_task_group() as group,
            _slots(settings.server, partial(_bug, logs, metrics)) as slots,
        ):
            store = DatabaseStore(database, clock, replica.owner, bus, replica.cancel)
            runner = replica.runner(slots, limits_of(settings.queue), store, on_fault)
            metrics.read_in_flight(lambda: runner.in_flight)
            group.start_soon(partial(watch_lag, clock, metrics.lag, logs.lag, threshold=LAG_WARNING_S))
            engines = {name: _engine(name, settings, clock, session, stack) for name in settings.engines}
            means = Means(clock, entropy, journal, DatabaseConversations(database), bus)
            world = _world(settings, means, engines, registry)
            launcher = Launcher(world, runner, patterns)
            following = Following(store, bus)
            facade = Facade(world, store, launcher=launcher, deployment=_deployment(settings), followers=following)
            tended = Tended(facade.executions.ownership, following, partial(_forget, store, clock, settings), on_fault)
            async with runner.attending(facade.executions.ownership.advance), replica.tending(group, tended):
                _settle_down()
                yield Service(facade, settings, metrics, runner, tended.health)
                await runner.drain(facade.stop_all)
            group.cancel_scope.cancel()


@asynccontextmanager
async def open_archive(settings: Settings) -> AsyncIterator[Archive]:
    """What is stored, beside the service that owns it. Raises: ConfigurationFailure, StorageFailure."""
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    patterns = _planned(PATTERNS, settings, ToolRegistry(*BUILTIN_TOOLS))
    async with open_beside(settings.storage.url, clock, entropy) as database:
        logs = LogSink(open_logger(settings.telemetry.log_level, clock))
        yield Archive(DatabaseStore(database, clock, entropy.uuid7(), logs), patterns)


def _logs(settings: Settings, clock: Clock) -> LogSink:
    """Where everything is told, what libraries say included."""
    logger = open_logger(settings.telemetry.log_level, clock)
    route_stdlib(logger, settings.telemetry.log_level)
    return LogSink(logger)


def _slots(server: ServerSettings, on_bug: Callable[[str, Exception], None]) -> AbstractAsyncContextManager[Slots]:
    return open_slots(max_in_flight=server.max_in_flight, drain_seconds=server.drain_seconds, on_bug=on_bug)


def _settle_down() -> None:
    """What there is now will stay; only what comes is looked through for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


async def _forget(store: DatabaseStore, clock: Clock, settings: Settings) -> None:
    """Drops journals and events of what ended long ago, some at a time."""
    before = clock.now() - settings.storage.event_retention_days * 86_400
    while await store.forget(ended_before=before, limit=FORGOTTEN_AT_ONCE) == FORGOTTEN_AT_ONCE:
        pass


def _bug(logs: LogSink, metrics: MetricsSink, execution_id: str, bug: Exception) -> None:
    logs.bug(execution_id, bug)
    metrics.bug("execution")


def _fault(logs: LogSink, metrics: MetricsSink, place: Literal["sink", "writer"], fault: Exception) -> None:
    logs.fault(fault, place)
    metrics.bug(place)


def _bus(logs: LogSink, metrics: MetricsSink, others: Sequence[EventSink]) -> EventBus:
    on_fault, on_drop = partial(_fault, logs, metrics, "sink"), metrics.reader_dropped
    return EventBus([metrics, logs, *others], capacity=READER_CAPACITY, on_fault=on_fault, on_drop=on_drop)


@dataclass(frozen=True, slots=True)
class Means:
    """What everything else acts by."""

    clock: Clock
    entropy: Entropy
    journal: Journal
    conversations: Conversations
    bus: EventBus


def _world(settings: Settings, means: Means, engines: Mapping[str, Engine], registry: ToolRegistry) -> World:
    clock, entropy = means.clock, means.entropy
    routes = settings.routes.items()
    moving = [name for name, route in routes if route.on_content_failure == "next"]
    return World(
        journal=means.journal,
        clock=clock,
        entropy=entropy,
        watchers=means.bus,
        catalogue=Catalogue(engines, {name: route.engines for name, route in routes}, moving=moving),
        registry=registry,
        tools=ToolExecutor(registry, clock, entropy, settings.limits.tool_result_bytes),
        health=ProviderHealth(_policy(settings), clock, list(engines)),
        counter=EstimatingCounter(),
        turns=Turns(),
        workers=Threads(),
        conversations=means.conversations,
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


def _deployment(settings: Settings) -> Deployment:
    directory = settings.grammars.directory
    grammars = {} if directory is None else read_grammars(Path(directory))
    return Deployment(_limits(settings), settings.telemetry.currency, grammars)


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
        history_messages=limits.history_messages,
        history_tokens=limits.history_tokens,
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
