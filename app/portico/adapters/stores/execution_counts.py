"""Counts of executions by time, state and duration, in one query.

An index has all that is counted of executions that have ended, so their rows are not read [measured: half the time].
Bucket, state and duration are one number, since rows are grouped by a number in two thirds of the time.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    text,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from portico.adapters.stores.database import ResultRow, Statement, Transaction, execute
from portico.adapters.stores.schema import IS_ENDED, IS_LIVE, TEXT, executions
from portico.domain.access.principal import AccessScope
from portico.domain.lifecycle import TERMINAL, State
from portico.ports.storage import DURATION_BOUNDS, CountSelection, ExecutionCount

_UNINDEXED_TENANT: Final = executions.c.tenant.concat(literal_column("''"))
"""The tenant as no index has it: else SQLite reads all executions of the tenant to find the few live ones."""
_STATES: Final[Sequence[State]] = (
    *(State.COMPLETE, State.ERROR, State.CANCELLED),
    *(state for state in State if state not in TERMINAL),
)
_CLASSES: Final = len(DURATION_BOUNDS) + 2
"""The classes of durations, and one for what has none, which is the last."""
_GROUPS: Final = len(_STATES) * _CLASSES


def select_counts(scope: AccessScope, where: CountSelection) -> Transaction[list[ExecutionCount]]:
    """Return the counts of the executions in the scope that were created within the time, the oldest first."""
    filters = {"user_id": scope.user, "agent": where.agent, "mode": where.mode, "model": where.model}
    given = {f"the_{name}": value for name, value in filters.items() if value is not None}
    times = {
        "width": float(where.width),
        "since": where.since,
        "until": where.until,
    }
    statement = _counts(_CountForm(*(value is not None for value in filters.values())))
    rows = yield from execute(statement, {"the_tenant": scope.tenant, **times, **given})
    return [_count(row, where.width) for row in rows]


def _count(row: ResultRow, width: int) -> ExecutionCount:
    group, number = row
    bucket, rest = divmod(group, _GROUPS)
    state, duration = divmod(rest, _CLASSES)
    is_ended = duration < _CLASSES - 1
    return ExecutionCount(bucket * width, _STATES[state], duration if is_ended else None, number)


class _Floor(GenericFunction[int]):
    """The next lower whole number; SQLite need not have the function, and cuts off in a cast."""

    type = BigInteger()
    inherit_cache = True


@compiles(_Floor)
def _compile_floor(element: _Floor, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST(floor({compiler.process(element.clauses, **options)}) AS BIGINT)"


@compiles(_Floor, "sqlite")
def _compile_cast(element: _Floor, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **options)} AS INTEGER)"


class _CountForm(NamedTuple):
    """The conditions that are in the query only if they are given."""

    for_user: bool
    by_agent: bool
    by_mode: bool
    by_model: bool


@cache
def _counts(form: _CountForm) -> Statement:
    conditions = [
        executions.c.created_at >= bindparam("since", type_=Double),
        executions.c.created_at < bindparam("until", type_=Double),
    ]
    columns = (executions.c.user_id, executions.c.agent, executions.c.mode)
    for column, is_given in zip(columns, form[:3], strict=True):
        if is_given:
            conditions.append(column == bindparam(f"the_{column.name}", type_=TEXT))
    if form.by_model:
        model = bindparam("the_model", type_=TEXT)
        conditions.append(or_(executions.c.model == model, executions.c.provider == model))
    parts = (
        select(_group().label("group")).where(
            text(f"executions.{part}"), tenant == bindparam("the_tenant"), *conditions
        )
        for part, tenant in ((IS_ENDED, executions.c.tenant), (IS_LIVE, _UNINDEXED_TENANT))
    )
    found = union_all(*parts).subquery()
    return Statement(lambda _: select(found.c.group, func.count()).group_by(found.c.group).order_by(found.c.group))


def _group() -> ColumnElement[Any]:
    """Return the number of an execution's bucket, state and class of durations."""
    bucket = _Floor(executions.c.created_at / bindparam("width", type_=Double))
    states = {
        state: _number(number * _CLASSES) + (_duration_class() if state in TERMINAL else _number(_CLASSES - 1))
        for number, state in enumerate(_STATES)
    }
    return bucket * _number(_GROUPS) + case(
        {_text(state): group for state, group in states.items()}, value=executions.c.state
    )


def _duration_class() -> ColumnElement[Any]:
    """Return the number of the first bound that the duration does not exceed; the last class for what never began."""
    seconds = executions.c.entered_at - executions.c.started_at
    return case(
        (executions.c.started_at.is_(None), _number(_CLASSES - 1)),
        *((seconds <= literal_column(repr(bound)), _number(place)) for place, bound in enumerate(DURATION_BOUNDS)),
        else_=_number(len(DURATION_BOUNDS)),
    )


def _number(value: int) -> ColumnElement[int]:
    return literal_column(str(value), BigInteger)


def _text(value: str) -> ColumnElement[str]:
    return literal_column(f"'{value}'", TEXT)
