"""Limits, usage and token estimates in the composition root: their stores, and their periodic jobs."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio

from portico.adapters.runners.maintenance import run_maintenance
from portico.adapters.stores.access.limits import MemoryLimitStore, SharedLimitStore
from portico.adapters.stores.access.token_ratios import DatabaseTokenRatios
from portico.adapters.stores.access.usage import DatabaseUsage
from portico.adapters.stores.sqlite import SqliteDatabase
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.bootstrap.engines import engine_limits
from portico.capabilities.limits.quotas import LimitObserver, Quotas
from portico.capabilities.limits.usage_meter import UsageMeter
from portico.capabilities.models.tokens import MAX_RATIOS, LearningTokenEstimator
from portico.domain.access.limits import LimitKind
from portico.domain.failures import StorageFailure
from portico.domain.ids import ReplicaId
from portico.domain.time_zones import DAY_S
from portico.domain.value import value
from portico.ports.runtime import Clock
from portico.settings import Settings

if TYPE_CHECKING:
    from portico.adapters.stores.postgres import PostgresDatabase

SETTLE_INTERVAL_S = 1.0
WRITE_INTERVAL_S = 4.0
"""Less than the five seconds after which usage is settled."""
RATIO_INTERVAL_S = 60.0


@value
class LimitReports:
    """Receivers of what limits do: the metrics, and the callback for errors of the periodic jobs."""

    metrics: MetricsSink
    on_error: Callable[[Exception], None]


@value
class LimitAccounts:
    """The limits, the usage and the token estimates of this replica."""

    quotas: Quotas
    usage: UsageMeter
    estimator: LearningTokenEstimator


@asynccontextmanager
async def open_limits(
    database: "SqliteDatabase | PostgresDatabase",
    clock: Clock,
    owner: ReplicaId,
    settings: Settings,
    reports: LimitReports,
) -> AsyncIterator[LimitAccounts]:
    """Open the limits and the usage, and settle them periodically, and once more at the end.

    Raises: StorageFailure if the rates that an earlier process stored cannot be read.
    """
    shares = not isinstance(database, SqliteDatabase)
    store = SharedLimitStore(database, clock, owner) if shares else MemoryLimitStore(database, clock)
    observer, stored_usage = LimitObserver(reports.metrics.count_limited), DatabaseUsage(database)
    for kind in (LimitKind.CONCURRENCY, LimitKind.TOKENS, LimitKind.COST):
        waiting = partial(observer.waiting.__getitem__, kind)
        reports.metrics.observe("portico_limits_waiting", waiting, kind)
    limits = {name: tenant.limits for name, tenant in settings.tenants.items()}
    ratios = DatabaseTokenRatios(database)
    estimator = LearningTokenEstimator(await ratios.load(MAX_RATIOS))
    quotas = Quotas(store, clock, limits, observer, engine_limits(settings))
    accounts = LimitAccounts(quotas, UsageMeter(stored_usage, owner), estimator)
    retention_s = settings.storage.answer_retention_days * DAY_S

    async def purge() -> None:
        await stored_usage.purge(clock.now() - retention_s)
        await ratios.purge(clock.now() - retention_s)

    async def write_ratios() -> None:
        changed = estimator.take_changed()
        try:
            if changed:
                await ratios.write(changed, clock.now())
        except StorageFailure:
            estimator.give_back_changed(changed)
            raise

    writes = (accounts.usage.flush, store.write)
    await store.load()
    async with anyio.create_task_group() as group:
        group.start_soon(run_maintenance, clock, (accounts.quotas.settle,), reports.on_error, SETTLE_INTERVAL_S)
        group.start_soon(run_maintenance, clock, writes, reports.on_error, WRITE_INTERVAL_S)
        group.start_soon(run_maintenance, clock, (write_ratios,), reports.on_error, RATIO_INTERVAL_S)
        group.start_soon(run_maintenance, clock, (purge,), reports.on_error)
        yield accounts
        group.cancel_scope.cancel()
    for job in (accounts.quotas.settle, *writes, write_ratios):
        with suppress(StorageFailure):
            await job()
