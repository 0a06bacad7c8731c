"""Sampler: decides which traces are recorded, before any span is built."""

from portico.domain.ids import TraceId

SAMPLED_FLAG = 0x01
"""Bit of the trace flags; others may be set beside it [W3C Trace Context]."""
_SPACE = 2**64


def is_sampled(trace_id: TraceId, caller_flags: int | None, ratio: float) -> bool:
    """Return the decision of the caller's trace flags; without a caller, that of the ratio for the trace id.

    Every service that samples by trace id decides alike for one trace at the same ratio [OpenTelemetry].
    """
    if caller_flags is not None:
        return bool(caller_flags & SAMPLED_FLAG)
    return int(trace_id[16:], 16) < round(ratio * _SPACE)
