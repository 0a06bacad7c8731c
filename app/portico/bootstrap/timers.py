"""Timers in the composition root: where they report what fails."""

from portico.adapters.runners.timers import TimerReports
from portico.adapters.telemetry.logs import LogSink
from portico.adapters.telemetry.metrics.sink import MetricsSink


def timer_reports(logs: LogSink, metrics: MetricsSink) -> TimerReports:
    """Return the reports to the log and the metrics."""

    def on_error(error: Exception) -> None:
        logs.log_fault(error, "storage")

    def on_bug(bug: Exception) -> None:
        logs.log_fault(bug, "timer")
        metrics.count_bug("timer")

    return TimerReports(on_error, on_bug)
