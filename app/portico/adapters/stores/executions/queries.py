"""Queries on executions. Input of clients is always a bound parameter, never part of the SQL text."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    BindParameter,
    CompoundSelect,
    Double,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    union,
    update,
)

from portico.adapters.stores.database import Statement
from portico.adapters.stores.schema import (
    HAS_HISTORY,
    HAS_NO_HISTORY,
    IS_LIVE,
    NOT_DELAYED,
    TEXT,
    cancels,
    commits,
    delayed_starts,
    executions,
    idempotency_keys,
    metadata_entries,
    sessions,
    suspensions,
)
from portico.adapters.stores.suspension_list import IS_OPEN_SUSPENSION, IS_SUSPENDED
from portico.domain.lifecycle import State

_OF_TENANT = executions.c.tenant == bindparam("the_tenant")
_IS_EXECUTION = executions.c.execution_id == bindparam("the_execution_id")
_IS_LIVE = text(f"executions.{IS_LIVE}")
_IS_CANCEL_REQUESTED = exists().where(
    cancels.c.execution_id == executions.c.execution_id, cancels.c.tenant == executions.c.tenant
)
_LIMIT: BindParameter[int] = bindparam("at_most", type_=BigInteger)
FILTERS: Mapping[str, str] = MappingProxyType(
    {"mode": "mode", "session_id": "session_id", "agent": "agent", "code": "last_error", "channel": "channel"}
)
"""Columns of the filters that compare one of them."""
_END_COLUMNS = ("state", "entered_at", "last_error", "commits", "events", "response")


def _execution() -> Select[Any]:
    """Select executions with the columns that the store reads, in its order."""
    return select(
        executions.c.execution_id,
        executions.c.tenant,
        executions.c.request_id,
        executions.c.session_id,
        executions.c.mode,
        executions.c.created_at,
        executions.c.owner,
        executions.c.epoch,
        executions.c.events,
        executions.c.agent,
        executions.c.entered_at,
        executions.c.state,
        executions.c.attempt,
        executions.c.total_steps,
        executions.c.last_step,
        executions.c.last_error,
        executions.c.started_at,
        executions.c.provider,
        executions.c.model,
        executions.c.fork_points,
        executions.c.response,
        executions.c.title,
        executions.c.origin,
        executions.c.origin_step,
        executions.c.user_id,
        executions.c.channel,
        executions.c.run_at,
    )


def _recovery_ticket() -> Select[Any]:
    """Select only the columns of a `RecoveryTicket`, which every version can read."""
    return select(executions.c.execution_id, executions.c.tenant, executions.c.owner, executions.c.epoch)


def _filter(column: str) -> BindParameter[str]:
    return bindparam(f"the_{column}", type_=TEXT)


_IN_SCOPE = or_(_filter("user_id").is_(None), executions.c.user_id == _filter("user_id"))
"""The user of the scope; None matches all users of the tenant."""
BY_REQUEST_ID = Statement(
    lambda _: _execution().where(_OF_TENANT, _IN_SCOPE, executions.c.request_id == bindparam("the_request_id"))
)
WITH_HEADER = Statement(
    lambda _: (
        _execution()
        .add_columns(func.coalesce(executions.c.header, commits.c.outcome))
        .select_from(
            executions.outerjoin(
                commits, and_(commits.c.execution_id == executions.c.execution_id, commits.c.number == 0)
            )
        )
        .where(_OF_TENANT, _IN_SCOPE, executions.c.request_id == bindparam("the_request_id"))
    )
)
"""The execution, and its header, which is stored alone or together with the first steps."""


@cache
def by_ids(count: int) -> Statement:
    """Return the query of so many executions of a tenant."""
    ids = [bindparam(f"id_{number}", type_=TEXT) for number in range(count)]
    return Statement(lambda _: _execution().where(_OF_TENANT, executions.c.execution_id.in_(ids)))


class PageForm(NamedTuple):
    """The conditions of a page that are in its query only if they are given: numbers of them, or whether it has one.

    `for_user` is True for the executions of one user, not of all.
    """

    states: int = 0
    pairs: int = 0
    by_prefix: bool = False
    by_origin: bool = False
    for_user: bool = False
    oldest_first: bool = False


@cache
def page(form: PageForm) -> Statement:
    """Return the query of a page.

    An execution's id is a UUID of version 7, so the order of the ids is the order of time.
    """
    order, position = executions.c.execution_id, bindparam("position", type_=TEXT)
    conditions = [_OF_TENANT, order > position if form.oldest_first else order < position]
    if form.for_user:
        conditions.append(executions.c.user_id == _filter("user_id"))
    if form.states:
        states = [bindparam(f"state_{number}", type_=TEXT) for number in range(form.states)]
        conditions.append(executions.c.state.in_(states))
    if form.by_prefix:
        conditions.append(order.in_(_with_prefix()))
    if form.by_origin:
        conditions.append(executions.c.origin == _filter("origin"))
    conditions += [order.in_(_with_metadata(number)) for number in range(form.pairs)]
    return Statement(
        lambda _: (
            _execution()
            .where(
                *conditions,
                *(
                    or_(_filter(name).is_(None), executions.c[column] == _filter(name))
                    for name, column in FILTERS.items()
                ),
                *_FURTHER_FILTERS,
            )
            .order_by(order.asc() if form.oldest_first else order.desc())
            .limit(_LIMIT)
        )
    )


def _with_metadata(number: int) -> Select[Any]:
    return select(metadata_entries.c.execution_id).where(
        metadata_entries.c.tenant == bindparam("the_tenant"),
        metadata_entries.c.entry == bindparam(f"entry_{number}", type_=TEXT),
    )


def _with_prefix() -> CompoundSelect[Any]:
    """Select the executions whose request id or session id begins with the prefix, each by its index."""
    return union(
        *(
            select(executions.c.execution_id).where(
                _OF_TENANT, column >= bindparam("prefix", type_=TEXT), column < bindparam("behind_prefix", type_=TEXT)
            )
            for column in (executions.c.request_id, executions.c.session_id)
        )
    )


_SINCE: BindParameter[float] = bindparam("since", type_=Double)
_UNTIL: BindParameter[float] = bindparam("until", type_=Double)
_FURTHER_FILTERS = (
    or_(_filter("model").is_(None), executions.c.model == _filter("model"), executions.c.provider == _filter("model")),
    or_(_SINCE.is_(None), executions.c.created_at >= _SINCE),
    or_(_UNTIL.is_(None), executions.c.created_at < _UNTIL),
)
EVENTS_BETWEEN = Statement(
    lambda _: (
        select(commits.c.first_event, commits.c.events)
        .select_from(
            executions.outerjoin(
                commits,
                and_(
                    commits.c.execution_id == executions.c.execution_id,
                    commits.c.last_event > bindparam("after"),
                    commits.c.first_event <= bindparam("up_to"),
                ),
            )
        )
        .where(_IS_EXECUTION, _OF_TENANT)
        .order_by(commits.c.number)
    )
)
"""Events of the commits; a row without events if there are none, and no row if there is no such execution."""
CLAIM = Statement(
    lambda _: (
        update(executions)
        .where(_IS_EXECUTION, executions.c.epoch == bindparam("the_epoch"), _IS_LIVE)
        .values(owner=bindparam("owner"), epoch=executions.c.epoch + 1)
        .returning(
            executions.c.tenant,
            executions.c.request_id,
            executions.c.session_id,
            executions.c.mode,
            executions.c.state,
            executions.c.attempt,
            executions.c.commits,
            executions.c.events,
            executions.c.epoch,
            executions.c.run_at,
        )
    )
)
FORGET_START = Statement(
    lambda _: delete(delayed_starts).where(
        delayed_starts.c.tenant == bindparam("the_tenant"),
        delayed_starts.c.timer_id == bindparam("the_execution_id"),
    )
)
"""Delete the time of a delayed start, which has begun or will never."""
RELEASE = Statement(
    lambda _: (
        update(executions)
        .where(_IS_EXECUTION, executions.c.epoch == bindparam("the_epoch"), _IS_LIVE)
        .values(owner=None, epoch=executions.c.epoch - 1)
    )
)
END_UNREADABLE = Statement(
    lambda _: (
        update(executions)
        .where(_OF_TENANT, _IS_EXECUTION, executions.c.epoch == bindparam("the_epoch"), _IS_LIVE)
        .values({name: bindparam(name) for name in _END_COLUMNS})
        .values(owner=None)
        .returning(executions.c.erase_at_end)
    )
)
ORPHANED = Statement(
    lambda _: (
        _recovery_ticket()
        .where(_IS_LIVE, or_(executions.c.owner.is_not(None), ~exists().where(IS_OPEN_SUSPENSION)), text(NOT_DELAYED))
        .order_by(executions.c.execution_id)
    )
)
EXPIRED = Statement(
    lambda _: (
        _recovery_ticket()
        .where(_IS_LIVE, IS_SUSPENDED, exists().where(IS_OPEN_SUSPENSION, suspensions.c.expires_at <= bindparam("now")))
        .order_by(executions.c.execution_id)
    )
)
OPEN_SUSPENSIONS = Statement(
    lambda _: (
        select(suspensions.c.suspension)
        .where(
            suspensions.c.tenant == bindparam("the_tenant"),
            suspensions.c.execution_id == bindparam("the_execution_id"),
            suspensions.c.answered_at.is_(None),
        )
        .order_by(suspensions.c.suspension_id)
    )
)
ADVANCE_SUSPENDED = Statement(
    lambda _: (
        update(executions)
        .where(_OF_TENANT, _IS_EXECUTION, IS_SUSPENDED, ~_IS_CANCEL_REQUESTED)
        .values(
            commits=executions.c.commits + bindparam("committed"),
            events=executions.c.events + bindparam("grown_by"),
        )
        .returning(executions.c.epoch, executions.c.commits, executions.c.events)
    )
)
ANSWER = Statement(
    lambda _: (
        update(suspensions)
        .where(
            suspensions.c.tenant == bindparam("the_tenant"),
            suspensions.c.execution_id == bindparam("the_execution_id"),
            suspensions.c.suspension_id == bindparam("the_suspension_id"),
            suspensions.c.answered_at.is_(None),
            suspensions.c.expires_at > bindparam("open_after"),
        )
        .values(answered_at=bindparam("now"))
        .returning(suspensions.c.suspension_id)
    )
)
CHANGE_SUSPENSION = Statement(
    lambda _: (
        update(suspensions)
        .where(
            suspensions.c.tenant == bindparam("the_tenant"),
            suspensions.c.execution_id == bindparam("the_execution_id"),
            suspensions.c.suspension_id == bindparam("the_suspension_id"),
            suspensions.c.answered_at.is_(None),
            suspensions.c.expires_at > bindparam("now"),
        )
        .values(suspension=bindparam("changed"))
        .returning(suspensions.c.suspension_id)
    )
)
CONTINUE_ANSWERED = Statement(
    lambda _: (
        update(executions)
        .where(_OF_TENANT, _IS_EXECUTION)
        .values(state=State.EXECUTE.value, entered_at=bindparam("now", type_=Double), response=None)
    )
)
"""Show that a claimed execution whose last suspension was answered goes on; its events say so in its next commit."""
COUNT_OPEN_SUSPENSIONS = Statement(
    lambda _: (
        select(func.count())
        .select_from(suspensions)
        .where(
            suspensions.c.tenant == bindparam("the_tenant"),
            suspensions.c.execution_id == bindparam("the_execution_id"),
            suspensions.c.answered_at.is_(None),
        )
    )
)
REQUEST_CANCEL = Statement(
    lambda insert: (
        insert(cancels)
        .from_select(
            ["execution_id", "tenant", "asked_at"],
            select(executions.c.execution_id, executions.c.tenant, bindparam("asked_at", type_=Double)).where(
                _OF_TENANT, _IS_EXECUTION
            ),
        )
        .on_conflict_do_nothing(index_elements=["execution_id"])
    )
)
IS_CANCEL_REQUESTED = Statement(
    lambda _: select(executions.c.epoch).where(_OF_TENANT, _IS_EXECUTION, _IS_CANCEL_REQUESTED)
)
CANCEL_REQUESTED = Statement(
    lambda _: (
        _recovery_ticket()
        .join(
            cancels, and_(cancels.c.execution_id == executions.c.execution_id, cancels.c.tenant == executions.c.tenant)
        )
        .where(_IS_LIVE, or_(executions.c.owner.is_(None), executions.c.owner == bindparam("the_owner")))
        .order_by(executions.c.execution_id)
    )
)
COUNT_WAITING = Statement(
    lambda _: (
        select(func.count())
        .select_from(executions)
        .where(
            _IS_LIVE,
            executions.c.owner.is_(None),
            executions.c.state != literal_column("'SUSPENDED'"),
            text(NOT_DELAYED),
        )
    )
)
"""Number of queued executions."""
WITH_HISTORY = Statement(
    lambda _: (
        select(executions.c.execution_id)
        .where(text(HAS_HISTORY), executions.c.entered_at < bindparam("before"))
        .order_by(executions.c.entered_at)
        .limit(_LIMIT)
    )
)
"""Executions that ended before a time and have steps and events."""
WITHOUT_HISTORY = Statement(
    lambda _: (
        select(executions.c.execution_id)
        .where(text(HAS_NO_HISTORY), executions.c.entered_at < bindparam("before"))
        .order_by(executions.c.entered_at)
        .limit(_LIMIT)
    )
)
"""Executions that ended before a time and have no steps and events any more."""
IDLE_SESSIONS = Statement(
    lambda _: (
        select(sessions.c.tenant, sessions.c.session_id)
        .where(
            sessions.c.updated_at < bindparam("before"),
            sessions.c.holder.is_(None),
            ~exists()
            .where(
                delayed_starts.c.tenant == sessions.c.tenant,
                delayed_starts.c.timer_id == executions.c.execution_id,
                executions.c.session_id == sessions.c.session_id,
            )
            .correlate(sessions),
        )
        .order_by(sessions.c.updated_at)
        .limit(_LIMIT)
    )
)
"""Sessions whose last turn ended before a time, and that have no turn to come."""
DELETE_OLD_IDEMPOTENCY_KEYS = Statement(
    lambda _: delete(idempotency_keys).where(idempotency_keys.c.created_at < bindparam("before"))
)
