"""Tables of limits: of a request, of background executions, and of the callers of a tenant."""

from collections.abc import Mapping
from typing import Annotated, Protocol

from pydantic import Field, StringConstraints

from portico.domain.access.limits import AccessLimits
from portico.domain.access.principal import ObjectKind
from portico.domain.contract.constrained_types import CostRate, UnitRate
from portico.domain.limits import ConfiguredLimits
from portico.settings.values import Natural, Positive, Table

TenantName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@|:-]{1,128}$")]
ObjectName = Annotated[str, StringConstraints(pattern=r"^([a-zA-Z0-9_.:/-]{1,128}\*?|\*)$")]


class LimitSettings(ConfiguredLimits, Table):
    """Limits of one request, which may narrow them. `timeout` is in seconds of running time."""


class QueueSettings(Table):
    """Limits of background executions."""

    waiting: Natural = Field(10_000, description="Background executions that may wait, on all replicas together")
    at_once: Positive = Field(
        1_000, description="Background executions that run at the same time, on all replicas together"
    )
    per_tenant: Positive = Field(500, description="Background executions of one tenant that run at the same time")


class NarrowedObjects(Protocol):
    """A table that may narrow the tools, the models and the agents that callers use."""

    @property
    def tools(self) -> tuple[str, ...] | None: ...

    @property
    def models(self) -> tuple[str, ...] | None: ...

    @property
    def agents(self) -> tuple[str, ...] | None: ...


def narrowed_objects(table: NarrowedObjects) -> Mapping[ObjectKind, tuple[str, ...]]:
    """Return the names of each kind that the table narrows."""
    given: Mapping[ObjectKind, tuple[str, ...] | None] = {
        "tool": table.tools,
        "model": table.models,
        "agent": table.agents,
    }
    return {kind: names for kind, names in given.items() if names is not None}


class TenantSettings(Table):
    """Limits of all callers of a tenant together, and what each of them may use.

    A rate is a text `N/S`: N units at once, which come back evenly within S seconds.
    """

    requests: UnitRate | None = Field(None, description="Executions and forks that may begin, as `600/60`")
    tokens: UnitRate | None = Field(None, description="Tokens of all inferences, as `200000/60`")
    cost: CostRate | None = Field(None, description="Cost of all inferences in `telemetry.currency`, as `5.00/86400`")
    concurrency: Positive | None = Field(None, description="Executions that run at the same time")

    tools: Annotated[tuple[ObjectName, ...], Field(strict=False)] | None = Field(
        None, description="Tools that may be used; a trailing `*` is a prefix. All if absent"
    )
    models: Annotated[tuple[ObjectName, ...], Field(strict=False)] | None = Field(
        None, description="Routes and engines that may be used, likewise; a route covers its engines"
    )
    agents: Annotated[tuple[ObjectName, ...], Field(strict=False)] | None = Field(
        None, description="Agents that may be used, likewise"
    )

    @property
    def rights(self) -> Mapping[ObjectKind, tuple[str, ...]]:
        """Return the names of each kind that is narrowed."""
        return narrowed_objects(self)

    @property
    def limits(self) -> AccessLimits:
        """Return the limits."""
        return AccessLimits(self.requests, self.tokens, self.cost, self.concurrency)
