"""The log in the composition root."""

from portico.adapters.telemetry.logs import LogSink, open_logger, route_standard_logging
from portico.ports.runtime import Clock
from portico.settings import Settings


def log_sink(settings: Settings, clock: Clock) -> LogSink:
    """Return the sink of the service's logger, which from then on writes the logs of libraries, too.

    It begins with the warnings of the settings.
    """
    telemetry = settings.telemetry
    logger = open_logger(telemetry.log_level, clock, log_format=telemetry.log_format)
    route_standard_logging(logger, telemetry.log_level)
    logs = LogSink(logger)
    for warning in settings.warnings:
        logs.log_warning(warning)
    return logs
