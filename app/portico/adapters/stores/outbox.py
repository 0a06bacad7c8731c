"""Stored deliveries of webhooks, and the endpoints that were made over the API.

Theory of operation

1. A delivery is inserted in the commit of what it announces. Its id is made of what that is, so it is inserted once.
2. The deliveries of one tenant to one endpoint are a lane. The lanes are found by a loose scan of the index of what
   waits, which reads one entry of each: many deliveries to one endpoint cost those to another nothing.
3. A delivery is a timer. A replica claims it, and ends the claim with the outcome of the attempt; a claim ends with its
   replica, too, so that each delivery is sent at least once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Double,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    text,
    update,
)

from portico.adapters.stores.database import (
    Database,
    ResultRow,
    ResultRows,
    Statement,
    Transaction,
    execute,
    execute_each,
)
from portico.adapters.stores.schema import IS_UNCLAIMED, TEXT, webhook_deliveries, webhook_endpoints, webhook_states
from portico.domain.ids import KeyId, ReplicaId, TenantId
from portico.domain.webhooks import DeliveryAttempt, EndpointState, StoredEndpoint, WebhookEndpoint
from portico.ports.outbox import Delivery, DeliveryFilter, DeliveryLane, DueDelivery, StoredDelivery, lane_of
from portico.ports.storage import ResultPage

_MAX_ERROR: Final = 500
DISABLED: Final = "the endpoint is disabled"
"""The error of a delivery that was not tried because its endpoint takes none."""


def delivery_row(delivery: Delivery, *, due_at: float) -> dict[str, Any]:
    """Return the row of a delivery that is due at that time."""
    return {
        "timer_id": delivery.delivery_id,
        "tenant": delivery.tenant,
        "due_at": due_at,
        "claimed_by": None,
        "lane": lane_of(delivery.tenant, delivery.endpoint),
        "endpoint_key": delivery.endpoint.key,
        "endpoint": delivery.endpoint.name,
        "type": delivery.type,
        "execution_id": delivery.execution_id,
        "request_id": delivery.request_id,
        "state": "waiting",
        "attempts": 0,
        "last_status": None,
        "last_error": None,
        "created_at": delivery.created_at,
        "ended_at": None,
        "body": delivery.body,
    }


def insert_deliveries(rows: Sequence[Mapping[str, Any]]) -> Transaction[ResultRows]:
    """Insert deliveries; those that are there already are left as they are."""
    return (yield from execute_each(_INSERT, rows))


class DatabaseOutbox:
    """Implementation of the `OutboxStore` port; this replica claims deliveries as `owner`."""

    def __init__(self, database: Database, owner: ReplicaId) -> None:
        self._database = database
        self._owner = owner

    async def endpoints(self) -> tuple[Sequence[StoredEndpoint], Mapping[str, EndpointState]]:
        return await self._database.read(_endpoints)

    async def put(self, stored: StoredEndpoint, *, most: int) -> bool:
        return await self._database.write(lambda: _put(stored, most), idempotent=True)

    async def rotate(self, stored: StoredEndpoint) -> None:
        row, endpoint = _endpoint_row(stored), stored.endpoint
        values = {name: row[name] for name in _SECRETS} | {"the_tenant": endpoint.tenant, "the_name": endpoint.name}
        await self._database.write(lambda: execute(_ROTATE, values), idempotent=True)

    async def delete(self, tenant: TenantId, name: str) -> bool:
        return await self._database.write(lambda: _delete(tenant, name))

    async def set_state(self, endpoint: WebhookEndpoint, state: EndpointState, *, now: float) -> None:
        await self._database.write(lambda: _set_state(endpoint.key, endpoint.tenant, state, now), idempotent=True)

    async def add(self, delivery: Delivery, *, at: float) -> None:
        row = delivery_row(delivery, due_at=at)
        await self._database.write(lambda: insert_deliveries([row]), idempotent=True)

    async def deliveries(
        self, tenant: TenantId, where: DeliveryFilter, *, after: str | None = None, limit: int
    ) -> ResultPage[StoredDelivery]:
        before, _, before_id = (after or "inf/").partition("/")
        values = {
            "the_tenant": tenant,
            "the_state": where.state,
            "the_endpoint": where.endpoint,
            "the_request_id": where.request_id,
            "before": float(before),
            "before_id": before_id,
            "at_most": limit + 1,
        }
        rows = await self._database.read(lambda: execute(_PAGE, values))
        found = list(map(_stored_delivery, rows[:limit]))
        return ResultPage(found, f"{found[-1].created_at!r}/{found[-1].delivery_id}" if len(rows) > limit else None)

    async def revive(self, tenant: TenantId, delivery_id: str, *, at: float) -> StoredDelivery | None:
        which = {"the_tenant": tenant, "the_delivery_id": delivery_id, "at": at}
        rows = await self._database.write(lambda: execute(_REVIVE, which), idempotent=True)
        return _stored_delivery(rows[0]) if rows else None

    async def lanes(self) -> Sequence[DeliveryLane]:
        return [DeliveryLane(*row) for row in await self._database.read(lambda: execute(_LANES, {}))]

    async def claim(self, places: Mapping[str, int], now: float) -> Sequence[DueDelivery]:
        asked = [{"owner": self._owner, "the_lane": lane, "most": most, "now": now} for lane, most in places.items()]
        rows = await self._database.write(lambda: execute_each(_CLAIM, asked))
        return [DueDelivery(*row) for row in rows]

    async def settle(self, due: DueDelivery, attempt: DeliveryAttempt, *, now: float, next_at: float | None) -> None:
        is_over = attempt.is_delivered or next_at is None
        values = {
            "the_delivery_id": due.delivery_id,
            "the_owner": self._owner,
            "state": "delivered" if attempt.is_delivered else "dead" if next_at is None else "waiting",
            "attempts": due.attempts + 1,
            "last_status": attempt.status,
            "last_error": None if attempt.error is None else attempt.error[:_MAX_ERROR],
            "due_at": None if is_over else next_at,
            "ended_at": now if is_over else None,
        }
        await self._database.write(lambda: execute(_SETTLE, values), idempotent=True)


async def count_dead(database: Database) -> int:
    """Return the number of dead deliveries. Raises: StorageFailure."""
    rows = await database.read(lambda: execute(_COUNT_DEAD, {}))
    count: int = rows[0][0]
    return count


async def purge_deliveries(database: Database, delivered_before: float, dead_before: float, *, limit: int) -> int:
    """Delete at most `limit` deliveries of each state that ended before its time; return how many.

    Raises: StorageFailure.
    """
    before = {"delivered": delivered_before, "dead": dead_before}
    asked = [{"the_state": state, "before": at, "at_most": limit} for state, at in before.items()]
    return len(await database.maintain(lambda: execute_each(_PURGE, asked)))


def _endpoints() -> Transaction[tuple[Sequence[StoredEndpoint], Mapping[str, EndpointState]]]:
    rows = yield from execute(_ALL, {})
    states = yield from execute(_STATES, {})
    return list(map(_stored_endpoint, rows)), {row[0]: EndpointState(*tuple(row)[1:]) for row in states}


def _put(stored: StoredEndpoint, most: int) -> Transaction[bool]:
    endpoint = stored.endpoint
    which = {"the_tenant": endpoint.tenant, "the_name": endpoint.name}
    if not (yield from execute(_ENDPOINT, which)):
        count = yield from execute(_COUNT_ENDPOINTS, which)
        if count[0][0] >= most:
            return False
    yield from execute(_PUT, _endpoint_row(stored))
    yield from execute(_DELETE_STATE, {"the_key": endpoint.key})
    return True


def _delete(tenant: TenantId, name: str) -> Transaction[bool]:
    found = yield from execute(_DELETE, {"the_tenant": tenant, "the_name": name})
    if not found:
        return False
    endpoint = WebhookEndpoint(name, "", tenant)
    yield from execute(_DELETE_STATE, {"the_key": endpoint.key})
    yield from execute(_DELETE_DELIVERIES, {"the_key": endpoint.key})
    return True


def _set_state(key: str, tenant: TenantId | None, state: EndpointState, now: float) -> Transaction[None]:
    row = {
        "endpoint": key,
        "tenant": tenant or "",
        "failing_since": state.failing_since,
        "disabled_at": state.disabled_at,
        "disabled_because": state.disabled_because,
    }
    yield from execute(_SET_STATE, row)
    if state.disabled_at is not None:
        yield from execute(_BURY, {"the_key": key, "now": now, "error": DISABLED})


def webhooks_of(key_id: KeyId) -> Transaction[ResultRows]:
    """Return tenant and name of the endpoints that a key made and that hear of events."""
    return (yield from execute(_OF_KEY, {"the_key_id": key_id}))


def disable_webhooks(key_id: KeyId, at: float) -> Transaction[None]:
    """Disable the endpoints that a key made; what waits for them is dead."""
    for tenant, name in (yield from webhooks_of(key_id)):
        yield from _set_state(WebhookEndpoint(name, "", tenant).key, tenant, EndpointState(None, at, "revoked"), at)


def _endpoint_row(stored: StoredEndpoint) -> dict[str, Any]:
    endpoint = stored.endpoint
    return {
        "tenant": endpoint.tenant,
        "name": endpoint.name,
        "url": endpoint.url.encode(),
        "events": orjson.dumps(endpoint.events),
        "always": int(endpoint.always),
        "content": int(endpoint.content),
        "secret": stored.secret,
        "earlier_secret": stored.earlier_secret,
        "earlier_until": stored.earlier_until,
        "created_at": stored.created_at,
        "updated_at": stored.updated_at,
        "created_by": stored.created_by,
    }


def _stored_endpoint(row: ResultRow) -> StoredEndpoint:
    tenant, name, url, events, always, content, secret, earlier, until, created_at, updated_at, created_by = row
    endpoint = WebhookEndpoint(
        name, url.decode(), tenant, events=tuple(orjson.loads(events)), always=bool(always), content=bool(content)
    )
    return StoredEndpoint(endpoint, secret, created_at, updated_at, created_by, earlier, until)


def _stored_delivery(row: ResultRow) -> StoredDelivery:
    return StoredDelivery(*row)


_WAITS = text(IS_UNCLAIMED)
_OF_DELIVERY = webhook_deliveries.c.timer_id == bindparam("the_delivery_id")
_SHOWN = tuple(
    webhook_deliveries.c[name]
    for name in (
        *("timer_id", "endpoint", "type", "request_id", "state", "attempts", "last_status", "last_error"),
        *("created_at", "due_at"),
    )
)
_INSERT = Statement(lambda insert: insert(webhook_deliveries).on_conflict_do_nothing(index_elements=["timer_id"]))
_ALL = Statement(lambda _: select(*webhook_endpoints.c).order_by(webhook_endpoints.c.tenant, webhook_endpoints.c.name))
_STATES = Statement(
    lambda _: select(
        *(webhook_states.c[name] for name in ("endpoint", "failing_since", "disabled_at", "disabled_because"))
    )
)
_IS_ENDPOINT = and_(
    webhook_endpoints.c.tenant == bindparam("the_tenant"), webhook_endpoints.c.name == bindparam("the_name")
)
_ENDPOINT = Statement(lambda _: select(*webhook_endpoints.c).where(_IS_ENDPOINT))
_COUNT_ENDPOINTS = Statement(
    lambda _: (
        select(func.count()).select_from(webhook_endpoints).where(webhook_endpoints.c.tenant == bindparam("the_tenant"))
    )
)
_CHANGED = (
    *("url", "events", "always", "content", "secret", "earlier_secret", "earlier_until", "updated_at", "created_by"),
)
_PUT = Statement(
    lambda insert: (
        insert(webhook_endpoints)
        .values({column.name: bindparam(column.name) for column in webhook_endpoints.c})
        .on_conflict_do_update(index_elements=["tenant", "name"], set_={name: bindparam(name) for name in _CHANGED})
    )
)
_SECRETS = ("secret", "earlier_secret", "earlier_until", "updated_at")
_ROTATE = Statement(
    lambda _: update(webhook_endpoints).where(_IS_ENDPOINT).values({name: bindparam(name) for name in _SECRETS})
)
_DELETE = Statement(lambda _: delete(webhook_endpoints).where(_IS_ENDPOINT).returning(webhook_endpoints.c.name))
_DELETE_STATE = Statement(lambda _: delete(webhook_states).where(webhook_states.c.endpoint == bindparam("the_key")))
_DELETE_DELIVERIES = Statement(
    lambda _: delete(webhook_deliveries).where(webhook_deliveries.c.endpoint_key == bindparam("the_key"))
)
_SET_STATE = Statement(
    lambda insert: (
        insert(webhook_states)
        .values({column.name: bindparam(column.name) for column in webhook_states.c})
        .on_conflict_do_update(
            index_elements=["endpoint"],
            set_={name: bindparam(name) for name in ("failing_since", "disabled_at", "disabled_because")},
        )
    )
)
_BURY = Statement(
    lambda _: (
        update(webhook_deliveries)
        .where(webhook_deliveries.c.endpoint_key == bindparam("the_key"), _WAITS)
        .values(state="dead", due_at=None, ended_at=bindparam("now"), last_error=bindparam("error"))
    )
)
_STATE: BindParameter[str] = bindparam("the_state", type_=TEXT)
_NAME: BindParameter[str] = bindparam("the_endpoint", type_=TEXT)
_REQUEST: BindParameter[str] = bindparam("the_request_id", type_=TEXT)
_BEFORE: BindParameter[float] = bindparam("before", type_=Double)
_PAGE = Statement(
    lambda _: (
        select(*_SHOWN)
        .where(
            webhook_deliveries.c.tenant == bindparam("the_tenant"),
            or_(_STATE.is_(None), webhook_deliveries.c.state == _STATE),
            or_(_NAME.is_(None), webhook_deliveries.c.endpoint == _NAME),
            or_(_REQUEST.is_(None), webhook_deliveries.c.request_id == _REQUEST),
            or_(
                webhook_deliveries.c.created_at < _BEFORE,
                and_(
                    webhook_deliveries.c.created_at == _BEFORE,
                    webhook_deliveries.c.timer_id < bindparam("before_id", type_=TEXT),
                ),
            ),
        )
        .order_by(webhook_deliveries.c.created_at.desc(), webhook_deliveries.c.timer_id.desc())
        .limit(bindparam("at_most", type_=BigInteger))
    )
)
_REVIVE = Statement(
    lambda _: (
        update(webhook_deliveries)
        .where(webhook_deliveries.c.tenant == bindparam("the_tenant"), _OF_DELIVERY)
        .values(state="waiting", attempts=0, due_at=bindparam("at"), ended_at=None)
        .returning(*_SHOWN)
    )
)


def _make_lanes() -> Any:
    """Return the selection of all lanes, each with the time of its first delivery."""
    waiting = webhook_deliveries
    first = select(func.min(waiting.c.lane).label("lane")).where(_WAITS).cte("lanes", recursive=True)
    following = select(func.min(waiting.c.lane)).where(_WAITS, waiting.c.lane > first.c.lane).scalar_subquery()
    lanes = first.union_all(select(following).where(first.c.lane.is_not(None)))
    due = select(func.min(waiting.c.due_at)).where(_WAITS, waiting.c.lane == lanes.c.lane).scalar_subquery()
    return select(lanes.c.lane, due).where(lanes.c.lane.is_not(None))


_LANES = Statement(lambda _: _make_lanes())
_CLAIM = Statement(
    lambda _: (
        update(webhook_deliveries)
        .where(
            webhook_deliveries.c.timer_id.in_(
                select(webhook_deliveries.c.timer_id)
                .where(
                    webhook_deliveries.c.lane == bindparam("the_lane"),
                    _WAITS,
                    webhook_deliveries.c.due_at <= bindparam("now", type_=Double),
                )
                .order_by(webhook_deliveries.c.due_at)
                .limit(bindparam("most", type_=BigInteger))
                .with_for_update(skip_locked=True)
                .scalar_subquery()
            )
        )
        .values(claimed_by=bindparam("owner"))
        .returning(*(webhook_deliveries.c[name] for name in ("timer_id", "lane", "due_at", "attempts", "body")))
    )
)
_SETTLE = Statement(
    lambda _: (
        update(webhook_deliveries)
        .where(_OF_DELIVERY, webhook_deliveries.c.claimed_by == bindparam("the_owner"))
        .values(
            claimed_by=None,
            **{
                name: bindparam(name)
                for name in ("state", "attempts", "last_status", "last_error", "due_at", "ended_at")
            },
        )
    )
)
_COUNT_DEAD = Statement(
    lambda _: (
        select(func.count())
        .select_from(webhook_deliveries)
        .where(text("ended_at IS NOT NULL"), webhook_deliveries.c.state == literal_column("'dead'"))
    )
)
_PURGE = Statement(
    lambda _: (
        delete(webhook_deliveries)
        .where(
            webhook_deliveries.c.timer_id.in_(
                select(webhook_deliveries.c.timer_id)
                .where(
                    webhook_deliveries.c.state == bindparam("the_state"),
                    webhook_deliveries.c.ended_at < bindparam("before", type_=Double),
                )
                .limit(bindparam("at_most", type_=BigInteger))
                .scalar_subquery()
            )
        )
        .returning(webhook_deliveries.c.timer_id)
    )
)
_HEARS = and_(webhook_endpoints.c.created_by == bindparam("the_key_id"), webhook_states.c.disabled_at.is_(None))
_OF_KEY = Statement(
    lambda _: (
        select(webhook_endpoints.c.tenant, webhook_endpoints.c.name)
        .select_from(
            webhook_endpoints.outerjoin(
                webhook_states,
                webhook_states.c.endpoint
                == webhook_endpoints.c.tenant + literal_column("' '") + webhook_endpoints.c.name,
            )
        )
        .where(_HEARS)
        .order_by(webhook_endpoints.c.name)
    )
)
