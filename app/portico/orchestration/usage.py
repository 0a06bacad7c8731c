"""Usage: what the executions of a caller or a tenant have taken."""

from collections.abc import Sequence
from datetime import datetime
from math import ceil, floor
from typing import Any

from pydantic import BaseModel, Field

from portico.capabilities.limits.usage_meter import HOUR_S
from portico.domain.access.principal import Permission, Principal
from portico.domain.contract.response import Cost
from portico.orchestration.execution.environment import Environment
from portico.ports.limits import UsageCounts, UsageFilter, UsageGroup


class UsageView(BaseModel):
    """Sums of one group, whose name is under the field that they are grouped by."""

    day: str | None = Field(None, description="Day in UTC, as 2026-11-22.")
    key: str | None = Field(None, description="Public id of the key; null without one.")
    user: str | None = Field(None, description="User.")
    agent: str | None = Field(None, description="Agent; null without one.")
    model: str | None = Field(None, description="Model, as it is configured.")
    executions: int = Field(description="Executions that began; of a model, those that asked it.")
    input_tokens: int = Field(description="Tokens that the models read.")
    output_tokens: int = Field(description="Tokens that they wrote.")
    total_tokens: int = Field(description="Both together.")
    cost: Cost = Field(description="Cost by the configured prices; models without a price are free.")


class Usage:
    """Stored usage of callers, with that of this process as of now."""

    def __init__(self, environment: Environment, currency: str) -> None:
        self._environment = environment
        self._currency = currency

    async def read(
        self, principal: Principal, by: UsageGroup, *, since: datetime | None = None, until: datetime | None = None
    ) -> Sequence[UsageView]:
        """Return the sums by group, of whole hours: of the tenant for those who may see it, else the caller's own.

        Raises: StorageFailure.
        """
        sees_tenant = principal.permissions.allows(Permission.VIEW_TENANT)
        where = UsageFilter(
            principal.tenant,
            None if sees_tenant else principal.user,
            None if since is None else floor(since.timestamp() / HOUR_S),
            None if until is None else ceil(until.timestamp() / HOUR_S),
        )
        meter = self._environment.usage
        await meter.flush()
        return [self._view(by, name, counts) for name, counts in await meter.read(where, by)]

    def _view(self, by: UsageGroup, name: str, counts: UsageCounts) -> UsageView:
        group: dict[str, Any] = {by: name or None}
        return UsageView(
            **group,
            executions=counts.executions,
            input_tokens=counts.input_tokens,
            output_tokens=counts.output_tokens,
            total_tokens=counts.input_tokens + counts.output_tokens,
            cost=Cost(amount=counts.cost, currency=self._currency),
        )
