"""Header of an execution and its effective limits."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from pydantic import JsonValue

from portico.domain.access.limits import NO_LIMITS, AccessLimits
from portico.domain.access.principal import ALL, LOCAL, AccessScope, Permission, Permissions
from portico.domain.agents import RequestedAgent
from portico.domain.context.guards import GuardVerdict, RequestedJudge
from portico.domain.contract.messages import Message, ModelMessage, TracedMessage
from portico.domain.contract.request import Limits, SystemRequest
from portico.domain.contract.response import Durability
from portico.domain.fingerprints import span_id
from portico.domain.ids import API, ChannelName, ExecutionId, KeyId, RequestId, SpanId, TenantId, TraceId, UserId
from portico.domain.journal.fork import Fork
from portico.domain.journal.outcomes import Refused
from portico.domain.lifecycle import Mode
from portico.domain.limits import ConfiguredLimits
from portico.domain.time_zones import unix_seconds
from portico.domain.value import replace, value

MAX_RESERVED_SECONDS: Final = 30.0
RESERVED_SHARE: Final = 0.1
"""Share of the time that is withheld for a final answer, up to a maximum."""


@value(slots=False)
class EffectiveLimits:
    """Limits of one execution: the configured ones, narrowed by the request.

    Times are in seconds, cost in the configured currency.
    """

    timeout: float
    tool_rounds: int
    calls_per_reply: int
    max_retries: int
    attempts: int = 1
    replicas: int = 16
    plan_steps: int = 50
    tokens: int | None = None
    cost: float | None = None
    history_messages: int = 50
    history_tokens: int = 8_000
    flow_steps: int = 500
    tools: int = 128
    tool_calls: int | None = None

    @classmethod
    def configured(cls, limits: ConfiguredLimits, max_retries: int) -> "EffectiveLimits":
        """Return the limits of an execution whose request lowers none."""
        names = (field.name for field in fields(cls) if field.name in ConfiguredLimits.model_fields)
        return cls(max_retries=max_retries, **{name: getattr(limits, name) for name in names})

    def lowered_by(self, request: SystemRequest) -> "EffectiveLimits":
        """Return these limits, with those that a request gives in place of them; its caps are not checked here."""
        given = {name: limit for name, limit in request.limits if limit is not None}
        if request.hints.timeout is not None:
            given["timeout"] = request.hints.timeout
        return replace(self, **given) if given else self

    def lowered_to(self, limits: Limits) -> "EffectiveLimits":
        """Return these limits for an agent that has limits of its own; all else it shares with its caller."""
        given = {name: getattr(limits, name) for name in _AGENT_LIMITS}
        lowered = {name: min(getattr(self, name), own) for name, own in given.items() if own is not None}
        return replace(self, **lowered)


_AGENT_LIMITS: Final = ("tool_rounds", "calls_per_reply", "attempts")
"""Limits that an agent has of its own when another one calls it."""


@value(slots=False)
class SpanLink:
    """A span of another trace, or of another execution, that led to an execution."""

    trace_id: TraceId
    span_id: SpanId


@value(slots=False)
class ClientView:
    """Facts about the request of a client API that its later answers show, beside what a `SystemRequest` has.

    `model` is its name as it was sent. `summary` tells how reasoning is summed up; it is not shown without. If the
    `client_approves`, each approval ends an answer, and the client gives it in its next request. With `has_extension`
    the answers have the member `portico`. With `has_instructions` its first message has the `instructions`; `format` is
    what it says beside a required JSON Schema: `name`, `description` and `strict`.
    """

    model: str
    summary: str | None = None
    client_approves: bool = False
    has_extension: bool = False
    has_instructions: bool = False
    format: Mapping[str, JsonValue] | None = None


@value(slots=False)
class Delay:
    """Delayed start of an execution, at times in Unix seconds: when it is to start, and what became of that.

    Until `started_at` it waits. With a `refusal` it ends with that, since it has no rights or no turn any more.
    """

    until: float
    started_at: float | None = None
    refusal: Refused | None = None


@value(slots=False)
class ExecutionHeader:
    """Facts about an execution that are recorded before its first step.

    `flow_fingerprint` is that of the graph that it runs, in mode flow.

    `bounds` are its effective limits, `currency` is that of the prices, and `args_key` keys the hashes of tool
    arguments. `durability` is the initial one: an execution in memory becomes journaled before its first unsafe call.
    `inherited_messages` are those of an earlier execution with which the conversation begins, of which the models read
    as much as a history may have, or all if it `inherits_whole`. The `ancestors` are all
    executions of which this one holds messages or steps, the latest last. `user` and `key_id` are those of the
    principal that it was admitted for, `permissions` are the rights under which it runs to its end, and `key_limits`
    are those of the key. `instructions` are those of its session, which follow the system prompt. `auth_resolve_ms` is
    the time that AuthResolve took. If it is `sampled`, its spans are recorded by every replica that runs it; `links`
    are those of its root span. It came by the `channel`.
    """

    execution_id: ExecutionId
    request_id: RequestId
    tenant: TenantId
    trace_id: TraceId
    parent_span_id: SpanId | None
    mode: Mode
    pattern_version: int
    request: SystemRequest
    bounds: EffectiveLimits
    currency: str
    args_key: str
    created_at: float
    durability: Durability = "memory"
    fork: Fork | None = None
    flow_fingerprint: str | None = None
    inherited_messages: tuple[ModelMessage | TracedMessage | Message, ...] = ()
    inherits_whole: bool = False
    ancestors: tuple[ExecutionId, ...] = ()
    user: UserId = LOCAL.user
    key_id: KeyId | None = None
    permissions: Permissions = ALL
    key_limits: AccessLimits = NO_LIMITS
    agent: RequestedAgent | None = None
    instructions: str | None = None
    auth_resolve_ms: float = 0.0
    sampled: bool = False
    links: tuple[SpanLink, ...] = ()
    guards: tuple[GuardVerdict, ...] = ()
    """What the guards found in the request at its admission."""
    judges: tuple[RequestedJudge, ...] = ()
    """The judges that the execution asks about its input."""
    received_digest: str | None = None
    """Digest of the messages that the client has sent; None without client tools."""
    channel: ChannelName = API
    delay: Delay | None = None
    """Set if it is to start later than it was accepted."""
    client: ClientView | None = None
    """Set for the request of a client API whose answers can be read later."""

    @property
    def run_at(self) -> float | None:
        """The time at which it is to start, as its request says, in Unix seconds; None: at once."""
        return None if self.request.run_at is None else unix_seconds(self.request.run_at)

    @property
    def begins_at(self) -> float:
        """The time at which it begins, in Unix seconds: it was accepted then, or its delayed start was made."""
        delay = self.delay
        return self.created_at if delay is None or delay.started_at is None else delay.started_at

    @property
    def scope(self) -> AccessScope:
        """The data that it may use: that of its user."""
        return AccessScope(self.tenant, self.user)

    @property
    def redacts_inherited(self) -> bool:
        """True for a fork whose principal may not view what its origin has read."""
        return self.fork is not None and not self.permissions.allows(Permission.VIEW_FULL_HISTORY)

    @property
    def salvages(self) -> bool:
        """True if a reached limit ends the execution with a degraded answer instead of a failure."""
        return self.request.on_limit == "salvage"

    @property
    def has_reserve(self) -> bool:
        """True if a part of the limits is withheld for a final answer."""
        return self.salvages or (self.request.plan is not None and self.request.plan.passes > 1)

    @property
    def reserved_seconds(self) -> float:
        """Return the seconds that the final answer may take, in an execution that salvages."""
        return min(MAX_RESERVED_SECONDS, self.bounds.timeout * RESERVED_SHARE)

    @property
    def origin(self) -> RequestId | None:
        """The execution that this one goes on from, as a fork or after its end; None for one of its own."""
        return self.request.after if self.fork is None else self.fork.origin

    @property
    def root_span_id(self) -> SpanId:
        """Return the id of the span of the whole execution."""
        return span_id(self.execution_id, "")

    @property
    def root_span(self) -> SpanLink:
        """Return the link to the span of the whole execution."""
        return SpanLink(self.trace_id, self.root_span_id)
