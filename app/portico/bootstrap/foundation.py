"""The parts of the service that need not be opened, and that all others are built from."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from anyio.abc import TaskGroup

from portico.adapters.engines.http.aiohttp_transport import HttpSession
from portico.adapters.event_bus import EventBus
from portico.adapters.grammar_directory import read_grammars
from portico.adapters.prompt_directory import read_prompts
from portico.adapters.runners.dbos import DbosRunner
from portico.adapters.runners.local import LocalRunner
from portico.adapters.runners.task_pool import TaskPool, open_task_pool
from portico.adapters.stores.database import Database
from portico.adapters.stores.executions.statistics import StorageStatistics
from portico.adapters.stores.journal.writer import WriterCallbacks
from portico.adapters.stores.sessions import DatabaseSessions
from portico.adapters.stores.sqlite import SqliteDatabase
from portico.adapters.system import SystemClock, SystemEntropy
from portico.adapters.telemetry.logs import LogSink, log_refused_key
from portico.adapters.telemetry.loop_lag import watch_loop_lag
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.adapters.thread_pool import WorkerThread
from portico.adapters.tools.threads import DaemonThreads
from portico.bootstrap.agents import agent_source, check_agents, configured_agents
from portico.bootstrap.engine_builders.build import EngineResources
from portico.bootstrap.engines import (
    build_engine,
    engine_catalogue,
    failover_policy,
    metrics_sink,
    observe_engines,
)
from portico.bootstrap.files import session_files
from portico.bootstrap.flows import (
    LoadedFlow,
    check_aliases,
    check_flows,
    load_flows,
    with_agents,
)
from portico.bootstrap.guards import configured_guards
from portico.bootstrap.limits import LimitAccounts, LimitReports
from portico.bootstrap.logs import log_sink
from portico.bootstrap.media import LazyMediaFetcher
from portico.bootstrap.memory import MemoryResources, check_embedder
from portico.bootstrap.modules import PlanModules, load_plan_modules, load_rules
from portico.bootstrap.replicas import ClusteredReplica, SingleReplica
from portico.bootstrap.skills import SkillReload, open_skills
from portico.bootstrap.tools import ToolParts, check_tool_names, open_registry, open_tools, tool_executor
from portico.bootstrap.webhooks import announcements_of
from portico.capabilities.guards.catalogue import NO_GUARDS, GuardCatalogue
from portico.capabilities.memory.embedder import EmbeddingAccounts
from portico.capabilities.models.deployments import DeployedEngine
from portico.capabilities.models.health import ProviderHealth
from portico.capabilities.output.rules.custom import BUILT_IN_RULES
from portico.capabilities.output.rules.rule_set import RuleRegistry
from portico.capabilities.prompting.registry import PromptRegistry, default_registry
from portico.capabilities.tools.agents import AgentCatalogue
from portico.capabilities.tools.policy import ToolPolicy
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.failures import Failure
from portico.domain.ids import ChannelName, ExecutionId, RequestId
from portico.domain.tools import IsolationLevel
from portico.domain.value import value
from portico.orchestration.announcements import Announcements
from portico.orchestration.channels import Channels
from portico.orchestration.execution.environment import Environment
from portico.orchestration.facade import FacadeConfig, FacadeStores, ReplicaInfo
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.runtime.approval_answer import ApprovalConfig
from portico.ports.events import EventFeed, EventSink
from portico.ports.journal import Journal
from portico.ports.model import Engine
from portico.ports.validation import AnswerValidator
from portico.settings import Settings

if TYPE_CHECKING:
    from portico.adapters.stores.postgres import PostgresDatabase
    from portico.adapters.telemetry.tracing.provider import Tracing
    from portico.adapters.tools.files.store import DirectoryFiles

SUBSCRIPTION_CAPACITY = 4_096
"""Events that may be queued for one live subscription."""
LAG_WARNING_S = 0.5


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
    files: "DirectoryFiles | None"
    logs: LogSink
    metrics: MetricsSink
    announcements: Announcements

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
        parts = ToolParts() if is_offline else open_tools(settings, logs, clock, flows, reaches_servers=reaches_servers)
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
            metrics=metrics_sink(settings, tools, types),
            announcements=announcements_of(settings),
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
        """Start to measure the lag of the event loop, and what tools need.

        That is a worker for code that calls tools, and the MCP servers; those get a moment to answer.
        """
        observe, log = self.metrics.observe_lag, self.logs.log_lag
        group.start_soon(partial(watch_loop_lag, self.clock, observe, log, threshold=LAG_WARNING_S))
        if (code := self.tool_parts.code) is not None:
            group.start_soon(code.keep_ready)
        if (mcp := self.tool_parts.mcp) is not None:
            group.start_soon(mcp.run)
            await mcp.wait_for_servers()

    def environment(
        self,
        journal: Journal,
        event_feed: EventFeed,
        database: Database,
        engines: Mapping[str, Engine | DeployedEngine],
        answer_validator: AnswerValidator,
        accounts: LimitAccounts,
        stores: FacadeStores,
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
            tool_executor=tool_executor(settings, self.tools, clock, entropy, stores.credentials),
            health=ProviderHealth(failover_policy(settings), clock, engines, accounts.quotas.caps, on_refused),
            token_estimator=accounts.estimator,
            thread_pool=WorkerThread(),
            answer_validator=answer_validator,
            conversations=DatabaseSessions(database),
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
            memory=stores.memory.search,
            media=LazyMediaFetcher(settings.media),
            grants=stores.grants,
            credentials=stores.credentials,
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
            replica.timers,
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
