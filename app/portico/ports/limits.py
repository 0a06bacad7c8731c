"""Ports of limits and usage: units and slots that replicas share, and the usage that is stored."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from portico.domain.access.limits import Rate
from portico.domain.ids import ExecutionId, TenantId, UserId
from portico.domain.value import value

UsageGroup = Literal["day", "key", "user", "agent", "model"]


@value
class RateLease:
    """Units of a rate that this replica may spend, and the state of the rate after they were taken."""

    units: int
    full_at: float


class LimitStore(Protocol):
    """Units and slots that all replicas of a service share, by the name of the limit.

    Every method raises StorageFailure.
    """

    async def lease_units(self, name: str, rate: Rate, needed: int) -> RateLease:
        """Take the needed units, or a fortieth of what is left if that is more; none if the needed ones are not left.

        The lease is for spending them later without asking again.
        """
        ...

    async def lease_slots(self, name: str, limit: int, held: int) -> int:
        """Return how many slots this replica holds from now on: one more than `held`, or more; `held` if none is left.

        The slots of a replica that does not renew them are free after a while.
        """
        ...

    async def settle(self, spent: Mapping[tuple[str, Rate], int], slots: Mapping[str, int]) -> None:
        """Take these units whether they are left or not, or give them back if negative, and hold that many slots."""
        ...


class UsageKey(NamedTuple):
    """Values that usage is added up by. `hour` counts from the Unix epoch; without a `model` it is that of executions.

    `source` is the execution or the process that counts it.
    """

    source: str
    tenant: TenantId
    hour: int
    user: UserId
    key_id: str
    agent: str
    model: str


@value
class UsageCounts:
    """Usage so far: executions, tokens, and cost in the configured currency."""

    executions: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: "UsageCounts") -> "UsageCounts":
        return UsageCounts(
            self.executions + other.executions,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
        )


@value
class UsageFilter:
    """Whose usage is read, of which hours; None is no condition. `until` is excluded."""

    tenant: TenantId
    user: UserId | None = None
    since: int | None = None
    until: int | None = None


class UsageSource(Protocol):
    """Usage of the executions that run here, for the commits of their ends and suspensions."""

    def counts_of(self, execution_id: ExecutionId) -> Mapping[UsageKey, UsageCounts]:
        """Return the totals of the execution, which the next commit stores; none if nothing is counted of it."""
        ...

    def confirm(self, execution_id: ExecutionId) -> None:
        """Take that the totals that were returned last, if any were, are stored."""
        ...


class UsageStore(Protocol):
    """Stored usage. Every method raises StorageFailure."""

    async def write(
        self,
        process: Mapping[UsageKey, UsageCounts],
        executions: Mapping[UsageKey, UsageCounts],
        surplus: Collection[UsageKey] = (),
    ) -> None:
        """Store the totals of a process in place of earlier ones, and those of executions where they are larger.

        Delete the `surplus` in the same transaction: the totals of the process contain it.
        """
        ...

    async def read(self, where: UsageFilter, by: UsageGroup) -> Sequence[tuple[str, UsageCounts]]:
        """Return the sums by that group, in its order; a day is YYYY-MM-DD in UTC, and an absent value is empty."""
        ...
