"""Deliveries of webhooks: which of those that are due are sent, and what an attempt brings.

Theory of operation

1. A delivery that is not answered with 2xx is tried again after each of `retry_seconds`, then it is dead. A person may
   have a dead one tried again. It has the same id at every attempt, by which its receiver knows it.
2. Of all attempts 8 are for one tenant and 4 for one endpoint at the same time, so that an endpoint that hangs holds up
   neither other tenants nor other endpoints.
3. An endpoint is disabled if it answers 410, or if for three days every attempt has failed. What waits for it is dead
   then, and it hears of nothing more. What a person asks for, a test or a retry, is sent all the same, once; if that is
   delivered, the endpoint is enabled.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from portico.domain.ids import TenantId
from portico.domain.time_zones import DAY_S
from portico.domain.value import replace, value
from portico.domain.webhooks import (
    FAILING_DAYS,
    DeliveryAttempt,
    EndpointState,
    StoredEndpoint,
    WebhookEndpoint,
    next_wait,
)
from portico.orchestration.announcements import Announcements
from portico.ports.outbox import DeliveryLane, DueDelivery, OutboxStore, WebhookSender
from portico.ports.runtime import Clock, Entropy
from portico.ports.secrets import SecretSeal
from portico.ports.timers import DueTimer, TimerQueue

AT_ONCE: Final = 64
PER_TENANT: Final = 8
PER_ENDPOINT: Final = 4
SECRETS_OWNER: Final = "/webhooks"
"""The owner that the sealed secrets of endpoints name; no user can have this name."""
NO_ENDPOINT: Final = "there is no such endpoint any more"
NO_SECRET: Final = "the secret of the endpoint cannot be opened"  # noqa: S105 - an error text
DeliveryResult: TypeAlias = Literal["delivered", "failed", "dead"]
_JITTER_STEPS: Final = 1_001


class EndpointCatalogue:
    """The endpoints with their secrets as this replica knows them. `file_secrets` read those of the file, by name.

    With `allow_private` those that were made over the API may be in a private network.
    """

    def __init__(
        self,
        store: OutboxStore,
        announcements: Announcements,
        seal: SecretSeal | None,
        file_secrets: Mapping[str, Callable[[], str | None]],
        *,
        allow_private: bool,
    ) -> None:
        self._store = store
        self._seal = seal
        self._file_secrets = file_secrets
        self._allow_private = allow_private
        self._stored: Mapping[str, StoredEndpoint] = {}
        self.announcements = announcements

    async def refresh(self) -> None:
        """Read the endpoints that were made over the API. Raises: StorageFailure."""
        made, states = await self._store.endpoints()
        self._stored = {each.endpoint.key: each for each in made}
        endpoints = [replace(each.endpoint, allow_private=self._allow_private) for each in made]
        self.announcements.replace(endpoints, states)

    async def refresh_known(self) -> None:
        """Read them again if there are any; else nothing is asked. Raises: StorageFailure."""
        if self._stored or self.announcements.states:
            await self.refresh()

    def stored(self, endpoint: WebhookEndpoint) -> StoredEndpoint | None:
        """Return an endpoint as it was made over the API; None for one of the file."""
        return self._stored.get(endpoint.key)

    def secrets_of(self, endpoint: WebhookEndpoint, now: float) -> list[str]:
        """Return the secrets that sign: the current one, and for a day the one before a rotation."""
        stored = self.stored(endpoint)
        if stored is None or endpoint.tenant is None:
            found = self._file_secrets.get(endpoint.name)
            return [secret for secret in (found() if found else None,) if secret]
        earlier = stored.earlier_secret if stored.earlier_until > now else None
        sealed = [each for each in (stored.secret, earlier) if each is not None]
        if self._seal is None:
            return []
        opened = [self._seal.open(endpoint.tenant, SECRETS_OWNER, endpoint.name, each) for each in sealed]
        return [secret for secret in opened if secret is not None]

    async def set_state(self, endpoint: WebhookEndpoint, state: EndpointState, now: float) -> None:
        """Store and know the state of an endpoint. Raises: StorageFailure."""
        await self._store.set_state(endpoint, state, now=now)
        self.announcements.set_state(endpoint, state)


@value
class DeliveryParts:
    """Everything that deliveries need. `timers` ends claims, and `on_result` gets the result of each attempt."""

    store: OutboxStore
    timers: TimerQueue
    sender: WebhookSender
    catalogue: EndpointCatalogue
    clock: Clock
    entropy: Entropy
    retry_seconds: Sequence[float]
    on_result: Callable[[DeliveryResult], None]


class Deliveries:
    """Implementation of the `TimerQueue` port that is fair to tenants and endpoints, and the job of its rows."""

    def __init__(self, parts: DeliveryParts) -> None:
        self._parts = parts
        self._running: dict[str, DueDelivery] = {}

    async def claim(self, now: float, limit: int) -> Sequence[DueTimer]:
        places = self._places([lane for lane in await self._parts.store.lanes() if lane.next_at <= now], limit)
        if not places:
            return ()
        found = await self._parts.store.claim(places, now)
        self._running |= {due.delivery_id: due for due in found}
        return [DueTimer(due.delivery_id, due.tenant, due.due_at) for due in found]

    async def postpone(self, timer: DueTimer, until: float) -> None:
        await self._parts.timers.postpone(timer, until)

    async def run(self, timer: DueTimer) -> float | None:
        """Make one attempt, and return when it is tried again; None if it is over. Raises: StorageFailure."""
        due = self._running[timer.timer_id]
        try:
            return await self._attempt(due)
        finally:
            del self._running[timer.timer_id]

    def _places(self, lanes: Sequence[DeliveryLane], limit: int) -> dict[str, int]:
        """Return how many deliveries of each lane may be claimed, the one that waits longest first."""
        tenants = Counter(due.tenant for due in self._running.values())
        endpoints = Counter(due.endpoint_key for due in self._running.values())
        places: dict[str, int] = {}
        for lane in sorted(lanes, key=_next_at):
            tenant, key = TenantId(lane.tenant), lane.endpoint_key
            free = min(PER_ENDPOINT - endpoints[key], PER_TENANT - tenants[tenant], limit)
            if free > 0:
                places[lane.name] = free
                tenants[tenant] += free
                endpoints[key] += free
                limit -= free
        return places

    async def _attempt(self, due: DueDelivery) -> float | None:
        parts, catalogue = self._parts, self._parts.catalogue
        endpoint = await self._endpoint(due.endpoint_key)
        if endpoint is None:
            return await self._settle(due, DeliveryAttempt(error=NO_ENDPOINT), None)
        secrets = catalogue.secrets_of(endpoint, parts.clock.now())
        attempt = DeliveryAttempt(error=NO_SECRET)
        if secrets:
            attempt = await parts.sender.send(endpoint, due, secrets)
        state = catalogue.announcements.state(endpoint)
        after = _state_after(state, attempt, parts.clock.now())
        wait = None
        if not attempt.is_delivered and after.disabled_at is None:
            jitter = parts.entropy.random_below(_JITTER_STEPS) / (_JITTER_STEPS - 1)
            wait = next_wait(due.attempts + 1, attempt, parts.retry_seconds, jitter)
        next_at = await self._settle(due, attempt, wait)
        if after != state:
            await catalogue.set_state(endpoint, after, parts.clock.now())
        return next_at

    async def _endpoint(self, key: str) -> WebhookEndpoint | None:
        """Return the endpoint of that key, which another replica may just have made."""
        catalogue = self._parts.catalogue
        if key not in catalogue.announcements.endpoints:
            await catalogue.refresh()
        return catalogue.announcements.endpoints.get(key)

    async def _settle(self, due: DueDelivery, attempt: DeliveryAttempt, wait: float | None) -> float | None:
        now = self._parts.clock.now()
        next_at = None if wait is None else now + wait
        await self._parts.store.settle(due, attempt, now=now, next_at=next_at)
        self._parts.on_result("delivered" if attempt.is_delivered else "dead" if next_at is None else "failed")
        return next_at


def _state_after(state: EndpointState, attempt: DeliveryAttempt, now: float) -> EndpointState:
    """Return the state of an endpoint after an attempt."""
    if attempt.is_delivered:
        return state if state.disabled_because == "revoked" else EndpointState()
    if state.disabled_at is not None:
        return state
    if attempt.is_gone:
        return EndpointState(state.failing_since or now, now, "gone")
    since = state.failing_since or now
    has_failed = now - since >= FAILING_DAYS * DAY_S
    return EndpointState(since, now, "failing") if has_failed else EndpointState(since)


def _next_at(lane: DeliveryLane) -> float:
    return lane.next_at
