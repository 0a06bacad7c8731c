"""Webhooks of a tenant: the endpoints, those of the file included, and the deliveries to them.

An endpoint hears of the executions of all users, so a caller needs `can_view_tenant` beside `can_manage_webhooks`.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from portico.domain.access.principal import Permission, Principal
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import AccessFailure, Code, RequestFailure, invalid_request
from portico.domain.ids import KeyId, RequestId, TenantId
from portico.domain.time_zones import DAY_S
from portico.domain.value import replace, value
from portico.domain.webhooks import (
    RESERVED_NAMES,
    WEBHOOK_EVENTS,
    DeliveryState,
    StoredEndpoint,
    WebhookEndpoint,
    WebhookEvent,
)
from portico.orchestration.deliveries import SECRETS_OWNER, EndpointCatalogue
from portico.orchestration.rights import require
from portico.ports.outbox import Delivery, DeliveryFilter, OutboxStore, StoredDelivery, WebhookSender
from portico.ports.runtime import Clock, Entropy
from portico.ports.secrets import SecretSeal

MAX_ENDPOINTS: Final = 20
"""Endpoints that a tenant may make."""
_SECRET_BYTES: Final = 32
_TOKEN_BYTES: Final = 16
_MAX_URL: Final = 2_048
NO_SUCH_ENDPOINT: Final = "no endpoint of webhooks has this name"
NO_SUCH_DELIVERY: Final = "no delivery has this id"


class EndpointRequest(BaseModel):
    """An endpoint to make, or to change: what is absent has its default again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, StringConstraints(min_length=1, max_length=_MAX_URL)] = Field(
        description="URL that deliveries are sent to, with https; not in a private network."
    )
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=len(WEBHOOK_EVENTS))] | None = Field(
        None, description="Events that it hears of; absent: all."
    )
    always: bool = Field(True, description="False: it hears only of executions whose request or agent names it.")
    content: bool = Field(
        False, description="True: the answer is sent, too, redacted as without `can_view_full_history`."
    )


class EndpointView(BaseModel):
    """An endpoint without its secret."""

    name: str = Field(description="Name of the endpoint.")
    url: str = Field(description="URL that deliveries are sent to.")
    events: list[str] = Field(description="Events that it hears of.")
    always: bool = Field(description="False if it hears only of executions whose request or agent names it.")
    content: bool = Field(description="True if the answer is sent, too.")
    source: Literal["api", "file"] = Field(description="`file` for one of the configuration, which is read-only.")
    created_by: KeyId | None = Field(
        description="Public id of the key that made or changed it last; null without a key, and of the file."
    )
    created_at: datetime | None = Field(description="Time at which it was made; null of the file.")
    updated_at: datetime | None = Field(description="Time of its last change; null of the file.")
    failing_since: datetime | None = Field(description="Time since which every attempt has failed; null if none has.")
    disabled_at: datetime | None = Field(description="Time since which it hears of nothing; null while it does.")
    disabled_because: str | None = Field(
        description="`gone` after a 410, `failing` after three days without a delivery, `revoked` with its key."
    )


class NewEndpointView(EndpointView):
    """An endpoint with a new secret."""

    secret: str = Field(description="Secret that signs, which cannot be shown again.")


class DeliveryView(BaseModel):
    """A delivery without its body."""

    delivery_id: str = Field(description="Id of the delivery: its `webhook-id`, the same at every attempt.")
    endpoint: str = Field(description="Name of its endpoint.")
    type: str = Field(description="Type of the event.")
    request_id: RequestId | None = Field(description="Id of the execution; null if it is about none.")
    state: DeliveryState = Field(description="`waiting` for its first or next attempt, `delivered`, or `dead`.")
    attempts: int = Field(description="Number of attempts, since the last retry if there was one.")
    last_status: int | None = Field(description="HTTP status of the last attempt; null without an answer.")
    last_error: str | None = Field(description="Why the last attempt delivered nothing; null if it did.")
    created_at: datetime = Field(description="Time of the event.")
    next_at: datetime | None = Field(description="Time of the next attempt; null unless it waits.")


class DeliveryAccepted(BaseModel):
    """A delivery that is sent soon."""

    delivery_id: str = Field(description="Id of the delivery: its `webhook-id`.")


@value
class DeliveryPage:
    """A page of deliveries, newest first; `next` is the cursor of the following page, None on the last."""

    deliveries: list[DeliveryView]
    next: str | None


@value
class WebhookParts:
    """Everything that webhooks need. `seal` is None where no secret can be stored; `notify` wakes the deliveries up."""

    store: OutboxStore
    catalogue: EndpointCatalogue
    sender: WebhookSender
    seal: SecretSeal | None
    clock: Clock
    entropy: Entropy
    allow_private: bool
    notify: Callable[[float], None]


class Webhooks:
    """Queries and commands for the endpoints and the deliveries of a tenant, by principal.

    Raises: AccessFailure, StorageFailure, in every method; RequestFailure (REQUEST_NOT_FOUND) in those that name an
    endpoint or a delivery.
    """

    def __init__(self, parts: WebhookParts) -> None:
        self._parts = parts

    async def endpoints(self, principal: Principal) -> list[EndpointView]:
        """Return the endpoints that hear of the tenant, by name."""
        _require_manager(principal)
        await self._parts.catalogue.refresh()
        return [self._view(each) for each in self._parts.catalogue.announcements.of_tenant(principal.tenant)]

    async def show(self, principal: Principal, name: str) -> EndpointView:
        """Return an endpoint."""
        return self._view(await self._found(principal, name))

    async def put(self, principal: Principal, name: str, asked: EndpointRequest) -> tuple[EndpointView, bool]:
        """Make an endpoint, with a new secret, or change one, which is enabled by that; return it and whether it is
        new.

        Raises: RequestFailure (REQUEST_INVALID, REQUEST_ID_CONFLICT for one of the file, REQUEST_RATE_LIMITED beyond
        twenty).
        """
        _require_manager(principal)
        parts, now = self._parts, self._parts.clock.now()
        await parts.catalogue.refresh()
        earlier = self._changeable(principal.tenant, name)
        refusal = await parts.sender.refusal(asked.url, allow_private=parts.allow_private)
        if refusal is not None:
            raise invalid_request(("url", refusal))
        endpoint = WebhookEndpoint(
            name,
            asked.url,
            principal.tenant,
            events=WEBHOOK_EVENTS if asked.events is None else tuple(dict.fromkeys(asked.events)),
            always=asked.always,
            content=asked.content,
        )
        secret = None
        if earlier is None:
            secret, sealed = self._new_secret(endpoint)
            earlier = StoredEndpoint(endpoint, sealed, now, now)
        kept = earlier.earlier_secret, earlier.earlier_until
        stored = StoredEndpoint(endpoint, earlier.secret, earlier.created_at, now, principal.key_id, *kept)
        if not await parts.store.put(stored, most=MAX_ENDPOINTS):
            message = f"a tenant has at most {MAX_ENDPOINTS} endpoints of webhooks; delete one first"
            raise RequestFailure(Code.REQUEST_RATE_LIMITED, message)
        await parts.catalogue.refresh()
        view = self._view(endpoint)
        return (view, False) if secret is None else (NewEndpointView(**dict(view), secret=secret), True)

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete an endpoint with its deliveries. Raises: RequestFailure (REQUEST_ID_CONFLICT) for one of the file."""
        endpoint = await self._found(principal, name)
        self._changeable(principal.tenant, name)
        await self._parts.store.delete(principal.tenant, endpoint.name)
        await self._parts.catalogue.refresh()

    async def rotate(self, principal: Principal, name: str) -> NewEndpointView:
        """Give an endpoint a new secret; for a day the earlier one signs, too.

        Raises: RequestFailure (REQUEST_ID_CONFLICT) for one of the file.
        """
        endpoint = await self._found(principal, name)
        stored = self._changeable(principal.tenant, name)
        if stored is None:
            raise _not_found()
        now = self._parts.clock.now()
        secret, sealed = self._new_secret(endpoint)
        rotated = replace(
            stored, secret=sealed, updated_at=now, earlier_secret=stored.secret, earlier_until=now + DAY_S
        )
        await self._parts.store.rotate(rotated)
        await self._parts.catalogue.refresh()
        return NewEndpointView(**dict(self._view(endpoint)), secret=secret)

    async def test(self, principal: Principal, name: str) -> DeliveryAccepted:
        """Send an endpoint a message of the type `webhook.test`, also if it hears of other events only."""
        endpoint = await self._found(principal, name)
        parts, now = self._parts, self._parts.clock.now()
        token = parts.entropy.token(_TOKEN_BYTES)
        delivery = parts.catalogue.announcements.test(endpoint, principal.tenant, token, now)
        await self._add(delivery, now)
        return DeliveryAccepted(delivery_id=delivery.delivery_id)

    async def deliveries(
        self, principal: Principal, where: DeliveryFilter, *, after: str | None, limit: int
    ) -> DeliveryPage:
        """Return a page of the deliveries."""
        _require_manager(principal)
        page = await self._parts.store.deliveries(principal.tenant, where, after=after, limit=limit)
        return DeliveryPage(list(map(_delivery_view, page.items)), page.next)

    async def retry(self, principal: Principal, delivery_id: str) -> DeliveryAccepted:
        """Send a delivery again, in any state, with all the attempts of a new one."""
        _require_manager(principal)
        now = self._parts.clock.now()
        if await self._parts.store.revive(principal.tenant, delivery_id, at=now) is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, NO_SUCH_DELIVERY, condition="path")
        self._parts.notify(now)
        return DeliveryAccepted(delivery_id=delivery_id)

    async def require_known(self, request: SystemRequest, tenant: TenantId) -> None:
        """Raise RequestFailure (REQUEST_INVALID) if the request names an endpoint that hears nothing of the tenant.

        An endpoint that another replica has just made is looked up. What is not stored is not announced.
        """
        if not request.store:
            raise invalid_request(("store", "must be true with webhooks"))
        announcements = self._parts.catalogue.announcements
        if any(announcements.find(tenant, name) is None for name in request.webhooks):
            await self._parts.catalogue.refresh()
        unknown = [
            (f"webhooks.{index}", "must be an endpoint of GET /v1/webhooks")
            for index, name in enumerate(request.webhooks)
            if announcements.find(tenant, name) is None
        ]
        if unknown:
            raise invalid_request(*unknown)

    async def _add(self, delivery: Delivery, now: float) -> None:
        await self._parts.store.add(delivery, at=now)
        self._parts.notify(now)

    async def _found(self, principal: Principal, name: str) -> WebhookEndpoint:
        _require_manager(principal)
        await self._parts.catalogue.refresh()
        endpoint = self._parts.catalogue.announcements.find(principal.tenant, name)
        if endpoint is None:
            raise _not_found()
        return endpoint

    def _changeable(self, tenant: TenantId, name: str) -> StoredEndpoint | None:
        """Return an endpoint as it is stored; None if there is none. Raises: RequestFailure for one of the file."""
        if name in RESERVED_NAMES:
            raise invalid_request(("name", f"must not be {name}, which is a path of its own"))
        found = self._parts.catalogue.announcements.find(tenant, name)
        if found is not None and found.is_from_file:
            message = "the configuration file has this endpoint, which is read-only"
            raise RequestFailure(Code.REQUEST_ID_CONFLICT, message)
        return None if found is None else self._parts.catalogue.stored(found)

    def _new_secret(self, endpoint: WebhookEndpoint) -> tuple[str, bytes]:
        """Return a new secret, and as it is stored."""
        seal, tenant = self._parts.seal, endpoint.tenant
        if seal is None or tenant is None:
            message = "secrets cannot be stored; set secrets.key_file"
            raise AccessFailure(Code.ACCESS_DENIED, message, {"setting": "secrets.key_file"})
        random = bytes.fromhex(self._parts.entropy.token(_SECRET_BYTES))
        secret = f"whsec_{base64.b64encode(random).decode()}"
        return secret, seal.seal(tenant, SECRETS_OWNER, endpoint.name, secret)

    def _view(self, endpoint: WebhookEndpoint) -> EndpointView:
        stored, state = self._parts.catalogue.stored(endpoint), self._parts.catalogue.announcements.state(endpoint)
        return EndpointView(
            name=endpoint.name,
            url=endpoint.url,
            events=list(endpoint.events),
            always=endpoint.always,
            content=endpoint.content,
            source="file" if endpoint.is_from_file else "api",
            created_by=None if stored is None else stored.created_by,
            created_at=None if stored is None else _time(stored.created_at),
            updated_at=None if stored is None else _time(stored.updated_at),
            failing_since=_time(state.failing_since),
            disabled_at=_time(state.disabled_at),
            disabled_because=state.disabled_because,
        )


def _require_manager(principal: Principal) -> None:
    """Raise AccessFailure (ACCESS_DENIED) for a caller that may not manage webhooks, or not view its tenant."""
    purpose = "manage webhooks, which hear of all users"
    for permission in (Permission.MANAGE_WEBHOOKS, Permission.VIEW_TENANT):
        require(principal.permissions, permission, purpose)


def _not_found() -> RequestFailure:
    return RequestFailure(Code.REQUEST_NOT_FOUND, NO_SUCH_ENDPOINT, condition="path")


def _delivery_view(stored: StoredDelivery) -> DeliveryView:
    return DeliveryView(
        delivery_id=stored.delivery_id,
        endpoint=stored.endpoint,
        type=stored.type,
        request_id=stored.request_id,
        state=stored.state,
        attempts=stored.attempts,
        last_status=stored.last_status,
        last_error=stored.last_error,
        created_at=datetime.fromtimestamp(stored.created_at, UTC),
        next_at=_time(stored.next_at),
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
