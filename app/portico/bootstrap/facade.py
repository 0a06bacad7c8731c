"""The facade of a service: its stores over one database, and the periodic jobs that run beside it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from anyio.abc import TaskGroup

from portico.adapters.event_bus import EventBus
from portico.adapters.runners.local import LocalRunner
from portico.adapters.runners.log_tailer import LogTailer
from portico.adapters.runners.maintenance import MAINTENANCE_INTERVAL_S, run_maintenance
from portico.adapters.stores.database import Database
from portico.adapters.stores.erasure import DatabaseRecords
from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.grants import DatabaseGrants
from portico.adapters.stores.sqlite import SqliteDatabase
from portico.bootstrap.changes import start_changes
from portico.bootstrap.credentials import open_credentials, request_headers
from portico.bootstrap.foundation import Foundation
from portico.bootstrap.interpreter import tuned_interpreter
from portico.bootstrap.replicas import ClusteredReplica, MaintenanceJobs, SingleReplica
from portico.bootstrap.retention import purge_job
from portico.bootstrap.schedules import start_delayed, start_schedules
from portico.bootstrap.webhooks import WebhookResources
from portico.domain.tools import IsolationLevel, LevelState
from portico.domain.value import value
from portico.orchestration.changes import Changes
from portico.orchestration.channels import Channels
from portico.orchestration.credentials import Credentials
from portico.orchestration.direct_calls import DirectCalls
from portico.orchestration.execution.environment import Environment
from portico.orchestration.facade import Facade, FacadeStores
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.keys import KeyParts
from portico.orchestration.later_rights import LaterRights
from portico.orchestration.memory import MemoryParts
from portico.orchestration.runtime.launcher import Launcher
from portico.orchestration.runtime.recovery import Recovery
from portico.orchestration.schedules import Schedules
from portico.orchestration.webhooks import WebhookParts

if TYPE_CHECKING:
    from portico.adapters.runners.dbos import DbosRunner
    from portico.adapters.stores.postgres import PostgresDatabase
    from portico.adapters.telemetry.tracing.provider import Tracing


def facade_stores(
    base: Foundation,
    database: Database,
    executions: DatabaseExecutionStore,
    memory: MemoryParts,
    keys: KeyParts,
    webhooks: WebhookParts,
    shared: WebhookResources,
) -> FacadeStores:
    """Return the stores that the facade reads and changes."""
    credentials = open_credentials(base.settings, base.tool_parts.credentials, database, base.logs, shared)
    records, grants = DatabaseRecords(database), DatabaseGrants(database)
    return FacadeStores(executions, records, memory, keys, webhooks, grants, credentials)


Beside: TypeAlias = tuple[DirectCalls, Changes, Schedules, Channels, Mapping[IsolationLevel, LevelState]]
"""What entry points use beside the facade."""


@value
class FacadeParts:
    """Opened parts of a service, from which its facade and its periodic jobs are built."""

    base: Foundation
    environment: Environment
    stores: FacadeStores
    store: DatabaseExecutionStore
    launcher: Launcher
    runner: "LocalRunner | DbosRunner"
    flows: Mapping[str, ServedFlow]
    tracing: "Tracing | None"
    replica: SingleReplica | ClusteredReplica
    database: "SqliteDatabase | PostgresDatabase"
    event_bus: EventBus
    group: TaskGroup


@asynccontextmanager
async def open_facade(
    parts: FacadeParts,
) -> AsyncIterator[tuple[Facade, Beside, Credentials]]:
    """Open the facade, run queued executions and the periodic jobs, and at the end drain what runs."""
    base, replica, database, launcher, runner = parts.base, parts.replica, parts.database, parts.launcher, parts.runner
    environment, stores, flows, settings = parts.environment, parts.stores, parts.flows, base.settings
    await base.start_background_tasks(parts.group)
    recovery, tailer = Recovery(parts.store, launcher, base.clock), LogTailer(parts.store, parts.event_bus)
    config = base.facade_config(flows, parts.tracing, replica)
    feed, live = start_changes(environment, stores, launcher=launcher, flows=flows, group=parts.group)
    facade = Facade(environment, stores, config, launcher=launcher, recovery=recovery, tailer=tailer, live=live)
    measure = base.observe_gauges(runner, environment.health, database).measure
    purge = purge_job(database, base.clock, settings.storage, base.files)
    jobs = MaintenanceJobs(recovery, tailer, feed, purge, database.check, measure, base.on_storage_error)
    rights = LaterRights(stores.keys.callers, config.channels, stores.keys.mode)
    start_delayed(environment, launcher, stores.executions, rights, replica, database)
    schedules = start_schedules(facade, stores, rights, base, replica, database)
    headers = request_headers(settings)
    if launcher.authorizations is not None:
        answer_all = (launcher.authorizations.answer_all,)
        parts.group.start_soon(run_maintenance, base.clock, answer_all, base.on_storage_error, MAINTENANCE_INTERVAL_S)
    credentials = Credentials(environment.credentials, base.tools, launcher.authorizations, headers)
    async with runner.serving(recovery.run_ticket), replica.maintenance(parts.group, jobs), tuned_interpreter():
        beside = (DirectCalls(environment), live, schedules, config.channels, base.tool_parts.levels)
        yield facade, beside, credentials
        await runner.drain(launcher.local.shut_down)
