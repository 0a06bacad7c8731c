"""SIGTERM: `portico serve` exports the spans that it has not yet sent."""

import signal
from collections.abc import Callable

from tests.support.cli_process import Process, serving
from tests.support.collector import http_collector


def test_the_spans_of_the_last_execution_arrive_before_the_process_ends(start: Callable[..., Process]) -> None:
    with http_collector() as collector:
        variables = {"OTLP_ENDPOINT": collector.endpoint, "SAMPLE_RATIO": "1.0"}
        with serving(start, **{f"PORTICO__TELEMETRY__{key}": value for key, value in variables.items()}) as portico:
            assert portico.execute("Hello")[0] == 200
            portico.signal(signal.SIGTERM)
            assert portico.ended()[0] == 0
        assert [span.name for span in collector.requests] == ["POST /v1/execute"]
        assert sorted(span.name for span in collector.spans) == ["chat rehearsal", "invoke_agent"]
        collector.check()
