"""Stored schedules and their runs. A schedule is a timer: its row is due at its next time, and never while paused."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Double,
    Select,
    and_,
    bindparam,
    delete,
    func,
    or_,
    select,
    update,
)

from portico.adapters.stores import codec
from portico.adapters.stores.database import (
    Database,
    ResultRow,
    Statement,
    Transaction,
    execute,
    execute_each,
)
from portico.adapters.stores.outbox import delivery_row, insert_deliveries
from portico.adapters.stores.schema import TEXT, executions, schedule_runs, schedules
from portico.domain.access.principal import AccessScope, Permissions
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import KeyId, ReplicaId, RequestId, TenantId, UserId
from portico.domain.schedules import RunOutcome, Schedule, ScheduleOwner, ScheduleRun
from portico.ports.outbox import Delivery
from portico.ports.storage import ResultPage

_RETRY_AFTER: Final = 60.0


class DatabaseSchedules:
    """Implementation of the `ScheduleStore` port."""

    def __init__(self, database: Database, owner: ReplicaId) -> None:
        self._database = database
        self._owner = owner

    async def put(self, schedule: Schedule, *, most: int) -> Schedule:
        return await self._database.write(lambda: _put(schedule, most), idempotent=True)

    async def find(self, scope: AccessScope, name: str) -> Schedule | None:
        rows = await self._database.read(lambda: execute(_FIND, {**_scope(scope), "the_name": name}))
        return _schedule(rows[0]) if rows else None

    async def due(self, schedule_id: str) -> Schedule | None:
        which = {"the_timer_id": schedule_id, "the_owner": self._owner}
        rows = await self._database.read(lambda: execute(_DUE, which))
        return _schedule(rows[0]) if rows else None

    async def page(self, scope: AccessScope, *, after: str | None, limit: int) -> ResultPage[Schedule]:
        values = {**_scope(scope), "after": after or "", "at_most": limit + 1}
        found = list(map(_schedule, await self._database.read(lambda: execute(_PAGE, values))))
        return ResultPage(found[:limit], found[limit - 1].name if len(found) > limit else None)

    async def delete(self, scope: AccessScope, name: str) -> bool:
        return await self._database.write(lambda: _delete({**_scope(scope), "the_name": name}))

    async def settle(
        self,
        schedule: Schedule,
        runs: Sequence[ScheduleRun],
        planned_at: float | None,
        *,
        paused_because: str | None,
        deliveries: Sequence[Delivery] = (),
    ) -> None:
        claim = {"the_timer_id": schedule.schedule_id, "the_owner": self._owner}
        times = {"planned_at": planned_at, "due_at": planned_at}
        content = {"content": _content(schedule, paused_because)}
        changes = {**claim, **times, **content}
        await self._database.write(lambda: _settle(schedule, runs, changes, deliveries), idempotent=True)

    async def record(self, schedule: Schedule, run: ScheduleRun) -> None:
        await self._database.write(lambda: _record(schedule, [run]), idempotent=True)

    async def runs(
        self, scope: AccessScope, name: str, *, after: str | None, limit: int
    ) -> ResultPage[ScheduleRun] | None:
        at, _, run_id = (after or "inf/").partition("/")
        values = {"before": float(at), "before_id": run_id, "at_most": limit + 1}
        return await self._database.read(lambda: _runs({**_scope(scope), "the_name": name}, values, limit))


def _put(schedule: Schedule, most: int) -> Transaction[Schedule]:
    owner = schedule.owner
    which = {"the_tenant": owner.tenant, "the_user_id": None, "the_name": schedule.name}
    if not (yield from execute(_FIND, which)):
        number = yield from execute(_COUNT, {"the_tenant": owner.tenant})
        if number[0][0] >= most:
            message = f"the tenant has {most} schedules, which are limits.schedules; delete one"
            raise RequestFailure(Code.REQUEST_RATE_LIMITED, message, retry_after=_RETRY_AFTER)
    if not (yield from execute(_PUT, _row(schedule))):
        raise RequestFailure(Code.REQUEST_ID_CONFLICT, "another user of the tenant has a schedule of this name")
    return _schedule((yield from execute(_FIND, which))[0])


def _delete(which: Mapping[str, Any]) -> Transaction[bool]:
    deleted = yield from execute(_DELETE, which)
    if deleted:
        yield from execute(_DELETE_RUNS, {"the_tenant": which["the_tenant"], "the_name": which["the_name"]})
    return bool(deleted)


def _settle(
    schedule: Schedule, runs: Sequence[ScheduleRun], changes: Mapping[str, Any], deliveries: Sequence[Delivery]
) -> Transaction[None]:
    yield from execute(_SETTLE, changes)
    yield from _record(schedule, runs)
    yield from insert_deliveries([delivery_row(each, due_at=each.created_at) for each in deliveries])


def _record(schedule: Schedule, runs: Sequence[ScheduleRun]) -> Transaction[None]:
    which = {"the_tenant": schedule.owner.tenant, "the_name": schedule.name}
    for run in runs:
        last = {"last_run": run.run_id, "last_at": run.at, "last_outcome": run.outcome}
        yield from execute(_SET_LAST, {**which, **last, "last_started_at": run.started_at, "last_code": run.code})
        if run.request_id is not None:
            yield from execute(_SET_STARTED, {**which, "started_id": run.request_id})
    rows = [
        {
            "tenant": schedule.owner.tenant,
            "name": schedule.name,
            "run_id": run.run_id,
            "at": run.at,
            "started_at": run.started_at,
            "outcome": run.outcome,
            "code": run.code,
        }
        for run in runs
    ]
    yield from execute_each(_ADD_RUN, rows)


def _runs(
    which: Mapping[str, Any], position: Mapping[str, Any], limit: int
) -> Transaction[ResultPage[ScheduleRun] | None]:
    if not (yield from execute(_FIND, which)):
        return None
    key = {"the_tenant": which["the_tenant"], "the_name": which["the_name"]}
    found = [
        ScheduleRun(RequestId(row[0]), row[1], row[2], RunOutcome(row[3]), row[4], row[5])
        for row in (yield from execute(_RUNS, {**key, **position}))
    ]
    last = found[limit - 1] if len(found) > limit else None
    return ResultPage(found[:limit], None if last is None else f"{last.at!r}/{last.run_id}")


def _scope(scope: AccessScope) -> dict[str, Any]:
    return {"the_tenant": scope.tenant, "the_user_id": scope.user}


def _content(schedule: Schedule, paused_because: str | None) -> bytes:
    owner = schedule.owner
    return codec.encode_value(
        {
            "cron": schedule.cron,
            "timezone": schedule.timezone,
            "request": dict(schedule.request),
            "overlap": schedule.overlap,
            "catch_up_seconds": schedule.catch_up_seconds,
            "paused": schedule.paused,
            "description": schedule.description,
            "quote": None if schedule.quote is None else dict(schedule.quote),
            "paused_because": paused_because,
            "key_id": owner.key_id,
            "permissions": list(owner.permissions.names),
            "expires_at": owner.expires_at,
        }
    )


def _row(schedule: Schedule) -> dict[str, Any]:
    return {
        "timer_id": schedule.schedule_id,
        "tenant": schedule.owner.tenant,
        "due_at": schedule.planned_at,
        "claimed_by": None,
        "name": schedule.name,
        "user_id": schedule.owner.user,
        "planned_at": schedule.planned_at,
        "created_at": schedule.created_at,
        "updated_at": schedule.updated_at,
        "content": _content(schedule, schedule.paused_because),
    }


def _schedule(row: ResultRow) -> Schedule:
    timer_id, tenant, name, user, planned_at, created_at, updated_at, content, started_id, *last = row
    stored = cast("dict[str, Any]", codec.decode_value(content))
    key_id = stored.pop("key_id")
    owner = ScheduleOwner(
        TenantId(tenant),
        UserId(user),
        None if key_id is None else KeyId(key_id),
        Permissions.of(stored.pop("permissions")),
        stored.pop("expires_at"),
    )
    return Schedule(
        schedule_id=timer_id,
        name=name,
        owner=owner,
        created_at=created_at,
        updated_at=updated_at,
        planned_at=planned_at,
        last=_last(last),
        started_id=started_id,
        **stored,
    )


def _last(cells: Sequence[Any]) -> ScheduleRun | None:
    run_id, at, started_at, outcome, code, state = cells
    return None if run_id is None else ScheduleRun(RequestId(run_id), at, started_at, RunOutcome(outcome), code, state)


_USER: BindParameter[str] = bindparam("the_user_id", type_=TEXT)
_LIMIT: BindParameter[int] = bindparam("at_most", type_=BigInteger)
_OF_TENANT = schedules.c.tenant == bindparam("the_tenant")
_IS_SCHEDULE = and_(_OF_TENANT, schedules.c.name == bindparam("the_name"))
_IN_SCOPE = or_(_USER.is_(None), schedules.c.user_id == _USER)
_OF_RUNS = and_(schedule_runs.c.tenant == bindparam("the_tenant"), schedule_runs.c.name == bindparam("the_name"))
_ROW: Final = (
    *("timer_id", "tenant", "due_at", "claimed_by", "name", "user_id"),
    *("planned_at", "created_at", "updated_at", "content"),
)


def _select() -> Select[Any]:
    """Select schedules with the state of the execution that was last, in the order in which they are read."""
    c = schedules.c
    return select(
        *(c.timer_id, c.tenant, c.name, c.user_id, c.planned_at, c.created_at, c.updated_at, c.content, c.started_id),
        *(c.last_run, c.last_at, c.last_started_at, c.last_outcome, c.last_code, executions.c.state),
    ).select_from(
        schedules.outerjoin(executions, and_(executions.c.tenant == c.tenant, executions.c.request_id == c.last_run))
    )


_FIND = Statement(lambda _: _select().where(_IS_SCHEDULE, _IN_SCOPE))
_DUE = Statement(
    lambda _: _select().where(
        schedules.c.timer_id == bindparam("the_timer_id"), schedules.c.claimed_by == bindparam("the_owner")
    )
)
_PAGE = Statement(
    lambda _: (
        _select()
        .where(_OF_TENANT, _IN_SCOPE, schedules.c.name > bindparam("after", type_=TEXT))
        .order_by(schedules.c.name)
        .limit(_LIMIT)
    )
)
_COUNT = Statement(lambda _: select(func.count()).select_from(schedules).where(_OF_TENANT))
_PUT = Statement(
    lambda insert: (
        insert(schedules)
        .values({name: bindparam(name, type_=schedules.c[name].type) for name in _ROW})
        .on_conflict_do_update(
            index_elements=["tenant", "name"],
            set_={
                name: bindparam(name, type_=schedules.c[name].type)
                for name in ("timer_id", "due_at", "claimed_by", "planned_at", "updated_at", "content")
            },
            where=schedules.c.user_id == bindparam("user_id", type_=TEXT),
        )
        .returning(schedules.c.timer_id)
    )
)
_DELETE = Statement(lambda _: delete(schedules).where(_IS_SCHEDULE, _IN_SCOPE).returning(schedules.c.timer_id))
_DELETE_RUNS = Statement(lambda _: delete(schedule_runs).where(_OF_RUNS))
_SETTLE = Statement(
    lambda _: (
        update(schedules)
        .where(schedules.c.timer_id == bindparam("the_timer_id"), schedules.c.claimed_by == bindparam("the_owner"))
        .values(
            planned_at=bindparam("planned_at", type_=Double),
            due_at=bindparam("due_at", type_=Double),
            content=bindparam("content"),
            claimed_by=None,
        )
    )
)
_SET_LAST = Statement(
    lambda _: (
        update(schedules)
        .where(_IS_SCHEDULE)
        .values(
            {
                name: bindparam(name, type_=schedules.c[name].type)
                for name in ("last_run", "last_at", "last_started_at", "last_outcome", "last_code")
            }
        )
    )
)
_SET_STARTED = Statement(
    lambda _: update(schedules).where(_IS_SCHEDULE).values(started_id=bindparam("started_id", type_=TEXT))
)
_ADD_RUN = Statement(
    lambda insert: (
        insert(schedule_runs)
        .values({column.name: bindparam(column.name, type_=column.type) for column in schedule_runs.c})
        .on_conflict_do_nothing(index_elements=["tenant", "run_id"])
    )
)
_RUNS = Statement(
    lambda _: (
        select(
            schedule_runs.c.run_id,
            schedule_runs.c.at,
            schedule_runs.c.started_at,
            schedule_runs.c.outcome,
            schedule_runs.c.code,
            executions.c.state,
        )
        .select_from(
            schedule_runs.outerjoin(
                executions,
                and_(executions.c.tenant == schedule_runs.c.tenant, executions.c.request_id == schedule_runs.c.run_id),
            )
        )
        .where(
            _OF_RUNS,
            or_(
                schedule_runs.c.at < bindparam("before", type_=Double),
                and_(
                    schedule_runs.c.at == bindparam("before", type_=Double),
                    schedule_runs.c.run_id < bindparam("before_id", type_=TEXT),
                ),
            ),
        )
        .order_by(schedule_runs.c.at.desc(), schedule_runs.c.run_id.desc())
        .limit(_LIMIT)
    )
)
DELETE_OLD_RUNS = Statement(lambda _: delete(schedule_runs).where(schedule_runs.c.started_at < bindparam("before")))
"""Deletion of what is known of times before one."""
