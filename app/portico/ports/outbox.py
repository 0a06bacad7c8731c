"""Outbox ports: deliveries of webhooks, which are stored in the commit of what they announce, and their endpoints."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from portico.domain.ids import ExecutionId, RequestId, TenantId
from portico.domain.journal.events import Event
from portico.domain.journal.header import ExecutionHeader
from portico.domain.value import value
from portico.domain.webhooks import DeliveryAttempt, DeliveryState, EndpointState, StoredEndpoint, WebhookEndpoint
from portico.ports.storage import ResultPage


@value
class Delivery:
    """A message to an endpoint, before its first attempt. Its id is the same at every attempt; times are Unix seconds.

    A test is about no execution.
    """

    delivery_id: str
    tenant: TenantId
    endpoint: WebhookEndpoint
    type: str
    created_at: float
    body: bytes
    execution_id: ExecutionId | None = None
    request_id: RequestId | None = None


@value
class StoredDelivery:
    """A delivery as it is stored, without its body; `next_at` is the time of its next attempt while it waits."""

    delivery_id: str
    endpoint: str
    type: str
    request_id: RequestId | None
    state: DeliveryState
    attempts: int
    last_status: int | None
    last_error: str | None
    created_at: float
    next_at: float | None


@value
class DueDelivery:
    """A delivery that this replica has claimed, to be sent now; `attempts` were made before.

    Its lane is the deliveries of one tenant to one endpoint.
    """

    delivery_id: str
    lane: str
    due_at: float
    attempts: int
    body: bytes

    @property
    def tenant(self) -> TenantId:
        """The tenant of what it announces."""
        return TenantId(self.lane.partition(" ")[0])

    @property
    def endpoint_key(self) -> str:
        """The key of its endpoint."""
        return self.lane.partition(" ")[2]


@value
class DeliveryLane:
    """The deliveries of one tenant to one endpoint that wait: when the first of them is due."""

    name: str
    next_at: float

    @property
    def tenant(self) -> str:
        """The tenant of the deliveries."""
        return self.name.partition(" ")[0]

    @property
    def endpoint_key(self) -> str:
        """The key of their endpoint."""
        return self.name.partition(" ")[2]


def lane_of(tenant: TenantId, endpoint: WebhookEndpoint) -> str:
    """Return the name of a lane; a tenant has no space in its name."""
    return f"{tenant} {endpoint.key}"


@value
class DeliveryFilter:
    """Conditions of a list of deliveries; None matches all."""

    state: DeliveryState | None = None
    endpoint: str | None = None
    request_id: RequestId | None = None


class OutboxSource(Protocol):
    """Announcements of executions. With no endpoint that hears of a tenant, nothing of it is asked."""

    @property
    def hears_all(self) -> bool:
        """True if an endpoint hears of all tenants, without being named."""

    @property
    def tenants(self) -> Collection[TenantId]:
        """The tenants of which an endpoint hears without being named."""

    def deliveries_of(self, header: ExecutionHeader, number: int, at: float, event: Event) -> Sequence[Delivery]:
        """Return the deliveries that announce an event, which has that number; none if no endpoint hears of it."""
        ...


class OutboxStore(Protocol):
    """Stored deliveries, and the endpoints that were made over the API. Every method raises StorageFailure."""

    async def endpoints(self) -> tuple[Sequence[StoredEndpoint], Mapping[str, EndpointState]]:
        """Return the endpoints of all tenants, and the states of those that have failed, by their keys."""
        ...

    async def put(self, stored: StoredEndpoint, *, most: int) -> bool:
        """Store an endpoint in place of an earlier one, which is enabled by that.

        Return False if it is new and the tenant has `most` already; nothing is changed then.
        """
        ...

    async def rotate(self, stored: StoredEndpoint) -> None:
        """Store the secrets of an endpoint."""
        ...

    async def delete(self, tenant: TenantId, name: str) -> bool:
        """Delete an endpoint with its deliveries; return False if there is none."""
        ...

    async def set_state(self, endpoint: WebhookEndpoint, state: EndpointState, *, now: float) -> None:
        """Store the state of an endpoint. What waits for one that is disabled is dead."""
        ...

    async def add(self, delivery: Delivery, *, at: float) -> None:
        """Store a delivery that is due at that time."""
        ...

    async def deliveries(
        self, tenant: TenantId, where: DeliveryFilter, *, after: str | None = None, limit: int
    ) -> ResultPage[StoredDelivery]:
        """Return a page of the deliveries of a tenant, newest first."""
        ...

    async def revive(self, tenant: TenantId, delivery_id: str, *, at: float) -> StoredDelivery | None:
        """Let a delivery be tried at that time, as if it never was before; None if there is none."""
        ...

    async def lanes(self) -> Sequence[DeliveryLane]:
        """Return the lanes with deliveries that wait and are not claimed."""
        ...

    async def claim(self, places: Mapping[str, int], now: float) -> Sequence[DueDelivery]:
        """Claim as many deliveries of each lane that are due, the oldest first."""
        ...

    async def settle(self, due: DueDelivery, attempt: DeliveryAttempt, *, now: float, next_at: float | None) -> None:
        """Record an attempt, which delivered it, or after which it is tried again at that time, or is dead."""
        ...


class WebhookSender(Protocol):
    """The way out to receivers."""

    async def refusal(self, url: str, *, allow_private: bool) -> str | None:
        """Return why nothing is sent to that URL; None if something may be."""
        ...

    async def send(self, endpoint: WebhookEndpoint, due: DueDelivery, secrets: Sequence[str]) -> DeliveryAttempt:
        """Sign a delivery with the secrets, and send it once. Raises nothing."""
        ...
