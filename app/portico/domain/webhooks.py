"""Webhooks: what they announce, the endpoints that hear of it, and how often a delivery is tried."""

from collections.abc import Sequence
from typing import Final, Literal, get_args

from portico.domain.ids import KeyId, TenantId
from portico.domain.value import value

WebhookEvent = Literal[
    "execution.completed", "execution.failed", "execution.cancelled", "execution.suspended", "schedule.failed"
]
WEBHOOK_EVENTS: Final[tuple[WebhookEvent, ...]] = get_args(WebhookEvent)
SCHEDULE_FAILED: Final[WebhookEvent] = "schedule.failed"
TEST_EVENT: Final = "webhook.test"
"""Type of the delivery that a person asks for; every endpoint hears of it."""
DeliveryState = Literal["waiting", "delivered", "dead"]
DisabledBecause = Literal["gone", "failing", "revoked"]
"""Why an endpoint hears nothing: it answered 410, took nothing for three days, or its key was revoked."""
RESERVED_NAMES: Final = frozenset({"deliveries"})
"""Names that are paths of their own."""
FAILING_DAYS: Final = 3.0
"""Days in which nothing was delivered after which an endpoint is disabled."""
MAX_RETRY_AFTER_S: Final = 86_400.0
GONE: Final = 410


@value
class WebhookEndpoint:
    """Target of deliveries, and the events that it hears of; without `always`, only of executions that name it.

    One of the file hears of all tenants if it has none. `allow_private` opens private addresses and http to it.
    """

    name: str
    url: str
    tenant: TenantId | None
    is_from_file: bool = False
    events: tuple[str, ...] = WEBHOOK_EVENTS
    always: bool = True
    content: bool = False
    allow_private: bool = False

    @property
    def key(self) -> str:
        """The name of the endpoint among all; a tenant has neither a space nor a slash in its name."""
        return f"file/{self.name}" if self.is_from_file or self.tenant is None else f"{self.tenant} {self.name}"

    def hears(self, tenant: TenantId, event: str, named: Sequence[str]) -> bool:
        """Return whether it hears of an event of the tenant, whose execution names these endpoints."""
        is_concerned = self.tenant in {None, tenant} and (self.always or self.name in named)
        return is_concerned and event in self.events


@value
class EndpointState:
    """State of an endpoint: the time since which every attempt has failed, and that since which it hears nothing.

    Times are in Unix seconds.
    """

    failing_since: float | None = None
    disabled_at: float | None = None
    disabled_because: str | None = None


@value
class StoredEndpoint:
    """An endpoint that was made over the API, with its sealed secrets: the earlier one signs, too, until a time."""

    endpoint: WebhookEndpoint
    secret: bytes
    created_at: float
    updated_at: float
    created_by: KeyId | None = None
    earlier_secret: bytes | None = None
    earlier_until: float = 0.0


@value
class DeliveryAttempt:
    """Result of one attempt to deliver: the status of the answer, or the reason why there was none.

    `retry_after` is the number of seconds that the receiver asked to wait.
    """

    status: int | None = None
    error: str | None = None
    retry_after: float | None = None

    @property
    def is_delivered(self) -> bool:
        """True for a status 2xx, and for nothing else."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_gone(self) -> bool:
        """True if the receiver wants nothing more."""
        return self.status == GONE


def next_wait(attempts: int, attempt: DeliveryAttempt, retry_seconds: Sequence[float], jitter: float) -> float | None:
    """Return the seconds until a delivery is tried again after so many attempts; None if it is dead.

    `jitter` is in 0 to 1, and spreads the wait by 10 % to either side. A longer wait that the receiver asked for counts
    instead.
    """
    if attempts > len(retry_seconds):
        return None
    wait = retry_seconds[attempts - 1] * (0.9 + 0.2 * jitter)
    asked = min(attempt.retry_after or 0.0, MAX_RETRY_AFTER_S)
    return max(wait, asked)
