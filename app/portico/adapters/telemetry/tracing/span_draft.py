"""Span drafts: spans while their events are read, before the SDK's immutable ones are made of them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from portico.domain.ids import SpanId

Value: TypeAlias = str | bool | int | float | list[str]
Attributes: TypeAlias = dict[str, Value]
OTHER_ERROR = "_OTHER"
"""`error.type` of a span that was cut off [OpenTelemetry]."""


class SpanKind(StrEnum):
    """Kind of a span: the part of an execution that it brackets."""

    EXECUTION = "execution"
    PLAN = "plan"
    PLAN_PASS = "pass"  # noqa: S105 - no password but a pass over a plan
    STEP = "step"
    VOTE = "vote"
    REPLICA = "replica"
    AGENT = "agent"
    INFERENCE = "inference"
    TOOL = "tool"
    RETRIEVAL = "retrieval"


class SpanEvent(NamedTuple):
    """Event within a span. `at` is in Unix seconds."""

    name: str
    at: float
    attributes: Attributes


@dataclass(slots=True)
class SpanDraft:
    """A span. Times are in Unix seconds; it has ended once `ended_at` is set."""

    kind: SpanKind
    name: str
    span_id: SpanId
    parent_id: SpanId | None
    started_at: float
    attributes: Attributes = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    ended_at: float | None = None
    error: str | None = None

    def end(self, at: float, error: str | None = None) -> None:
        """End the span, not before its start: clocks of replicas differ."""
        self.ended_at = max(at, self.started_at)
        self.error = error
