"""The sampler of traces."""

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from portico.adapters.telemetry.tracing.sampler import is_sampled
from portico.domain.ids import TraceId
from tests.support.entropy import SeededEntropy

TRACE = TraceId("0af7651916cd43dd8448eb211c80319c")


@pytest.mark.parametrize(
    ("flags", "expected"), [(0x01, True), (0x03, True), (0xFF, True), (0x00, False), (0x02, False)]
)
def test_the_first_bit_of_the_callers_flags_decides(flags: int, *, expected: bool) -> None:
    assert is_sampled(TRACE, flags, 0.0) is expected
    assert is_sampled(TRACE, flags, 1.0) is expected


def test_without_a_caller_the_trace_id_decides_as_in_every_other_service() -> None:
    entropy, ratio = SeededEntropy(1), 0.3
    standard = TraceIdRatioBased(ratio)
    traces = [TraceId(entropy.token(16)) for _ in range(2_000)]
    sampled = [is_sampled(trace, None, ratio) for trace in traces]
    theirs = [
        standard.should_sample(None, int(trace, 16), "").decision is Decision.RECORD_AND_SAMPLE for trace in traces
    ]
    assert sampled == theirs
    assert 500 < sum(sampled) < 700


def test_a_ratio_of_nothing_and_of_everything() -> None:
    first, last = TraceId("0" * 31 + "1"), TraceId("f" * 32)
    assert not is_sampled(first, None, 0.0)
    assert is_sampled(last, None, 1.0)
