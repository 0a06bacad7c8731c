"""Readable spans: the SDK's form of finished spans, which its exporters take."""

from collections.abc import Iterator, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanKind as OtelKind

from portico.adapters.telemetry.tracing.span_draft import SpanDraft, SpanEvent, SpanKind
from portico.domain.ids import SpanId
from portico.domain.journal.header import ExecutionHeader

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET, _ERROR = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


class SpanReader:
    """Maker of readable spans for one resource."""

    def __init__(self, resource: Resource, version: str) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("portico", version)

    def read(self, header: ExecutionHeader, drafts: Sequence[SpanDraft]) -> Iterator[ReadableSpan]:
        """Yield the spans of an execution, all of which have ended."""
        trace_id = int(header.trace_id, 16)
        for draft in drafts:
            is_root = draft.kind is SpanKind.EXECUTION
            if draft.error is not None:
                draft.attributes["error.type"] = draft.error
            yield ReadableSpan(
                draft.name,
                context=_context(trace_id, draft.span_id),
                parent=None if draft.parent_id is None else _context(trace_id, draft.parent_id, is_remote=is_root),
                resource=self._resource,
                attributes=draft.attributes,
                events=[_event(each) for each in draft.events],
                links=_links(header) if is_root else (),
                kind=OtelKind.CLIENT if draft.kind is SpanKind.INFERENCE else OtelKind.INTERNAL,
                status=_UNSET if draft.error is None else _ERROR,
                start_time=_nanoseconds(draft.started_at),
                end_time=_nanoseconds(draft.started_at if draft.ended_at is None else draft.ended_at),
                instrumentation_scope=self._scope,
            )


def _context(trace_id: int, span_id: SpanId, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, int(span_id, 16), is_remote=is_remote, trace_flags=_SAMPLED)


def _links(header: ExecutionHeader) -> list[Link]:
    return [Link(_context(int(link.trace_id, 16), link.span_id, is_remote=True)) for link in header.links]


def _event(event: SpanEvent) -> Event:
    return Event(event.name, event.attributes, _nanoseconds(event.at))


def _nanoseconds(at: float) -> int:
    """Return Unix seconds as nanoseconds, exact to the microsecond as event times are."""
    return round(at * 1_000_000) * 1_000
