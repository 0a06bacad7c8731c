"""Schedules in the composition root: their store, and the job of the timers."""

from typing import Final

from portico.adapters.stores.database import Database
from portico.adapters.stores.schedules import DatabaseSchedules
from portico.adapters.stores.timers import DatabaseTimerQueue
from portico.bootstrap.replicas import ClusteredReplica, SingleReplica
from portico.domain.limits import ConfiguredLimits
from portico.orchestration.announcements import Announcements
from portico.orchestration.facade import Facade, FacadeStores
from portico.orchestration.schedules import ScheduleParts, Schedules
from portico.ports.runtime import Entropy
from portico.ports.timers import TimerJob, TimerKind

AT_ONCE: Final = 16
"""Schedules whose times are settled at the same time; the runs themselves wait for their turn in the queue."""


def start_schedules(
    facade: Facade,
    stores: FacadeStores,
    announcements: Announcements,
    replica: SingleReplica | ClusteredReplica,
    database: Database,
    limits: ConfiguredLimits,
    entropy: Entropy,
) -> Schedules:
    """Return the schedules, whose times the timers of the replica settle."""
    queue = DatabaseTimerQueue(database, TimerKind.SCHEDULE, replica.owner)
    parts = ScheduleParts(
        store=DatabaseSchedules(database, replica.owner),
        executions=stores.executions,
        queue=queue,
        notices=replica.timers,
        announcements=announcements,
        callers=stores.keys.callers,
        mode=stores.keys.mode,
        clock=stores.keys.clock,
        entropy=entropy,
        most=limits.schedules,
    )
    schedules = Schedules(facade, parts)
    replica.timers.add(TimerJob(TimerKind.SCHEDULE, queue, schedules.run_due, AT_ONCE))
    return schedules
