"""Schedules: requests that start by themselves at the times of a cron expression, and what became of each time.

Theory of operation

1. A schedule is a timer. The replica that claims it settles its time in one transaction: what became of it, and when it
   is due next.
2. A run's request id names the schedule and the planned time. So a replica that takes over a claim of a dead one finds
   the execution that it has started, and no time runs twice.
3. A run has the rights that its owner has then: those of the key, or of a token for `TOKEN_DAYS` after the schedule was
   stored. Without any, the schedule is paused. The rules of the channel `schedule` narrow them.
4. What refuses a run for a moment, as a full queue or a stopping replica, leaves the time due. A next time that comes
   meanwhile takes its place.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from portico.capabilities.schedules.cron import Cron, require_cron
from portico.domain.access.channels import SCHEDULE
from portico.domain.access.principal import AccessScope, Permission, Principal
from portico.domain.contract.quote import Quote
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import AccessFailure, Code, Failure, RequestFailure, StorageFailure, invalid_request
from portico.domain.ids import RequestId, UserId
from portico.domain.schedules import RUN_PREFIX, Overlap, RunOutcome, Schedule, ScheduleRun
from portico.domain.time_zones import require_time_zone
from portico.domain.value import value
from portico.orchestration.announcements import Announcements
from portico.orchestration.call import CallOptions
from portico.orchestration.facade import Facade
from portico.orchestration.later_rights import TOKEN_DAYS, LaterRights
from portico.orchestration.redaction import redacted_request, sees_all
from portico.orchestration.rights import require
from portico.ports.runtime import Clock, Entropy
from portico.ports.schedules import ScheduleStore
from portico.ports.storage import ExecutionStore
from portico.ports.timers import DueTimer, TimerKind, TimerNotices, TimerQueue

ON_TIME_S: Final = 60.0
"""Seconds after its time in which a run is on time, as after the failure of a replica."""
MAX_MISSED: Final = 100
"""Missed times that are recorded, the last ones; the service may have been away for years."""
_RETRY_S: Final = 5.0
_MAX_CATCH_UP_S: Final = 366 * 86_400
_LATER: Final = frozenset({Code.REQUEST_OVERLOADED, Code.REQUEST_SHUTTING_DOWN, Code.ACCESS_UNAVAILABLE})
"""Refusals after which a run is tried again."""
_NO_ACCESS: Final = "its key was revoked or has expired; store it again with another one"
_TOKEN_ENDED: Final = f"the rights of a token hold for {TOKEN_DAYS} days; store it again"


class ScheduleRequest(BaseModel):
    """A schedule to store."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    cron: Annotated[str, AfterValidator(require_cron)] = Field(
        description="Five fields: minute, hour, day of the month, month, day of the week."
    )
    timezone: Annotated[str, AfterValidator(require_time_zone)] = Field(
        "UTC", description="Time zone of the IANA database, in which the fields are read."
    )
    request: SystemRequest = Field(
        description="The request of each run, without `request_id`. It runs in the background."
    )
    overlap: Overlap = Field(
        "skip",
        description="Effect of a run before that has not ended: `skip` this one, `cancel` that one, or `allow` both.",
    )
    catch_up_seconds: int = Field(
        3600,
        ge=0,
        le=_MAX_CATCH_UP_S,
        description="Of the times that were missed, the last one runs if it is no longer ago; 0: none does.",
    )
    paused: bool = Field(False, description="True if it does not start by itself.")
    description: str | None = Field(None, max_length=1_000, description="Text for people.")


class ScheduleRunView(BaseModel):
    """A time of a schedule and what became of it."""

    at: datetime = Field(description="The planned time; of a run by hand, when it was asked for.")
    started_at: datetime = Field(description="The time at which it was started, or given up.")
    request_id: RequestId | None = Field(description="Id of the execution; null if none was started.")
    outcome: RunOutcome = Field(
        description="`started`; `skipped`, as the run before had not ended; `missed`, as the service was away; or "
        "`refused` with a code."
    )
    code: Code | None = Field(description="Code of the refusal.")
    state: str | None = Field(description="State of the execution; null without one, and once it is deleted.")


class LastRunView(BaseModel):
    """The last time of a schedule."""

    at: datetime = Field(description="The planned time.")
    request_id: RequestId | None = Field(description="Id of the execution; null if none was started.")
    outcome: RunOutcome = Field(description="What became of it.")
    state: str | None = Field(description="State of the execution; null without one.")


class ScheduleView(BaseModel):
    """A schedule, its next time, and the last one."""

    name: str = Field(description="Its name, unique in the tenant.")
    cron: str = Field(description="Minute, hour, day of the month, month, day of the week.")
    timezone: str = Field(description="Time zone in which the fields are read.")
    request: SystemRequest = Field(description="The request of each run.")
    overlap: Overlap = Field(description="Effect of a run before that has not ended.")
    catch_up_seconds: int = Field(description="Age up to which the last of the missed times runs.")
    paused: bool = Field(description="True if it does not start by itself.")
    description: str | None = Field(description="Text for people.")
    user: UserId = Field(description="User that it acts for.")
    created_at: datetime = Field(description="Time at which it was stored first.")
    updated_at: datetime = Field(description="Time at which it was stored last.")
    next_at: datetime | None = Field(description="Its next time; null while it is paused.")
    paused_because: str | None = Field(description="Reason why the service has paused it.")
    last: LastRunView | None = Field(description="Its last time; null before the first.")
    quote: Quote | None = Field(description="The most that one run can take, as of the time at which it was stored.")


class StartedRun(BaseModel):
    """A run that was started by hand."""

    request_id: RequestId = Field(description="Id of the execution.")


@value
class SchedulePage:
    """A page of schedules by name; `next` is the cursor of the following page, None on the last one."""

    schedules: list[ScheduleView]
    next: str | None


@value
class RunPage:
    """A page of runs, the latest first; `next` is the cursor of the following page, None on the last one."""

    runs: list[ScheduleRunView]
    next: str | None


@value
class ScheduleParts:
    """Everything that schedules need besides the facade; a tenant has at most `most` of them."""

    store: ScheduleStore
    executions: ExecutionStore
    queue: TimerQueue
    notices: TimerNotices
    announcements: Announcements
    rights: LaterRights
    clock: Clock
    entropy: Entropy
    most: int


class Schedules:
    """Queries and commands for schedules, by principal, and the job that runs those that are due.

    Those of another tenant or user do not exist; a principal that may view its tenant also reads those of other users.

    Raises: RequestFailure (REQUEST_NOT_FOUND), StorageFailure, in every method that names one.
    """

    def __init__(self, facade: Facade, parts: ScheduleParts) -> None:
        self._facade = facade
        self._parts = parts

    async def put(self, principal: Principal, name: str, asked: ScheduleRequest) -> tuple[ScheduleView, bool]:
        """Store a schedule and return it, and whether it is new.

        Raises: Failure for a request that `execute` would refuse; RequestFailure (REQUEST_ID_CONFLICT,
        REQUEST_RATE_LIMITED).
        """
        parts, now = self._parts, self._parts.clock.now()
        quote = await self._quote(principal, asked.request)
        schedule = Schedule(
            schedule_id=parts.entropy.uuid7(),
            name=name,
            owner=parts.rights.owner(principal, now),
            cron=asked.cron,
            timezone=asked.timezone,
            request=orjson.loads(asked.request.model_dump_json(by_alias=True, exclude_unset=True)),
            overlap=asked.overlap,
            catch_up_seconds=asked.catch_up_seconds,
            paused=asked.paused,
            created_at=now,
            updated_at=now,
            planned_at=None if asked.paused else Cron(asked.cron, asked.timezone).next_after(now),
            description=asked.description,
            quote=orjson.loads(quote.model_dump_json()),
        )
        stored = await parts.store.put(schedule, most=parts.most)
        if stored.planned_at is not None:
            parts.notices.notify(TimerKind.SCHEDULE, stored.planned_at)
        return _view(stored, principal), stored.created_at == now

    async def show(self, principal: Principal, name: str) -> ScheduleView:
        """Return the schedule."""
        return _view(await self._found(principal.readable, name), principal)

    async def page(self, principal: Principal, *, after: str | None, limit: int) -> SchedulePage:
        """Return a page of the schedules."""
        page = await self._parts.store.page(principal.readable, after=after, limit=limit)
        return SchedulePage([_view(each, principal) for each in page.items], page.next)

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete a schedule with the list of its runs; the executions stay."""
        require(principal.permissions, Permission.SEND_MESSAGES, "delete schedules")
        if not await self._parts.store.delete(principal.own, name):
            raise no_such_schedule()

    async def runs(self, principal: Principal, name: str, *, after: str | None, limit: int) -> RunPage:
        """Return a page of what became of its times."""
        page = await self._parts.store.runs(principal.readable, name, after=after, limit=limit)
        if page is None:
            raise no_such_schedule()
        return RunPage(list(map(_run_view, page.items)), page.next)

    async def require_own(self, principal: Principal, name: str) -> None:
        """Raise RequestFailure (REQUEST_NOT_FOUND) if the user has no such schedule."""
        await self._found(principal.own, name)

    async def start(self, principal: Principal, name: str) -> StartedRun:
        """Run a schedule now, with the rights that it has, also while earlier runs have not ended.

        Raises: Failure for a run that is refused.
        """
        require(principal.permissions, Permission.SEND_MESSAGES, "start runs")
        schedule, now = await self._found(principal.own, name), self._parts.clock.now()
        run_id = RequestId(f"{RUN_PREFIX}{name}.manual.{self._parts.entropy.token(8)}")
        try:
            acting = await self._parts.rights.principal(schedule.owner, SCHEDULE)
        except AccessFailure as refusal:
            if refusal.code in _LATER:
                raise
            raise AccessFailure(Code.ACCESS_DENIED, f"the schedule cannot run: {_reason(schedule)}") from None
        await self._execute(schedule, run_id, acting)
        await self._parts.store.record(schedule, ScheduleRun(run_id, now, now, RunOutcome.STARTED))
        return StartedRun(request_id=run_id)

    async def run_due(self, timer: DueTimer) -> float | None:
        """Settle the times of a claimed schedule that have come, and return its next one. Raises: StorageFailure."""
        parts = self._parts
        schedule = await parts.store.due(timer.timer_id)
        if schedule is None or schedule.planned_at is None:
            return None
        now, cron = parts.clock.now(), Cron(schedule.cron, schedule.timezone)
        *missed, last = [schedule.planned_at, *cron.latest(schedule.planned_at, now, MAX_MISSED)]
        runs = [_unstarted(schedule, at, now, RunOutcome.MISSED) for at in missed[-MAX_MISSED:]]
        paused_because = None
        if now - last > max(ON_TIME_S, schedule.catch_up_seconds):
            runs.append(_unstarted(schedule, last, now, RunOutcome.MISSED))
        else:
            run, paused_because = await self._run(schedule, last, now)
            if run is None:
                await parts.queue.postpone(timer, now + _RETRY_S)
                return now + _RETRY_S
            runs.append(run)
        planned_at = None if paused_because is not None else cron.next_after(now)
        deliveries = parts.announcements.of_schedule(schedule, runs, now)
        await parts.store.settle(schedule, runs, planned_at, paused_because=paused_because, deliveries=deliveries)
        if deliveries:
            parts.notices.notify(TimerKind.DELIVERY, now)
        return planned_at

    async def _run(self, schedule: Schedule, at: float, now: float) -> tuple[ScheduleRun | None, str | None]:
        """Return what became of a time, None if it is to be tried again, and why the schedule is paused if it is."""
        run_id = schedule.run_id(at)
        started = ScheduleRun(run_id, at, now, RunOutcome.STARTED)
        if await self._has_ended(schedule, run_id) is not None:
            return started, None
        try:
            acting = await self._parts.rights.principal(schedule.owner, SCHEDULE)
            if await self._is_in_the_way(schedule, acting):
                return _unstarted(schedule, at, now, RunOutcome.SKIPPED), None
            await self._execute(schedule, run_id, acting)
        except StorageFailure:
            raise
        except Failure as refusal:
            if refusal.code in _LATER:
                return None, None
            reason = _reason(schedule) if refusal.code is Code.ACCESS_UNAUTHENTICATED else None
            return _unstarted(schedule, at, now, RunOutcome.REFUSED, refusal.code), reason
        return started, None

    async def _is_in_the_way(self, schedule: Schedule, acting: Principal) -> bool:
        """Return whether the run before forbids another one; it is cancelled if it is to make way."""
        if schedule.overlap == "allow" or schedule.started_id is None:
            return False
        if await self._has_ended(schedule, schedule.started_id) is not False:
            return False
        if schedule.overlap == "skip":
            return True
        await self._facade.executions.cancel(acting, schedule.started_id)
        return False

    async def _has_ended(self, schedule: Schedule, run_id: RequestId) -> bool | None:
        """Return whether a run has ended; None if there is no such execution."""
        found = await self._parts.executions.find(AccessScope(schedule.owner.tenant), run_id)
        return None if found is None else found.status.ended

    async def _execute(self, schedule: Schedule, run_id: RequestId, acting: Principal) -> None:
        """Queue the execution of a run. Raises: Failure if it is refused."""
        try:
            request = SystemRequest.model_validate_json(orjson.dumps(schedule.request))
        except ValidationError:
            message = "this version does not know the stored request; store the schedule again"
            raise RequestFailure(Code.REQUEST_INVALID, message) from None
        await self._facade.execute(request, acting, CallOptions(background=True, run_id=run_id))

    async def _quote(self, principal: Principal, request: SystemRequest) -> Quote:
        """Return the quote of one run. Raises: Failure for a request that `execute` would refuse."""
        if request.request_id is not None:
            raise invalid_request(("request.request_id", "must be absent: each run has an id of its own"))
        if request.run_at is not None:
            raise invalid_request(("request.run_at", "must be absent: cron says when each run starts"))
        try:
            return await self._facade.quote(request.model_copy(update={"background": True}), principal)
        except RequestFailure as refusal:
            raise _within_request(refusal) from None

    async def _found(self, scope: AccessScope, name: str) -> Schedule:
        found = await self._parts.store.find(scope, name)
        if found is None:
            raise no_such_schedule()
        return found


def no_such_schedule() -> RequestFailure:
    """Return the refusal of a schedule that does not exist for the caller."""
    return RequestFailure(Code.REQUEST_NOT_FOUND, "no schedule has this name", condition="path")


def _within_request(refusal: RequestFailure) -> RequestFailure:
    """Return the refusal of a request with its fields as those of the schedule."""
    errors: Sequence[Mapping[str, Any]] = refusal.details.get("errors", ())
    if not errors:
        return refusal
    return invalid_request(*((f"request.{each['field']}", str(each["message"])) for each in errors))


def _reason(schedule: Schedule) -> str:
    return _NO_ACCESS if schedule.owner.key_id is not None else _TOKEN_ENDED


def _unstarted(schedule: Schedule, at: float, now: float, outcome: RunOutcome, code: Code | None = None) -> ScheduleRun:
    return ScheduleRun(schedule.run_id(at), at, now, outcome, code)


def _view(schedule: Schedule, principal: Principal) -> ScheduleView:
    """Return the schedule as the principal sees it."""
    request = SystemRequest.model_validate_json(orjson.dumps(schedule.request))
    last = schedule.last
    return ScheduleView(
        name=schedule.name,
        cron=schedule.cron,
        timezone=schedule.timezone,
        request=request if sees_all(principal) else redacted_request(request),
        overlap=schedule.overlap,
        catch_up_seconds=schedule.catch_up_seconds,
        paused=schedule.paused,
        description=schedule.description,
        user=schedule.owner.user,
        created_at=_time(schedule.created_at),
        updated_at=_time(schedule.updated_at),
        next_at=None if schedule.planned_at is None else _time(schedule.planned_at),
        paused_because=schedule.paused_because,
        last=None
        if last is None
        else LastRunView(at=_time(last.at), request_id=last.request_id, outcome=last.outcome, state=last.state),
        quote=None if schedule.quote is None else Quote.model_validate(schedule.quote),
    )


def _run_view(run: ScheduleRun) -> ScheduleRunView:
    return ScheduleRunView(
        at=_time(run.at),
        started_at=_time(run.started_at),
        request_id=run.request_id,
        outcome=run.outcome,
        code=None if run.code is None else Code(run.code),
        state=run.state,
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
