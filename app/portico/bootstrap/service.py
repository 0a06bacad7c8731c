"""Composition root: opens resources, chooses adapters, and yields one Service.

Only this package names both a port and its adapter. `engines.py` has the table of engines, `replicas.py` the parts that
depend on the database: one replica on SQLite, several on PostgreSQL.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from pydantic import BaseModel, Field

from portico.adapters.audit.refusals import RefusalLog
from portico.adapters.engines.http.aiohttp_transport import open_session
from portico.adapters.runners.dbos import DbosRunner
from portico.adapters.runners.local import LocalRunner
from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.factory import open_database, open_read_only
from portico.adapters.stores.health import StorageHealth
from portico.adapters.stores.journal.stored_journal import JournalConfig, open_journal
from portico.adapters.telemetry.logs import LogSink
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.adapters.tools.code.installed import installed_interpreter
from portico.adapters.validation.worker_pool import WorkerLimits, open_worker_pool
from portico.bootstrap.access import AccessReports, key_parts, open_access
from portico.bootstrap.credentials import open_launcher
from portico.bootstrap.facade import FacadeParts, facade_stores, open_facade
from portico.bootstrap.flows import (
    open_flows,
    served_flows,
)
from portico.bootstrap.foundation import Foundation
from portico.bootstrap.limits import LimitAccounts, open_limits
from portico.bootstrap.memory import start_memory
from portico.bootstrap.modules import PlanModules
from portico.bootstrap.replicas import queue_limits, replica_for
from portico.bootstrap.secrets import seal_for
from portico.bootstrap.skills import SkillReload
from portico.bootstrap.timers import timer_reports
from portico.bootstrap.tracing import observed, open_server_spans, open_traces
from portico.bootstrap.webhooks import WebhookResources, start_webhooks
from portico.capabilities.tools.arguments import plan_violations
from portico.capabilities.tools.planner_function import PlannerFunction
from portico.domain.contract.request import PlanStep
from portico.domain.failures import Code, ConfigurationFailure, Failure
from portico.domain.ids import ReplicaId
from portico.domain.lifecycle import Mode
from portico.domain.plan.parsed_plan import parse_plan
from portico.domain.tools import IsolationLevel, LevelState
from portico.domain.value import replace, value
from portico.orchestration.changes import Changes
from portico.orchestration.channels import Channels
from portico.orchestration.credentials import Credentials
from portico.orchestration.direct_calls import DirectCalls
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.facade import Facade
from portico.orchestration.flow.flow_loop import flow_pattern
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.patterns import agent_loop, redundant_loop, specialized_loop
from portico.orchestration.planning import plan_mode
from portico.orchestration.planning.plan_check import refusal_of
from portico.orchestration.runtime.handle import LocalExecutions
from portico.orchestration.runtime.replay import HistoryReader
from portico.orchestration.schedules import Schedules
from portico.ports.access import Authenticator
from portico.settings import Settings

if TYPE_CHECKING:
    from portico.adapters.telemetry.tracing.provider import Tracing
    from portico.adapters.telemetry.tracing.server_spans import ServerSpans

REMEMBERED_IDS = 10_000
"""Number of ended executions whose request_id is still refused."""

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
    isolation: Mapping[IsolationLevel, LevelState]
    """The state of each level of isolation that needs something of the system; empty if no tool needs one."""
    credentials: Credentials
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
        patterns = _all_patterns(patterns, flows, settings, base)
        journal_config = partial(_journal_config, base, owner, tracing)
        replica = replica_for(database, clock, owner, storage, timer_reports(base.logs, metrics))
        event_bus, traces = base.event_bus(replica.sinks, tracing), (tracing, open_server_spans(tracing, base.entropy))
        async with (
            open_limits(database, clock, replica.owner, settings, base.limit_reports()) as accounts,
            open_journal(database, event_bus, clock, journal_config(accounts), callbacks) as journal,
            anyio.create_task_group() as group,
            open_worker_pool(WorkerLimits(rule_modules=settings.rules.modules)) as validator,
            base.open_task_pool() as task_pool,
            open_access(settings, database, clock, AccessReports(base.logs, metrics), group) as (callers, audit),
        ):
            store = DatabaseExecutionStore(database, clock, replica.owner, event_bus, replica.cancel)
            runner = replica.runner(task_pool, queue_limits(settings), base.on_storage_error)
            engines, keys = base.engines(http, stack), key_parts(settings, database, callers, clock, base.entropy)
            memory = start_memory(database, settings, engines, base.memory_resources(accounts), group)
            shared = _webhook_resources(base, replica.owner, group, stack)
            webhooks = await start_webhooks(database, settings, replica.timers, base.announcements, shared)
            stores = facade_stores(base, database, store, memory, keys, webhooks, shared)
            environment = base.environment(journal, event_bus, database, engines, validator, accounts, stores)
            launcher = open_launcher(observed(environment, tracing), runner, patterns, stores)
            tied = (replica, database, event_bus, group)
            core = FacadeParts(base, environment, stores, store, launcher, runner, flows, tracing, *tied)
            async with open_facade(core) as (plain, beside, own):
                parts = (base.logs, runner, launcher.local, database.health, callers, *beside, audit.credentials(own))
                yield Service(audit.facade(plain), settings, metrics, *parts, *traces, audit.refusals, base.skills)
            group.cancel_scope.cancel()


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


def _journal_config(
    base: Foundation, owner: ReplicaId, tracing: "Tracing | None", accounts: LimitAccounts
) -> JournalConfig:
    observer = None if tracing is None else tracing.sink
    return JournalConfig(owner, REMEMBERED_IDS, observer=observer, usage=accounts.usage, outbox=base.announcements)


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
