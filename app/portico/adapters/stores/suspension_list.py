"""List of open suspensions: which of them a user may see, by filters and pages."""

from dataclasses import fields

from sqlalchemy import BigInteger, BindParameter, ColumnElement, Double, and_, bindparam, or_, select

from portico.adapters.stores import codec
from portico.adapters.stores.database import ResultRow, Statement, Transaction, execute
from portico.adapters.stores.schema import TEXT, executions, suspensions
from portico.domain.access.principal import AccessScope
from portico.domain.journal.suspensions import ABOUT_CALLS
from portico.ports.storage import OpenSuspension, OtherUsers, ResultPage, SuspensionFilter


def select_suspensions(
    own: AccessScope, where: SuspensionFilter, others: OtherUsers, *, after: str | None, limit: int
) -> Transaction[ResultPage[OpenSuspension]]:
    """Return a page of the open suspensions of a user, and of `others`."""
    filters = {f"the_{each.name}": getattr(where, each.name) for each in fields(where) if each.name != "since"}
    execution_id, _, suspension_id = (after or "").partition("/")
    position = {"position": execution_id, "suspension_position": suspension_id, "at_most": limit + 1}
    which = {"the_tenant": own.tenant, "the_user_id": own.user, "others": others, "since": where.since}
    rows = yield from execute(_OPEN_SUSPENSIONS, which | filters | position)
    items = [_open_suspension(row) for row in rows[:limit]]
    last = f"{items[-1].execution_id}/{items[-1].suspension.suspension_id}" if len(rows) > limit else None
    return ResultPage(items, last)


def _open_suspension(row: ResultRow) -> OpenSuspension:
    execution_id, request_id, session_id, user, channel, stored = row
    return OpenSuspension(execution_id, request_id, session_id, user, channel, codec.decode_suspension(stored))


def _filter(name: str) -> BindParameter[str]:
    return bindparam(f"the_{name}", type_=TEXT)


IS_SUSPENDED = and_(executions.c.state == "SUSPENDED", executions.c.owner.is_(None))
IS_OPEN_SUSPENSION = and_(
    suspensions.c.execution_id == executions.c.execution_id,
    suspensions.c.tenant == executions.c.tenant,
    suspensions.c.answered_at.is_(None),
)
_LIMIT: BindParameter[int] = bindparam("at_most", type_=BigInteger)
_SINCE: BindParameter[float] = bindparam("since", type_=Double)
_OTHERS: BindParameter[str] = bindparam("others", type_=TEXT)


def _unless_other(column: str) -> ColumnElement[bool]:
    """Return the condition of a filter, which is null if any value is looked for."""
    return or_(_filter(column).is_(None), suspensions.c[column] == _filter(column))


_OPEN_SUSPENSIONS = Statement(
    lambda _: (
        select(
            executions.c.execution_id,
            executions.c.request_id,
            executions.c.session_id,
            executions.c.user_id,
            executions.c.channel,
            suspensions.c.suspension,
        )
        .join(executions, IS_OPEN_SUSPENSION)
        .where(
            executions.c.tenant == bindparam("the_tenant"),
            suspensions.c.tenant == bindparam("the_tenant"),
            IS_SUSPENDED,
            or_(
                executions.c.user_id == _filter("user_id"),
                _OTHERS == "all",
                and_(_OTHERS == "calls", or_(*(suspensions.c.kind == each for each in sorted(ABOUT_CALLS)))),
            ),
            *(
                or_(_filter(name).is_(None), executions.c[name] == _filter(name))
                for name in ("request_id", "session_id", "channel")
            ),
            or_(_filter("user").is_(None), executions.c.user_id == _filter("user")),
            _unless_other("tool"),
            _unless_other("kind"),
            or_(_SINCE.is_(None), suspensions.c.asked_at.is_(None), suspensions.c.asked_at >= _SINCE),
            or_(
                suspensions.c.execution_id > bindparam("position", type_=TEXT),
                and_(
                    suspensions.c.execution_id == bindparam("position", type_=TEXT),
                    suspensions.c.suspension_id > bindparam("suspension_position", type_=TEXT),
                ),
            ),
        )
        .order_by(suspensions.c.execution_id, suspensions.c.suspension_id)
        .limit(_LIMIT)
    )
)
