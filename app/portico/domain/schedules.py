"""Schedules: what starts by itself, and what became of each of its times."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal

from portico.domain.access.principal import ALL, Permissions
from portico.domain.ids import KeyId, RequestId, TenantId, UserId
from portico.domain.value import value

RUN_PREFIX: Final = "sched."
"""The request id of a run begins with it, and no other one does."""
Overlap = Literal["skip", "cancel", "allow"]


class RunOutcome(StrEnum):
    """Outcome of a planned time: a run, or the reason why there was none."""

    STARTED = "started"
    SKIPPED = "skipped"
    MISSED = "missed"
    REFUSED = "refused"

    @property
    def is_failure(self) -> bool:
        """True if the time passed without a run that should have been."""
        return self in {RunOutcome.MISSED, RunOutcome.REFUSED}


@value
class ScheduleRun:
    """A planned time and what became of it, at times in Unix seconds; `code` is that of the refusal."""

    run_id: RequestId
    at: float
    started_at: float
    outcome: RunOutcome
    code: str | None = None
    state: str | None = None
    """State of the execution, as it is stored; None without one."""

    @property
    def request_id(self) -> RequestId | None:
        """The execution of the run; None if there is none."""
        return self.run_id if self.outcome is RunOutcome.STARTED else None


@value
class ScheduleOwner:
    """The user that a schedule acts for, and its rights: those of the key, or of a token until it `expires_at`."""

    tenant: TenantId
    user: UserId
    key_id: KeyId | None = None
    permissions: Permissions = ALL
    expires_at: float | None = None


@value
class Schedule:
    """A schedule as it is stored; each change gives it another `schedule_id`. Times are in Unix seconds.

    `planned_at` is its next time; None while it is paused, by its user or `paused_because` it has no rights any more.
    `started_id` is the run that was started last.
    """

    schedule_id: str
    name: str
    owner: ScheduleOwner
    cron: str
    timezone: str
    request: Mapping[str, Any]
    overlap: Overlap
    catch_up_seconds: int
    paused: bool
    created_at: float
    updated_at: float
    planned_at: float | None = None
    description: str | None = None
    quote: Mapping[str, Any] | None = None
    """The most that a run can take, as of `updated_at`."""
    paused_because: str | None = None
    last: ScheduleRun | None = None
    started_id: RequestId | None = None

    def run_id(self, at: float) -> RequestId:
        """Return the request id of the run that is planned for that time, so that no time runs twice."""
        return RequestId(f"{RUN_PREFIX}{self.name}.{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}")
