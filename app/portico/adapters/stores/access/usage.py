"""Stored usage."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, get_args

from sqlalchemy import ColumnElement, Insert, Select, bindparam, case, delete, func, select

from portico.adapters.stores.database import (
    Database,
    Insertion,
    ResultRows,
    Statement,
    StatementCall,
    Transaction,
    execute,
    execute_each,
)
from portico.adapters.stores.schema import usage
from portico.ports.limits import UsageCounts, UsageFilter, UsageGroup, UsageKey

HOURS_PER_DAY: Final = 24
_HOUR_S: Final = 3_600
_LAST_HOUR: Final = 2**40
_KEYS = ("source", "tenant", "hour", "user", "key_id", "agent", "model")
_COUNTS = ("executions", "input_tokens", "output_tokens", "cost")


class DatabaseUsage:
    """Implementation of the `UsageStore` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(
        self,
        process: Mapping[UsageKey, UsageCounts],
        executions: Mapping[UsageKey, UsageCounts],
        surplus: Collection[UsageKey] = (),
    ) -> None:
        totals, own, deleted = usage_rows(process), usage_rows(executions), [key._asdict() for key in surplus]
        await self._database.write(lambda: _write(totals, own, deleted), idempotent=True)

    async def read(self, where: UsageFilter, by: UsageGroup) -> Sequence[tuple[str, UsageCounts]]:
        statement = _READ[by, where.user is not None]
        parameters = {
            "the_tenant": where.tenant,
            "the_user": where.user,
            "since": where.since or 0,
            "until": _LAST_HOUR if where.until is None else where.until,
        }
        rows = await self._database.read(lambda: execute(statement, parameters))
        return [(_day(row[0]) if by == "day" else row[0], _counts(row)) for row in rows]

    async def purge(self, before: float) -> None:
        """Delete the usage before that time, in Unix seconds. Raises: StorageFailure."""
        hour = int(before // _HOUR_S)
        await self._database.write(lambda: execute(_PURGE, {"before": hour}), idempotent=True)


def _counts(row: Any) -> UsageCounts:
    executions, input_tokens, output_tokens, cost = (row[index] for index in range(1, 5))
    return UsageCounts(int(executions), int(input_tokens), int(output_tokens), float(cost))


def _day(number: int) -> str:
    return datetime.fromtimestamp(number * HOURS_PER_DAY * _HOUR_S, UTC).date().isoformat()


def usage_rows(counts: Mapping[UsageKey, UsageCounts]) -> list[dict[str, Any]]:
    """Return the rows of these totals."""
    return [key._asdict() | dict(zip(_COUNTS, astuple(each), strict=True)) for key, each in counts.items()]


def raise_usage(rows: Iterable[Mapping[str, Any]]) -> Generator[StatementCall, ResultRows, None]:
    """Store the totals of executions where they are larger, in the order in which every transaction locks the rows."""
    yield from execute_each(_RAISE, sorted(rows, key=itemgetter(*_KEYS)))


def _write(
    process: Sequence[Mapping[str, Any]], executions: Sequence[Mapping[str, Any]], surplus: Sequence[Mapping[str, Any]]
) -> Transaction[None]:
    yield from execute_each(_REPLACE, process)
    yield from raise_usage(executions)
    yield from execute_each(_DELETE, surplus)


def _read(by: UsageGroup, *, own: bool) -> Select[Any]:
    """Return the query of the sums; an execution counts once, and for each model that it used."""
    groups: Mapping[UsageGroup, ColumnElement[Any]] = {
        "day": usage.c.hour // HOURS_PER_DAY,
        "key": usage.c.key_id,
        "user": usage.c.user,
        "agent": usage.c.agent,
        "model": usage.c.model,
    }
    group = groups[by].label("grouped")
    is_counted = usage.c.model != "" if by == "model" else usage.c.model == ""
    executions = func.sum(case((is_counted, usage.c.executions), else_=0))
    sums = (executions, *(func.sum(usage.c[name]) for name in _COUNTS[1:]))
    conditions = [
        usage.c.tenant == bindparam("the_tenant"),
        usage.c.hour >= bindparam("since"),
        usage.c.hour < bindparam("until"),
    ]
    if own:
        conditions.append(usage.c.user == bindparam("the_user"))
    if by == "model":
        conditions.append(usage.c.model != "")
    return select(group, *sums).where(*conditions).group_by(group).order_by(group)


def _reader(by: UsageGroup, *, own: bool) -> Callable[[object], Select[Any]]:
    return lambda _: _read(by, own=own)


_READ: Mapping[tuple[UsageGroup, bool], Statement] = MappingProxyType(
    {(by, own): Statement(_reader(by, own=own)) for by in get_args(UsageGroup) for own in (True, False)}
)


def _write_counts(insert: Insertion, changes: Mapping[str, Any]) -> Insert:
    return (
        insert(usage)
        .values({name: bindparam(name) for name in (*_KEYS, *_COUNTS)})
        .on_conflict_do_update(
            index_elements=["tenant", "hour", "user", "key_id", "agent", "model", "source"], set_=changes
        )
    )


_REPLACE = Statement(lambda insert: _write_counts(insert, {name: bindparam(name) for name in _COUNTS}))
_RAISE = Statement(
    lambda insert: _write_counts(
        insert,
        {name: case((usage.c[name] > bindparam(name), usage.c[name]), else_=bindparam(name)) for name in _COUNTS},
    )
)
_DELETE = Statement(lambda _: delete(usage).where(*(usage.c[name] == bindparam(name) for name in _KEYS)))
_PURGE = Statement(lambda _: delete(usage).where(usage.c.hour < bindparam("before")))
