"""Schedules and delayed starts in the composition root: their stores, and the jobs of the timers."""

from typing import Final

from portico.adapters.stores.database import Database
from portico.adapters.stores.delayed_starts import DatabaseDelayedStarts
from portico.adapters.stores.schedules import DatabaseSchedules
from portico.adapters.stores.timers import DatabaseTimerQueue
from portico.bootstrap.foundation import Foundation
from portico.bootstrap.replicas import ClusteredReplica, SingleReplica
from portico.orchestration.delayed_starts import DelayedStartParts, DelayedStarts
from portico.orchestration.execution.environment import Environment
from portico.orchestration.facade import Facade, FacadeStores
from portico.orchestration.later_rights import LaterRights
from portico.orchestration.runtime.launcher import Launcher
from portico.orchestration.schedules import ScheduleParts, Schedules
from portico.ports.storage import ExecutionStore
from portico.ports.timers import TimerJob, TimerKind

AT_ONCE: Final = 16
"""Schedules whose times are settled at the same time; the runs themselves wait for their turn in the queue."""


def start_schedules(
    facade: Facade,
    stores: FacadeStores,
    rights: LaterRights,
    base: Foundation,
    replica: SingleReplica | ClusteredReplica,
    database: Database,
) -> Schedules:
    """Return the schedules, whose times the timers of the replica settle."""
    queue = DatabaseTimerQueue(database, TimerKind.SCHEDULE, replica.owner)
    parts = ScheduleParts(
        store=DatabaseSchedules(database, replica.owner),
        executions=stores.executions,
        queue=queue,
        notices=replica.timers,
        announcements=base.announcements,
        rights=rights,
        clock=stores.keys.clock,
        entropy=base.entropy,
        most=base.settings.limits.schedules,
    )
    schedules = Schedules(facade, parts)
    replica.timers.add(TimerJob(TimerKind.SCHEDULE, queue, schedules.run_due, AT_ONCE))
    return schedules


def start_delayed(
    environment: Environment,
    launcher: Launcher,
    executions: ExecutionStore,
    rights: LaterRights,
    replica: SingleReplica | ClusteredReplica,
    database: Database,
) -> None:
    """Start the executions whose time has come, as the timers of the replica find them."""
    queue = DatabaseTimerQueue(database, TimerKind.START, replica.owner)
    parts = DelayedStartParts(
        store=DatabaseDelayedStarts(database, replica.owner),
        executions=executions,
        queue=queue,
        rights=rights,
    )
    starts = DelayedStarts(environment, launcher, parts)
    replica.timers.add(TimerJob(TimerKind.START, queue, starts.run_due, AT_ONCE))
