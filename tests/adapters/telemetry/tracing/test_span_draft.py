"""Span drafts."""

from portico.adapters.telemetry.tracing.span_draft import SpanDraft, SpanKind
from portico.domain.ids import SpanId


def test_a_span_does_not_end_before_its_start_on_a_clock_that_was_set_back() -> None:
    draft = SpanDraft(SpanKind.TOOL, "execute_tool", SpanId("1" * 16), None, started_at=1_000.0)
    draft.end(400.0)
    assert draft.ended_at == draft.started_at
