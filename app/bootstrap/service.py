"""The composition root: opens resources, picks adapters, yields one Service.

Here alone a port and its adapter are named in one breath: an engine, a tool or a pattern more is a row more.
"""

import gc
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import anyio
from pydantic import BaseModel, Field

from app.adapters.engines.http.aiohttp_transport import open_session
from app.adapters.event_bus import EventBus
from app.adapters.grammar_directory import read_grammars
from app.adapters.runners.dbos import DbosRunner
from app.adapters.runners.local import LocalRunner
from app.adapters.runners.log_tailer import LogTailer
from app.adapters.runners.maintenance import StorageHealth
from app.adapters.runners.task_pool import TaskPool, open_task_pool
from app.adapters.stores.executions.store import DatabaseExecutionStore
from app.adapters.stores.factory import open_database, open_read_only
from app.adapters.stores.journal.stored_journal import JournalConfig, open_journal
from app.adapters.stores.journal.writer import WriterCallbacks
from app.adapters.stores.sessions import DatabaseSessions
from app.adapters.system import SystemClock, SystemEntropy
from app.adapters.telemetry.logs import LogSink, open_logger, route_standard_logging
from app.adapters.telemetry.loop_lag import watch_loop_lag
from app.adapters.telemetry.metrics import MetricsSink
from app.adapters.thread_pool import WorkerThread
from app.adapters.tools.builtin import BUILTIN_TOOLS
from app.bootstrap.engines import build_engine
from app.bootstrap.replicas import MaintenanceJobs, queue_limits, replica_for
from app.capabilities.models.breaker import FailoverPolicy
from app.capabilities.models.catalogue import EngineCatalogue
from app.capabilities.models.failover import ProviderHealth
from app.capabilities.models.tokens import EstimatingTokenCounter
from app.capabilities.tools.executor import ToolExecutor
from app.capabilities.tools.registry import ToolRegistry
from app.domain.failures import Code, ConfigurationFailure, Failure
from app.domain.ids import ExecutionId, ReplicaId
from app.domain.lifecycle import Mode
from app.orchestration.admission import ConfiguredLimits
from app.orchestration.execution.environment import Environment
from app.orchestration.execution.pattern import Pattern
from app.orchestration.facade import Facade, FacadeConfig
from app.orchestration.patterns import agent_loop, plan_executor, redundant_loop, specialized_loop
from app.orchestration.planning.planner import make_plan, refusal_of
from app.orchestration.runtime.handle import LocalExecutions
from app.orchestration.runtime.launcher import Launcher
from app.orchestration.runtime.recovery import Recovery
from app.orchestration.runtime.replay import HistoryReader
from app.ports.events import EventSink
from app.ports.journal import Journal
from app.ports.model import Engine
from app.ports.runtime import Clock, Entropy
from app.ports.storage import SessionStore
from app.settings import ServerSettings, Settings

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
_SWITCH_INTERVAL_S = 0.001
"""Seconds after which the worker thread hands the interpreter over to the event loop; 5 ms by default [measured: half
the latency of other clients beside a long computation].
"""

PATTERNS: Mapping[Mode, Pattern] = MappingProxyType(
    {
        Mode.CHAT: agent_loop.PATTERN,
        Mode.STRUCTURED: specialized_loop.PATTERN,
        Mode.REDUNDANT: redundant_loop.PATTERN,
        Mode.PLAN: replace(plan_executor.PATTERN, plan=make_plan),
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
    runner: LocalRunner | DbosRunner
    local: LocalExecutions
    health: StorageHealth

    def metrics(self) -> tuple[bytes, str]:
        """The Prometheus exposition and its content type."""
        return self.telemetry.render()

    def count_refusal(self, code: Code) -> None:
        """Counts a request that never became an execution."""
        self.telemetry.count_refused(code)

    def readiness(self) -> Readiness:
        """Not ready while it drains, and while the database does not answer."""
        if self.runner.is_draining:
            return Readiness(ready=False, reason="draining")
        return Readiness(ready=False, reason="storage") if self.health.storage_is_down else Readiness(ready=True)

    async def drain(self) -> None:
        """Takes no new work, and returns when running executions have ended.

        Readers of what does not run here are sent away first. At `drain_seconds` those held in memory are cancelled,
        and journaled ones left to the next owner.
        """
        self.local.disconnect_idle()
        await self.runner.drain(self.local.shut_down)


@asynccontextmanager
async def open_service(settings: Settings, patterns: Mapping[Mode, Pattern] = PATTERNS) -> AsyncIterator[Service]:
    """One service, open until the context ends. Raises: ConfigurationFailure."""
    clock, registry = SystemClock(), ToolRegistry(*BUILTIN_TOOLS)
    logs, entropy = _logs(settings, clock), SystemEntropy(clock)
    patterns = _planned(patterns, settings, registry)
    metrics = MetricsSink(providers=settings.engines, tools=registry.names())

    def fail_unsaved(execution_id: ExecutionId, failure: Failure) -> None:
        launcher.local.fail_unsaved(execution_id, failure)

    loss = WriterCallbacks(fail_unsaved, metrics.count_dropped_record, partial(_fault, logs, metrics, "writer"))
    on_fault = partial(logs.log_fault, place="storage")
    async with (
        AsyncExitStack() as stack,
        open_session() as session,
        open_database(settings.storage.url, clock, entropy) as database,
    ):
        replica = replica_for(database, clock, ReplicaId(entropy.uuid7()), settings.storage)
        bus = _bus(logs, metrics, replica.sinks)
        async with (
            open_journal(database, bus, clock, JournalConfig(replica.owner, REMEMBERED_IDS), loss) as journal,
            anyio.create_task_group() as group,
            _slots(settings.server, partial(_bug, logs, metrics)) as slots,
        ):
            store = DatabaseExecutionStore(database, clock, replica.owner, bus, replica.cancel)
            runner = replica.runner(slots, queue_limits(settings.queue), store, on_fault)
            metrics.observe_in_flight(lambda: runner.in_flight)
            group.start_soon(partial(watch_loop_lag, clock, metrics.observe_lag, logs.log_lag, threshold=LAG_WARNING_S))
            engines = {name: build_engine(name, settings, clock, session, stack) for name in settings.engines}
            world = _world(settings, Means(clock, entropy, journal, DatabaseSessions(database), bus), engines, registry)
            launcher = Launcher(world, runner, patterns)
            recovery, following = Recovery(store, launcher), LogTailer(store, bus)
            facade = Facade(
                world, store, _deployment(settings), launcher=launcher, recovery=recovery, event_tailer=following
            )
            jobs = MaintenanceJobs(recovery, following, partial(_forget, store, clock, settings), on_fault)
            async with runner.serving(recovery.run_ticket), replica.maintenance(group, jobs):
                _settle_down()
                yield Service(facade, settings, metrics, runner, launcher.local, jobs.health)
                await runner.drain(launcher.local.shut_down)
            group.cancel_scope.cancel()


@asynccontextmanager
async def open_history_reader(settings: Settings) -> AsyncIterator[HistoryReader]:
    """What is stored, beside the service that owns it. Raises: ConfigurationFailure, StorageFailure."""
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    patterns = _planned(PATTERNS, settings, ToolRegistry(*BUILTIN_TOOLS))
    async with open_read_only(settings.storage.url, clock, entropy) as database:
        logs = LogSink(open_logger(settings.telemetry.log_level, clock))
        yield HistoryReader(DatabaseExecutionStore(database, clock, ReplicaId(entropy.uuid7()), logs), patterns)


def _logs(settings: Settings, clock: Clock) -> LogSink:
    """Where everything is told, what libraries say included."""
    logger = open_logger(settings.telemetry.log_level, clock)
    route_standard_logging(logger, settings.telemetry.log_level)
    return LogSink(logger)


def _slots(
    server: ServerSettings, on_bug: Callable[[ExecutionId, Exception], None]
) -> AbstractAsyncContextManager[TaskPool]:
    return open_task_pool(max_in_flight=server.max_in_flight, drain_seconds=server.drain_seconds, on_bug=on_bug)


def _settle_down() -> None:
    """What there is now will stay; only what comes is looked through for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


async def _forget(store: DatabaseExecutionStore, clock: Clock, settings: Settings) -> None:
    """Drops journals and events of what ended long ago, some at a time."""
    before = clock.now() - settings.storage.event_retention_days * 86_400
    while await store.purge(ended_before=before, limit=FORGOTTEN_AT_ONCE) == FORGOTTEN_AT_ONCE:
        pass


def _bug(logs: LogSink, metrics: MetricsSink, execution_id: ExecutionId, bug: Exception) -> None:
    logs.log_bug(execution_id, bug)
    metrics.count_bug("execution")


def _fault(logs: LogSink, metrics: MetricsSink, place: Literal["sink", "writer"], fault: Exception) -> None:
    logs.log_fault(fault, place)
    metrics.count_bug(place)


def _bus(logs: LogSink, metrics: MetricsSink, others: Sequence[EventSink]) -> EventBus:
    on_fault, on_drop = partial(_fault, logs, metrics, "sink"), metrics.count_dropped_reader
    return EventBus([metrics, logs, *others], capacity=READER_CAPACITY, on_fault=on_fault, on_drop=on_drop)


@dataclass(frozen=True, slots=True)
class Means:
    """What everything else acts by."""

    clock: Clock
    entropy: Entropy
    journal: Journal
    conversations: SessionStore
    bus: EventBus


def _world(settings: Settings, means: Means, engines: Mapping[str, Engine], registry: ToolRegistry) -> Environment:
    clock, entropy = means.clock, means.entropy
    routes = settings.routes.items()
    moving = [name for name, route in routes if route.on_content_failure == "next"]
    return Environment(
        journal=means.journal,
        clock=clock,
        entropy=entropy,
        event_feed=means.bus,
        catalogue=EngineCatalogue(engines, {name: route.engines for name, route in routes}, rerouting=moving),
        tool_registry=registry,
        tool_executor=ToolExecutor(registry, clock, entropy, settings.limits.tool_result_bytes),
        health=ProviderHealth(_policy(settings), clock, list(engines)),
        token_counter=EstimatingTokenCounter(),
        thread_pool=WorkerThread(),
        conversations=means.conversations,
    )


def _planned(patterns: Mapping[Mode, Pattern], settings: Settings, registry: ToolRegistry) -> Mapping[Mode, Pattern]:
    """The patterns, with what plans for the one that needs it. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    static = settings.planner.steps if settings.planner.kind == "static" else None
    against = None if static is None else refusal_of(static, settings.plan_policy(registry.names()))
    if against is not None:
        told = (f"planner.{each['path']}: {each['message']}" for each in against.details["violations"])
        raise ConfigurationFailure(Code.CONFIG_INVALID, "; ".join(told))
    return {
        mode: pattern if pattern.plan is None else replace(pattern, static_plan=static)
        for mode, pattern in patterns.items()
    }


def _deployment(settings: Settings) -> FacadeConfig:
    directory = settings.grammars.directory
    grammars = {} if directory is None else read_grammars(Path(directory))
    return FacadeConfig(_limits(settings), settings.telemetry.currency, grammars)


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
