"""Views of the configured engines and their deployments, as clients see them."""

from datetime import datetime

from pydantic import BaseModel, Field

from portico.capabilities.models.deployments import DeploymentState
from portico.capabilities.models.health import BreakerState
from portico.domain.failures import Code
from portico.domain.ids import ReplicaId
from portico.domain.model_call import AttemptFailureReason


class EnginePrice(BaseModel):
    """Prices of a million tokens."""

    input: float = Field(description="Price of input tokens.")
    output: float = Field(description="Price of output tokens.")
    cached: float = Field(description="Price of input tokens that were read from a cache.")
    cache_write: float = Field(description="Price of input tokens that were written to a cache.")


class AttemptBucket(BaseModel):
    """Attempts at an engine that ended within one minute."""

    start: datetime = Field(description="Begin of the minute, in UTC.")
    attempts: int = Field(description="Attempts that ended within it.")
    failures: int = Field(description="Those that failed.")


class EngineHealth(BaseModel):
    """Attempts at an engine in the last 60 minutes, of all tenants, as one process has seen them.

    An attempt for which the engine was not asked, because of a breaker, a limit or a budget, does not count.
    """

    replica: ReplicaId = Field(description="The replica that answers; others have seen other attempts.")
    since: datetime = Field(description="Begin of what is counted: 60 minutes ago, or the start of the process.")
    attempts: int = Field(description="Attempts that ended.")
    failures: int = Field(description="Those that failed; a cancelled one did not.")
    codes: dict[Code, int] = Field(description="The failures by error code.")
    p50_ms: float | None = Field(
        description="Milliseconds within which half of the answered attempts ended, to 5 %; null without any."
    )
    p95_ms: float | None = Field(description="The same for 95 % of them.")
    breaker_since: datetime | None = Field(description="Time at which the breaker last opened; null while closed.")
    buckets: list[AttemptBucket] = Field(description="The minutes with attempts, the oldest first.")


class DeploymentView(BaseModel):
    """A deployment of an engine as GET /v1/engines shows it, without its key and host."""

    name: str = Field(description="The configured name.")
    state: DeploymentState = Field(
        description="`resting` after a refusal for its rate or at a cap, `ejected` while its breaker is open, "
        "`refused` while the provider refuses its key or model."
    )
    until: datetime | None = Field(description="Time until which it is so; null if that is not known.")
    reason: AttemptFailureReason | None = Field(description="Reason of the state; null while available.")
    running: int = Field(description="Attempts on it that run in this process.")
    weight: int = Field(description="Its weight beside the others.")
    health: EngineHealth | None = Field(None, description="The last hour; only with `view=health`.")


class EngineView(BaseModel):
    """A configured engine as GET /v1/engines shows it."""

    name: str = Field(description="The configured name; `provider` in responses, and a value for `model`.")
    scheme: str = Field(description="The protocol that the engine speaks.")
    model: str = Field(description="The model's name at the provider.")
    context_window: int = Field(description="Tokens that fit its context window.")
    response_reserve: int = Field(description="Tokens of the window that are reserved for the answer.")
    options: list[str] = Field(description="The keys of `hints.options` that are passed on to the engine.")
    routes: list[str] = Field(description="Routes that contain the engine; a route's name is a value for `model` too.")
    by_cause: dict[AttemptFailureReason, list[str]] = Field(
        description="Routes that ask the engine after an attempt has failed for a cause, by that cause."
    )
    price: EnginePrice | None = Field(description="Prices of a million tokens, in the configured currency.")
    capabilities: dict[str, bool] = Field(description="Native capabilities; the service emulates the others.")
    known: list[str] = Field(
        description="Facts that the configuration leaves out and that the service knows of the model."
    )
    breaker: BreakerState = Field(description="State of its circuit breaker; an open one is not tried.")
    health: EngineHealth | None = Field(None, description="The last hour; only with `view=health`.")
    deployments: list[DeploymentView] | None = Field(
        None, description="Its deployments, for callers with `can_read_metrics`; absent without any."
    )


class EnginePing(BaseModel):
    """Result of a check that an engine's endpoint answers."""

    name: str = Field(description="The configured name.")
    ok: bool = Field(description="True if the endpoint answered.")
    detail: str = Field(description="The answer or the error, in a few words.")
