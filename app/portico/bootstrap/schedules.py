"""Schedules in the composition root: their store, and the job of the timers."""

from typing import Final

from portico.adapters.stores.database import Database
from portico.adapters.stores.schedules import DatabaseSchedules
from portico.adapters.stores.timers import DatabaseTimerQueue
from portico.bootstrap.replicas import ClusteredReplica, SingleReplica
from portico.domain.limits import ConfiguredLimits
from portico.orchestration.facade import Facade
from portico.orchestration.keys import KeyParts
from portico.orchestration.schedules import ScheduleParts, Schedules
from portico.ports.runtime import Entropy
from portico.ports.storage import ExecutionStore
from portico.ports.timers import TimerJob, TimerKind

AT_ONCE: Final = 16
"""Schedules whose times are settled at the same time; the runs themselves wait for their turn in the queue."""


def start_schedules(
    facade: Facade,
    executions: ExecutionStore,
    keys: KeyParts,
    replica: SingleReplica | ClusteredReplica,
    database: Database,
    limits: ConfiguredLimits,
    entropy: Entropy,
) -> Schedules:
    """Return the schedules, whose times the timers of the replica settle."""
    queue = DatabaseTimerQueue(database, TimerKind.SCHEDULE, replica.owner)
    parts = ScheduleParts(
        store=DatabaseSchedules(database, replica.owner),
        executions=executions,
        queue=queue,
        notices=replica.timers,
        callers=keys.callers,
        mode=keys.mode,
        clock=keys.clock,
        entropy=entropy,
        most=limits.schedules,
    )
    schedules = Schedules(facade, parts)
    replica.timers.add(TimerJob(TimerKind.SCHEDULE, queue, schedules.run_due, AT_ONCE))
    return schedules
