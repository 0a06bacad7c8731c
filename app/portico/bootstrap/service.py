"""Composition root: opens resources, chooses adapters, and yields one Service.

Only this package names both a port and its adapter. `engines.py` has the table of engines, `replicas.py` the parts that
depend on the database: one replica on SQLite, several on PostgreSQL.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self

import anyio
from anyio.abc import TaskGroup
from pydantic import BaseModel, Field

from portico.adapters.audit.refusals import RefusalLog
from portico.adapters.engines.http.aiohttp_transport import HttpSession, open_session
from portico.adapters.event_bus import EventBus
from portico.adapters.grammar_directory import read_grammars
from portico.adapters.prompt_directory import read_prompts
from portico.adapters.runners.dbos import DbosRunner
from portico.adapters.runners.local import LocalRunner
from portico.adapters.runners.log_tailer import LogTailer
from portico.adapters.runners.task_pool import TaskPool, open_task_pool
from portico.adapters.stores.executions.statistics import StorageStatistics
from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.factory import open_database, open_read_only
from portico.adapters.stores.health import StorageHealth
from portico.adapters.stores.journal.stored_journal import JournalConfig, open_journal
from portico.adapters.stores.journal.writer import WriterCallbacks
from portico.adapters.stores.sessions import DatabaseSessions
from portico.adapters.stores.sqlite import SqliteDatabase
from portico.adapters.system import SystemClock, SystemEntropy
from portico.adapters.telemetry.logs import LogSink, log_refused_key
from portico.adapters.telemetry.loop_lag import watch_loop_lag
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.adapters.thread_pool import WorkerThread
from portico.adapters.tools.code.interpreter import installed_interpreter
from portico.adapters.tools.files.store import DirectoryFiles
from portico.adapters.tools.threads import DaemonThreads
from portico.adapters.validation.worker_pool import WorkerLimits, open_worker_pool
from portico.bootstrap.access import AccessReports, key_parts, open_access
from portico.bootstrap.agents import agent_source, check_agents, configured_agents
from portico.bootstrap.changes import start_changes
from portico.bootstrap.engines import (
    EngineResources,
    build_engine,
    engine_catalogue,
    failover_policy,
    metrics_sink,
    observe_engines,
)
from portico.bootstrap.facade_stores import facade_stores
from portico.bootstrap.files import session_files
from portico.bootstrap.flows import (
    LoadedFlow,
    check_aliases,
    check_flows,
    load_flows,
    open_flows,
    served_flows,
    with_agents,
)
from portico.bootstrap.guards import configured_guards
from portico.bootstrap.interpreter import tuned_interpreter
from portico.bootstrap.limits import LimitAccounts, LimitReports, open_limits
from portico.bootstrap.logs import log_sink
from portico.bootstrap.memory import MemoryResources, check_embedder, start_memory
from portico.bootstrap.modules import PlanModules, load_plan_modules, load_rules
from portico.bootstrap.replicas import ClusteredReplica, MaintenanceJobs, SingleReplica, queue_limits, replica_for
from portico.bootstrap.retention import purge_job
from portico.bootstrap.schedules import start_schedules
from portico.bootstrap.secrets import seal_for
from portico.bootstrap.skills import SkillReload, open_skills
from portico.bootstrap.timers import timer_reports
from portico.bootstrap.tools import ToolParts, check_tool_names, open_registry, open_tools, tool_executor
from portico.bootstrap.tracing import observed, open_server_spans, open_traces
from portico.bootstrap.webhooks import WebhookResources, announcements_of, start_webhooks
from portico.capabilities.guards.catalogue import NO_GUARDS, GuardCatalogue
from portico.capabilities.memory.embedder import EmbeddingAccounts
from portico.capabilities.models.deployments import DeployedEngine
from portico.capabilities.models.health import ProviderHealth
from portico.capabilities.output.rules.custom import BUILT_IN_RULES
from portico.capabilities.output.rules.rule_set import RuleRegistry
from portico.capabilities.prompting.registry import PromptRegistry, default_registry
from portico.capabilities.tools.agents import AgentCatalogue
from portico.capabilities.tools.arguments import plan_violations
from portico.capabilities.tools.planner_function import PlannerFunction
from portico.capabilities.tools.policy import ToolPolicy
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.contract.request import PlanStep
from portico.domain.failures import Code, ConfigurationFailure, Failure
from portico.domain.ids import ChannelName, ExecutionId, ReplicaId, RequestId
from portico.domain.lifecycle import Mode
from portico.domain.plan.parsed_plan import parse_plan
from portico.domain.tools import IsolationLevel
from portico.domain.value import value
from portico.orchestration.changes import Changes
from portico.orchestration.channels import Channels
from portico.orchestration.direct_calls import DirectCalls
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.facade import Facade, FacadeConfig, ReplicaInfo
from portico.orchestration.flow.flow_loop import flow_pattern
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.patterns import agent_loop, redundant_loop, specialized_loop
from portico.orchestration.planning import plan_mode
from portico.orchestration.planning.plan_check import refusal_of
from portico.orchestration.runtime.approval_answer import ApprovalConfig
from portico.orchestration.runtime.handle import LocalExecutions
from portico.orchestration.runtime.launcher import Launcher
from portico.orchestration.runtime.recovery import Recovery
from portico.orchestration.runtime.replay import HistoryReader
from portico.orchestration.schedules import Schedules
from portico.ports.access import Authenticator
from portico.ports.events import EventFeed, EventSink
from portico.ports.journal import Journal
from portico.ports.memory import MemorySearch
from portico.ports.model import Engine
from portico.ports.outbox import OutboxSource
from portico.ports.storage import SessionStore
from portico.ports.validation import AnswerValidator
from portico.settings import Settings

if TYPE_CHECKING:
    from portico.adapters.stores.postgres import PostgresDatabase
    from portico.adapters.telemetry.tracing.provider import Tracing
    from portico.adapters.telemetry.tracing.server_spans import ServerSpans

SUBSCRIPTION_CAPACITY = 4_096
"""Events that may be queued for one live subscription."""
REMEMBERED_IDS = 10_000
"""Number of ended executions whose request_id is still refused."""
LAG_WARNING_S = 0.5

PATTERNS: Mapping[Mode, Pattern] = MappingProxyType(
    {
        Mode.CHAT: agent_loop.PATTERN,
        Mode.STRUCTURED: specialized_loop.PATTERN,
        Mode.REDUNDANT: redundant_loop.PATTERN,
        Mode.PLAN: plan_mode.PATTERN,
        Mode.FLOW: flow_pattern({}),
    }
)


class Readiness(BaseModel):
    """Readiness of this replica for new work."""

    ready: bool = Field(description="True if new work is accepted.")
    reason: str | None = Field(None, description="Reason why it is not.")


@value
class Service:
    """Service of one process, as entry points see it."""

    facade: Facade
    settings: Settings
    telemetry: MetricsSink
    logs: LogSink
    runner: LocalRunner | DbosRunner
    local: LocalExecutions
    health: StorageHealth
    authenticator: Authenticator
    direct_calls: DirectCalls
    changes: Changes
    schedules: Schedules
    channels: Channels
    tracing: "Tracing | None" = None
    """What makes spans; None without a collector."""
    server_spans: "ServerSpans | None" = None
    """What makes the spans of HTTP requests; None without a collector."""
    refusals: RefusalLog | None = None
    """The audit of refused callers; None without an audit log."""
    skill_reload: SkillReload | None = None
    """The reload of the skills; None without a directory of them."""

    def metrics(self) -> tuple[bytes, str]:
        """Return the Prometheus exposition and its content type."""
        return self.telemetry.render()

    def record_refusal(self, failure: Failure, status: int, **request: str | None) -> None:
        """Count and log a request that did not become an execution; `request` describes it without its contents."""
        self.telemetry.count_refused(failure.code)
        self.logs.log_refusal(failure, request, status=status)
        if self.refusals is not None:
            self.refusals.add(failure, request.get("principal"))

    def link_request(self, gateway_request_id: str, **request: str) -> None:
        """Log under which id a gateway knows a request, which has these ids."""
        self.logs.log_link(gateway_request_id, request)

    def readiness(self) -> Readiness:
        """Return not ready once the process is stopping, and while the database does not answer."""
        if self.runner.is_leaving:
            return Readiness(ready=False, reason="draining")
        return Readiness(ready=False, reason="storage") if self.health.failure else Readiness(ready=True)

    def leave(self) -> None:
        """Say that this replica is not ready, and start no more queued executions; accept new work until the drain."""
        self.runner.leave()

    async def drain(self) -> None:
        """Accept no new work, and return when the running executions have ended.

        Subscriptions to executions that do not run here are ended first. After `drain_seconds`, executions in memory
        are cancelled, and journaled ones are left to the next owner.
        """
        self.local.disconnect_idle()
        self.changes.disconnect()
        if self.tracing is not None:
            self.tracing.queue.flush()
        await self.runner.drain(self.local.shut_down)


@asynccontextmanager
async def open_service(
    settings: Settings, patterns: Mapping[Mode, Pattern] = PATTERNS, *, reaches_servers: bool = True
) -> AsyncIterator[Service]:
    """Open the service until the context ends; it connects to MCP servers with a URL if it `reaches_servers`.

    Raises: ConfigurationFailure, StorageFailure.
    """
    base = Foundation.of(settings, reaches_servers=reaches_servers)
    clock, metrics, storage, owner = base.clock, base.metrics, settings.storage, ReplicaId(base.entropy.uuid7())
    announcements = announcements_of(settings)
    callbacks = base.writer_callbacks(
        lambda *lost: launcher.local.fail_unsaved(*lost),  # noqa: PLW0108 - made below
        lambda: webhooks.notify(clock.now()),
    )
    async with (
        open_traces(settings, owner, metrics, base.logs) as tracing,
        AsyncExitStack() as stack,
        open_session() as http,
        open_flows(base.flows, settings.flows) as flows,
        open_database(storage.url, clock, base.entropy, statement_timeout=storage.statement_timeout) as database,
    ):
        replica = replica_for(database, clock, owner, storage, timer_reports(base.logs, metrics))
        event_bus, traces = base.event_bus(replica.sinks, tracing), (tracing, open_server_spans(tracing, base.entropy))
        async with (
            open_limits(database, clock, replica.owner, settings, base.limit_reports()) as accounts,
            open_journal(
                database, event_bus, clock, _journal_config(owner, tracing, accounts, announcements), callbacks
            ) as journal,
            anyio.create_task_group() as group,
            open_worker_pool(WorkerLimits(rule_modules=settings.rules.modules)) as validator,
            base.open_task_pool() as task_pool,
            open_access(settings, database, clock, AccessReports(base.logs, metrics), group) as (callers, audit),
        ):
            await base.start_background_tasks(group)
            store = DatabaseExecutionStore(database, clock, replica.owner, event_bus, replica.cancel)
            runner = replica.runner(task_pool, queue_limits(settings), base.on_storage_error)
            engines, keys = base.engines(http, stack), key_parts(settings, database, callers, clock, base.entropy)
            memory = start_memory(database, settings, engines, base.memory_resources(accounts), group)
            shared = _webhook_resources(base, replica.owner, group, stack)
            webhooks = await start_webhooks(database, settings, replica.timers, announcements, shared)
            sessions, stores = DatabaseSessions(database), facade_stores(database, store, memory, keys, webhooks)
            environment = base.environment(journal, event_bus, sessions, engines, validator, accounts, memory.search)
            environment = replace(environment, grants=stores.grants)
            launcher = Launcher(observed(environment, tracing), runner, _all_patterns(patterns, flows, settings, base))
            recovery, tailer, local = Recovery(store, launcher, clock), LogTailer(store, event_bus), launcher.local
            config, purge = base.facade_config(flows, tracing, replica), purge_job(database, clock, storage, base.files)
            feed, live = start_changes(environment, stores, launcher=launcher, flows=flows, group=group)
            plain = Facade(environment, stores, config, launcher=launcher, recovery=recovery, tailer=tailer, live=live)
            measure, calls = base.observe_gauges(runner, environment.health, database).measure, DirectCalls(environment)
            jobs = MaintenanceJobs(recovery, tailer, feed, purge, database.check, measure, base.on_storage_error)
            schedules = start_schedules(plain, stores, announcements, replica, database, settings.limits, base.entropy)
            parts = (base.logs, runner, local, database.health, callers, calls, live, schedules, config.channels)
            async with _serving(runner, recovery, replica.maintenance(group, jobs), local):
                yield Service(audit.facade(plain), settings, metrics, *parts, *traces, audit.refusals, base.skills)
            group.cancel_scope.cancel()


@asynccontextmanager
async def _serving(
    runner: LocalRunner | DbosRunner,
    recovery: Recovery,
    maintenance: AbstractAsyncContextManager[None],
    local: LocalExecutions,
) -> AsyncIterator[None]:
    """Run queued executions and the periodic jobs, and at the end drain what runs."""
    async with runner.serving(recovery.run_ticket), maintenance, tuned_interpreter():
        yield
        await runner.drain(local.shut_down)


def open_offline(settings: Settings) -> AbstractAsyncContextManager[Service]:
    """Open the service without a connection to any MCP server that has a URL. Raises: as `open_service`."""
    return open_service(settings, reaches_servers=False)


@asynccontextmanager
async def open_history_reader(settings: Settings) -> AsyncIterator[HistoryReader]:
    """Open the stored histories for reading only, next to a running service.

    Raises: ConfigurationFailure, StorageFailure.
    """
    base = Foundation.of(settings, is_offline=True)
    patterns = _with_flows(_with_planner(PATTERNS, settings), served_flows(base.flows, settings.flows))
    async with open_read_only(settings.storage.url, base.clock, base.entropy) as database:
        store = DatabaseExecutionStore(database, base.clock, ReplicaId(base.entropy.uuid7()), base.logs)
        yield HistoryReader(store, patterns, installed_interpreter())


@value
class Foundation:
    """Parts of the service that need not be opened, and that all others are built from."""

    settings: Settings
    clock: SystemClock
    entropy: SystemEntropy
    flows: Mapping[str, LoadedFlow]
    grammars: Mapping[str, str]
    prompts: PromptRegistry
    agents: AgentCatalogue
    guards: GuardCatalogue
    skills: SkillReload | None
    rules: RuleRegistry
    plan_modules: PlanModules
    tools: ToolRegistry
    tool_threads: DaemonThreads
    tool_parts: ToolParts
    files: DirectoryFiles | None
    logs: LogSink
    metrics: MetricsSink

    @classmethod
    def of(cls, settings: Settings, *, is_offline: bool = False, reaches_servers: bool = True) -> Self:
        """Create the parts; from then on, logs of libraries are written by the service's logger, too.

        An offline replay calls no function, asks no model and reads what rules and planners of modules found, so none
        of those that are configured has to be there. Raises: ConfigurationFailure for what cannot be used.
        """
        flows = load_flows(settings.flows, settings.directory)
        grammars = {} if settings.grammars.directory is None else read_grammars(Path(settings.grammars.directory))
        directory = None if is_offline else settings.prompts.directory
        prompts = default_registry() if directory is None else read_prompts(Path(directory))
        rules = BUILT_IN_RULES if is_offline else load_rules(settings.rules.modules, settings.directory)
        plan = PlanModules() if is_offline else load_plan_modules(settings.plan.modules, settings.directory)
        clock, threads = SystemClock(), DaemonThreads(settings.tools.threads)
        logs = log_sink(settings, clock)
        parts = ToolParts() if is_offline else open_tools(settings, logs, flows, reaches_servers=reaches_servers)
        check_embedder(settings)
        agents = configured_agents(settings, grammars)
        if not is_offline:
            check_agents(agents, parts.sources, rules, settings.tools.mcp)
        flows = with_agents(flows, agents)
        policy, types = ToolPolicy(settings.policy.rules()), plan.step_types
        tools = open_registry(
            [*parts.sources, agent_source(agents, parts.sources)], clock, threads, policy, tuple(types.values())
        )
        if not is_offline:
            check_tool_names(settings, tools)
        metrics = metrics_sink(settings, tools, types)
        return cls(
            settings=settings,
            clock=clock,
            entropy=SystemEntropy(clock),
            flows=flows,
            grammars=grammars,
            prompts=prompts,
            agents=agents,
            guards=NO_GUARDS if is_offline else configured_guards(settings, rules),
            skills=None if is_offline else open_skills(settings, agents, logs.log_warning),
            rules=rules,
            plan_modules=plan,
            tools=tools,
            tool_threads=threads,
            tool_parts=parts,
            files=session_files(parts.files),
            logs=logs,
            metrics=metrics,
        )

    def engines(self, http: HttpSession, stack: AsyncExitStack) -> dict[str, Engine | DeployedEngine]:
        """Return the configured engines by name. Raises: ConfigurationFailure."""
        resources = EngineResources(self.clock, http, stack, self.metrics.count_unknown_frames)
        return {name: build_engine(name, self.settings, resources) for name in self.settings.engines}

    def event_bus(self, sinks: Sequence[EventSink], tracing: "Tracing | None") -> EventBus:
        """Return the bus that publishes events to metrics, logs, traces and these sinks."""
        traces = () if tracing is None else (tracing.sink,)
        return EventBus(
            (self.metrics, self.logs, *traces, *sinks),
            (self.metrics, *traces),
            capacity=SUBSCRIPTION_CAPACITY,
            on_fault=partial(self._on_error, "sink"),
            on_drop=partial(self.metrics.count_dropped, "reader"),
        )

    def writer_callbacks(
        self, fail_unsaved: Callable[[ExecutionId, Failure], None], on_announced: Callable[[], None]
    ) -> WriterCallbacks:
        """Return the callbacks of the journal's writer."""
        dropped, on_bug = partial(self.metrics.count_dropped, "record"), partial(self._on_error, "writer")
        return WriterCallbacks(fail_unsaved, dropped, on_bug, self._on_unstored, on_announced)

    def open_task_pool(self) -> AbstractAsyncContextManager[TaskPool]:
        """Return the pool of the tasks that run executions."""
        server = self.settings.server
        return open_task_pool(
            max_in_flight=server.max_in_flight, drain_seconds=server.drain_seconds, on_bug=self._on_bug
        )

    def observe_gauges(
        self,
        runner: LocalRunner | DbosRunner,
        providers: ProviderHealth,
        database: "SqliteDatabase | PostgresDatabase",
    ) -> StorageStatistics:
        """Let the metrics read the numbers that no event has, and return those of the database, to be measured."""
        observe, statistics = self.metrics.observe, StorageStatistics(database)
        observe("portico_executions_in_flight", lambda: runner.in_flight)
        observe("portico_executions_waiting", lambda: statistics.waiting)
        observe("portico_tool_threads_abandoned", lambda: self.tool_threads.abandoned)
        observe("portico_storage_bytes", lambda: statistics.size_bytes)
        observe("portico_storage_up", lambda: database.health.failure is None)
        if (sandbox := self.tool_parts.sandbox) is not None:
            for level in IsolationLevel:
                observe("portico_sandbox_runs_total", partial(sandbox.run_count, level), level)
        observe_engines(observe, providers)
        return statistics

    async def start_background_tasks(self, group: TaskGroup) -> None:
        """Start to measure the lag of the event loop, and connect the MCP servers; those get a moment to answer."""
        observe, log = self.metrics.observe_lag, self.logs.log_lag
        group.start_soon(partial(watch_loop_lag, self.clock, observe, log, threshold=LAG_WARNING_S))
        if (mcp := self.tool_parts.mcp) is not None:
            group.start_soon(mcp.run)
            await mcp.wait_for_servers()

    def environment(
        self,
        journal: Journal,
        event_feed: EventFeed,
        sessions: SessionStore,
        engines: Mapping[str, Engine | DeployedEngine],
        answer_validator: AnswerValidator,
        accounts: LimitAccounts,
        memory: MemorySearch,
    ) -> Environment:
        """Return everything that executions act through.

        Raises: ConfigurationFailure (CONFIG_FLOW_INVALID) if an agent of a flow has an unknown model or tool.
        """
        settings, clock, entropy = self.settings, self.clock, self.entropy
        on_refused = partial(log_refused_key, self.logs.logger)
        catalogue = engine_catalogue(settings, engines)
        check_flows(self.flows, catalogue, self.tools)
        check_aliases(settings.ingress, self.flows)
        return Environment(
            journal=journal,
            clock=clock,
            entropy=entropy,
            event_feed=event_feed,
            catalogue=catalogue,
            tool_registry=self.tools,
            tool_executor=tool_executor(settings, self.tools, clock, entropy),
            health=ProviderHealth(failover_policy(settings), clock, engines, accounts.quotas.caps, on_refused),
            token_estimator=accounts.estimator,
            thread_pool=WorkerThread(),
            answer_validator=answer_validator,
            conversations=sessions,
            concurrent_inferences=settings.limits.concurrent_inferences,
            compacts_sessions=settings.sessions.compact,
            suspension_seconds=settings.limits.suspension_seconds,
            prompts=self.prompts,
            agents=self.agents,
            code=self.tool_parts.code,
            guards=self.guards,
            skills=None if self.skills is None else self.skills.library,
            stream_tool_content=settings.telemetry.stream_tool_content,
            quotas=accounts.quotas,
            usage=accounts.usage,
            memory=memory,
            files=self.files,
            on_exception=self.logs.log_exception,
        )

    def facade_config(
        self, flows: Mapping[str, ServedFlow], tracing: "Tracing | None", replica: SingleReplica | ClusteredReplica
    ) -> FacadeConfig:
        """Return the configuration of the facade, which serves these flows."""
        settings = self.settings
        return FacadeConfig(
            settings.limits,
            settings.telemetry.currency,
            ReplicaInfo(replica.owner, version("portico"), settings.auth.mode, replica.count_alive),
            self.metrics.recent_attempts,
            self.grammars,
            flows,
            approvals=ApprovalConfig(settings.policy.self_approval, settings.policy.edit_on_approve),
            embedder=settings.memory.embedder,
            sampler=None if tracing is None else tracing.is_sampled,
            channels=Channels({ChannelName(name): table.rules() for name, table in settings.channels.items()}),
        )

    def limit_reports(self) -> LimitReports:
        """Return where limits report what they find."""
        return LimitReports(self.metrics, self.on_storage_error)

    def memory_resources(self, accounts: LimitAccounts) -> MemoryResources:
        """Return what the memory shares with the rest of the service."""
        charged = EmbeddingAccounts(accounts.quotas, accounts.usage, self.clock)
        return MemoryResources(self.clock, self.entropy, charged, self.on_storage_error)

    def on_storage_error(self, error: Exception) -> None:
        """Log that the database does not answer."""
        self.logs.log_fault(error, "storage")

    def _on_unstored(self, request_id: RequestId, refusal: Failure) -> None:
        """Log an execution that ended in memory and was answered, and that cannot be stored."""
        self.logs.log_refusal(refusal, {"request_id": request_id}, event="execution.unstored")

    def _on_bug(self, execution_id: ExecutionId, bug: Exception) -> None:
        self.logs.log_bug(execution_id, bug)
        self.metrics.count_bug("execution")

    def _on_error(self, place: Literal["sink", "writer"], error: Exception) -> None:
        self.logs.log_fault(error, place)
        self.metrics.count_bug(place)


def _journal_config(
    owner: ReplicaId, tracing: "Tracing | None", accounts: LimitAccounts, outbox: OutboxSource
) -> JournalConfig:
    observer = None if tracing is None else tracing.sink
    return JournalConfig(owner, REMEMBERED_IDS, observer=observer, usage=accounts.usage, outbox=outbox)


def _webhook_resources(base: Foundation, owner: ReplicaId, group: TaskGroup, stack: AsyncExitStack) -> WebhookResources:
    """Return what webhooks share with the rest of the service."""

    def on_unopened(secret: str) -> None:
        base.logs.log_warning(f"no key of secrets.key_file opens the secret {secret}")

    seal = seal_for(base.settings, on_unopened)
    return WebhookResources(base.clock, base.entropy, owner, base.metrics, seal, base.on_storage_error, group, stack)


def _with_planner(
    patterns: Mapping[Mode, Pattern], settings: Settings, base: Foundation | None = None
) -> Mapping[Mode, Pattern]:
    """Return the patterns with the configured planner, or with the static plan if there is one.

    Its tools, rules and step types must be there. Without the foundation nothing runs, so they need not be.

    Raises: ConfigurationFailure (CONFIG_INVALID).
    """
    static = settings.planner.steps if settings.planner.kind == "static" else None
    if static is not None:
        _check_static_plan(static, settings, base)
    planner = None if base is None else _planner(settings.planner.name, base.plan_modules)
    return {
        mode: pattern if pattern.plan is None else replace(pattern, static_plan=static, planner=planner)
        for mode, pattern in patterns.items()
    }


def _planner(name: str | None, modules: PlanModules) -> PlannerFunction | None:
    """Return the planner of that name. Raises: ConfigurationFailure (CONFIG_INVALID) if no module defines it."""
    planner = None if name is None else modules.planners.get(name)
    if planner is None and name is not None:
        known = ", ".join(modules.planners) or "none"
        message = f"planner.name: no module of plan.modules defines the planner {name!a:.80}; there is {known}"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message)
    return planner


def _check_static_plan(steps: Sequence[PlanStep], settings: Settings, base: Foundation | None) -> None:
    """Raise ConfigurationFailure (CONFIG_INVALID) if the configured plan cannot run."""
    plan = parse_plan(steps)
    if base is None:
        refusal = refusal_of(plan, settings.plan_policy(), plain_only=True)
    else:
        policy = settings.plan_policy(base.tools.names(), base.plan_modules.step_types)
        refusal = refusal_of(plan, policy, rules=base.rules)
    violations = [] if refusal is None else [(each["path"], each["message"]) for each in refusal.details["violations"]]
    if base is not None and not violations:
        violations += plan_violations(plan, base.tools)
    if violations:
        errors = (f"planner.{path}: {message}" for path, message in violations)
        raise ConfigurationFailure(Code.CONFIG_INVALID, "; ".join(errors))


def _with_flows(patterns: Mapping[Mode, Pattern], flows: Mapping[str, ServedFlow]) -> Mapping[Mode, Pattern]:
    """Return the patterns with these flows in mode flow."""
    return {mode: flow_pattern(flows) if mode is Mode.FLOW else pattern for mode, pattern in patterns.items()}


def _all_patterns(
    patterns: Mapping[Mode, Pattern], flows: Mapping[str, ServedFlow], settings: Settings, base: Foundation
) -> Mapping[Mode, Pattern]:
    """Return the patterns with the configured planner and these flows."""
    return _with_flows(_with_planner(patterns, settings, base), flows)
