"""Header of an execution and the limits in force for it."""

from dataclasses import dataclass

from app.domain.contract.request import SystemRequest
from app.domain.contract.response import Durability
from app.domain.ids import ExecutionId, RequestId, SpanId, TenantId, TraceId
from app.domain.journal.fork import Fork
from app.domain.lifecycle import Mode


@dataclass(frozen=True)
class EffectiveLimits:
    """The limits in force for one execution, the request's and the configured ones together.

    Seconds, counts, tokens, and cost in the configured currency.
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


@dataclass(frozen=True)
class ExecutionHeader:
    """What an execution is, written before its first step.

    `bounds` are the limits in force, `currency` is that of the prices, `args_key` keys the hashes of tool arguments.
    `durability` is what it begins with: one held in memory becomes journaled before its first unsafe call.
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
