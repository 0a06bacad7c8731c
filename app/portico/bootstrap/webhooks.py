"""Webhooks in the composition root: what executions announce, the deliveries, and their periodic jobs."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from typing import Final, get_args

from anyio.abc import TaskGroup

from portico.adapters.runners.maintenance import MAINTENANCE_INTERVAL_S, run_maintenance
from portico.adapters.runners.timers import TimerRunner
from portico.adapters.stores.database import Database
from portico.adapters.stores.outbox import DatabaseOutbox, count_dead, purge_deliveries
from portico.adapters.stores.sqlite import SqliteDatabase
from portico.adapters.stores.timers import DatabaseTimerQueue
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.bootstrap.retention import SWEEP_SECONDS
from portico.domain.ids import ReplicaId, TenantId
from portico.domain.time_zones import DAY_S
from portico.domain.value import value
from portico.domain.webhooks import DeliveryAttempt, WebhookEndpoint
from portico.orchestration.announcements import Announcements
from portico.orchestration.deliveries import AT_ONCE, Deliveries, DeliveryParts, DeliveryResult, EndpointCatalogue
from portico.orchestration.webhooks import WebhookParts
from portico.ports.outbox import DueDelivery, WebhookSender
from portico.ports.runtime import Clock, Entropy
from portico.ports.secrets import SecretSeal
from portico.ports.timers import TimerJob, TimerKind
from portico.settings import Settings

REFRESH_SECONDS: Final = 2.0
"""Seconds after which a replica knows of an endpoint that another one has made."""
DELIVERED_DAYS: Final = 7.0
DEAD_DAYS: Final = 90.0
PURGE_BATCH: Final = 500


@value
class WebhookResources:
    """Everything that webhooks share with the rest of the service; `on_error` gets the errors of their jobs.

    Without a `seal` no secret can be stored, and no endpoint made. Jobs run in the `group`; the `stack` closes what is
    opened.
    """

    clock: Clock
    entropy: Entropy
    owner: ReplicaId
    metrics: MetricsSink
    seal: SecretSeal | None
    on_error: Callable[[Exception], None]
    group: TaskGroup
    stack: AsyncExitStack


def announcements_of(settings: Settings) -> Announcements:
    """Return what executions announce, to the endpoints of the file at first."""
    shared = settings.webhooks.allow_private
    configured = [
        WebhookEndpoint(
            name,
            each.url,
            None if each.tenant is None else TenantId(each.tenant),
            is_from_file=True,
            events=each.events,
            always=each.always,
            content=each.content,
            allow_private=each.allow_private or shared,
        )
        for name, each in settings.webhooks.endpoints.items()
    ]
    return Announcements(configured, settings.server.public_url)


class LazySender:
    """Implementation of the `WebhookSender` port: the libraries that it needs are loaded when something is sent."""

    def __init__(self, clock: Clock, timeout: float, stack: AsyncExitStack) -> None:
        self._clock = clock
        self._timeout = timeout
        self._stack = stack
        self._sender: WebhookSender | None = None

    async def refusal(self, url: str, *, allow_private: bool) -> str | None:
        return await (await self._opened()).refusal(url, allow_private=allow_private)

    async def send(self, endpoint: WebhookEndpoint, due: DueDelivery, secrets: Sequence[str]) -> DeliveryAttempt:
        return await (await self._opened()).send(endpoint, due, secrets)

    async def _opened(self) -> WebhookSender:
        if self._sender is None:
            from portico.adapters.webhooks.sender import HttpWebhookSender, webhook_client  # noqa: PLC0415 - see above

            client = webhook_client()
            self._sender = HttpWebhookSender(client, self._clock, self._timeout)
            await self._stack.enter_async_context(client)
        return self._sender


class WebhookJobs:
    """Periodic jobs of webhooks, the number of dead deliveries as it was counted last, and that of attempts."""

    def __init__(self, database: Database, catalogue: EndpointCatalogue, clock: Clock) -> None:
        self.dead = 0
        self.attempts = Counter[DeliveryResult]()
        self._database = database
        self._catalogue = catalogue
        self._clock = clock
        self._purged_at = -inf

    def count(self, result: DeliveryResult) -> None:
        """Count an attempt."""
        self.attempts[result] += 1

    async def tidy(self) -> None:
        """Count the dead deliveries, and delete those that are older than their retention.

        Without an endpoint nothing is asked but once an hour. Raises: StorageFailure.
        """
        has_endpoints = bool(self._catalogue.announcements.endpoints)
        if not has_endpoints and self._clock.monotonic() - self._purged_at < SWEEP_SECONDS:
            return
        self._purged_at = self._clock.monotonic()
        deleted = PURGE_BATCH
        while deleted >= PURGE_BATCH:
            now = self._clock.now()
            before = now - DELIVERED_DAYS * DAY_S, now - DEAD_DAYS * DAY_S
            deleted = await purge_deliveries(self._database, *before, limit=PURGE_BATCH)
        self.dead = await count_dead(self._database)


async def start_webhooks(
    database: Database,
    settings: Settings,
    timers: TimerRunner,
    announcements: Announcements,
    resources: WebhookResources,
) -> WebhookParts:
    """Return what the facade needs; deliveries are sent, and the jobs run, from now on. Raises: StorageFailure."""
    clock, webhooks, entropy = resources.clock, settings.webhooks, resources.entropy
    outbox = DatabaseOutbox(database, resources.owner)
    secrets = {name: each.secret_file.read for name, each in webhooks.endpoints.items()}
    catalogue = EndpointCatalogue(outbox, announcements, resources.seal, secrets, allow_private=webhooks.allow_private)
    await catalogue.refresh()
    sender = LazySender(clock, webhooks.timeout, resources.stack)
    queue = DatabaseTimerQueue(database, TimerKind.DELIVERY, resources.owner)
    jobs = WebhookJobs(database, catalogue, clock)
    parts = DeliveryParts(outbox, queue, sender, catalogue, clock, entropy, webhooks.retry_seconds, jobs.count)
    deliveries = Deliveries(parts)
    timers.add(TimerJob(TimerKind.DELIVERY, deliveries, deliveries.run, AT_ONCE))
    resources.metrics.observe("portico_webhooks_dead", lambda: jobs.dead)
    for result in get_args(DeliveryResult):
        read = partial(jobs.attempts.__getitem__, result)
        resources.metrics.observe("portico_webhook_deliveries_total", read, result)
    # On SQLite only this process makes endpoints, and the command line disables those that are there.
    refresh = catalogue.refresh_known if isinstance(database, SqliteDatabase) else catalogue.refresh
    for job, seconds in ((refresh, REFRESH_SECONDS), (jobs.tidy, MAINTENANCE_INTERVAL_S)):
        resources.group.start_soon(run_maintenance, clock, (job,), resources.on_error, seconds)
    notify = partial(timers.notify, TimerKind.DELIVERY)
    return WebhookParts(outbox, catalogue, sender, resources.seal, clock, entropy, webhooks.allow_private, notify)
