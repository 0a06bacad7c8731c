"""Spans of branches: the plan, a pass, a step, a vote and a replica each have a span of their own in the trace.

The id of such a span follows from its place in the record, as that of an effect does, so every replica that runs the
execution, and every replay, finds the same one. A pattern that wants a span derives a context with it; what is recorded
there lies in it, and nothing is recorded for the span itself.
"""

from portico.domain.fingerprints import span_id
from portico.domain.journal.events import CorrelationContext
from portico.domain.value import replace
from portico.orchestration.execution.context import RunContext


def in_span(context: RunContext, anchor: str | None = None, *, step_name: str | None = None) -> RunContext:
    """Return the context within the span at that place of the record; without one, at the beginning of the branch."""
    position = context._position
    correlation = context.settings.correlation
    own = replace(
        correlation,
        span_id=span_id(position.execution.header.execution_id, position.branch if anchor is None else anchor),
        parent_span_id=correlation.span_id,
        step_name=step_name or correlation.step_name,
    )
    return with_correlation(context, own)


def in_span_of_gather(context: RunContext) -> RunContext:
    """Return the context within the span of the branches that were gathered last, or that this branch is one of."""
    position = context._position
    return in_span(context, position.branch.parent if position.branch == position.anchor else position.anchor)


def with_correlation(context: RunContext, correlation: CorrelationContext) -> RunContext:
    """Return the context with that correlation."""
    return context.with_settings(replace(context.settings, correlation=correlation))
