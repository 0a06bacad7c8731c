"""Logs: lines on standard error, one per ended execution, one per failure, and every event at level debug.

Fields are logged by an allow-list, so that prompts, answers, arguments, results, headers and keys never reach a log.
Of an exception only its types and stack frames are logged, because its message may quote any of them; the one exception
is that of other people's code, which is redacted before, since they have to find it. A line is ASCII, so that no value
can forge another line. Lines of an execution or a request have the ids of its trace and its span. A
slow reader cannot stop the service: a line that does not fit into the pipe is dropped and counted, and the next line
reports how many were dropped.
"""

import json
import logging
import os
import select
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import orjson

from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Failure
from portico.domain.journal import events
from portico.domain.journal.events import (
    EVENT_FIELDS,
    WIRE_NAMES,
    CorrelationContext,
    InheritedEvent,
    LiveDelta,
    StoredEvent,
    format_timestamp,
)
from portico.domain.lifecycle import State
from portico.domain.model_call import AttemptFailureReason
from portico.domain.raised_exception import ExceptionReport, frames_of
from portico.ports.runtime import Clock

LogFormat = Literal["json", "console"]
STANDARD_ERROR = 2
MAX_LINE_BYTES = 4096
"""A pipe accepts a write of this size completely or not at all [POSIX, PIPE_BUF]."""
_MAX_RUNS = 20_000
_CONTENT_FIELDS = frozenset(
    {"response", "suspensions", "text", "reasoning", "value", "arguments", "result", "errors", "warnings", "repairs"}
)
_LOGGED_FIELDS: Mapping[type[Any], tuple[str, ...]] = MappingProxyType(
    {kind: tuple(name for name in names if name not in _CONTENT_FIELDS) for kind, names in EVENT_FIELDS.items()}
)
_STARTING_STATES = frozenset({None, State.SUSPENDED})
"""States that an execution leaves when it begins or is resumed."""
TRACE_FIELDS = frozenset({"trace_id", "span_id"})
"""Fields that an entry of the standard library may have as `extra`."""
_CONSOLE_NAMES: Mapping[str, str] = MappingProxyType({"exception": "error"})
_STDLIB_LEVELS: Mapping[str, int | None] = MappingProxyType(
    {"": logging.WARNING, "uvicorn": None, "uvicorn.access": logging.WARNING}
)
"""Lowest level of each logger of the standard library; None is the configured level."""


def open_logger(
    level: str, clock: Clock, *, log_format: LogFormat = "json", descriptor: int = STANDARD_ERROR
) -> "StructuredLogger":
    """Return a logger that writes entries of that level (`debug`, `info`, `warning`, `error`) and above.

    The format `json` is for programs, `console` for people; a terminal shows the latter in colours.
    """
    write = _json if log_format == "json" else _Console(colors=os.isatty(descriptor))
    return StructuredLogger(logging.getLevelNamesMapping()[level.upper()], clock, _Output(descriptor, write))


class StructuredLogger:
    """Logger of events with fields: each entry of its level or above is one line of the output.

    structlog has this, too, but it loads a library for terminals, which only the format for people needs.
    """

    def __init__(self, level: int, clock: Clock, output: "_Output") -> None:
        self._level = level
        self._clock = clock
        self._output = output

    def is_enabled_for(self, level: int) -> bool:
        """Return True if entries of that level, as `logging` numbers it, are written."""
        return level >= self._level

    def log(self, level: int, event: str, /, **fields: object) -> None:
        """Write an entry of that level; `exc_info` is an exception, or what `sys.exc_info` returns."""
        if level >= self._level:
            name = logging.getLevelName(level).lower()
            stamp = {"timestamp": format_timestamp(self._clock.now()), "level": name, "event": event}
            self._output.write(_format_exception(stamp | fields))

    def debug(self, event: str, /, **fields: object) -> None:
        """Write an entry for a developer."""
        self.log(logging.DEBUG, event, **fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Write an entry about what happens as expected."""
        self.log(logging.INFO, event, **fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Write an entry that needs attention."""
        self.log(logging.WARNING, event, **fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Write an entry about a fault."""
        self.log(logging.ERROR, event, **fields)


def route_standard_logging(logger: StructuredLogger, level: str) -> None:
    """Send entries of the standard library's loggers to this logger, for the whole process."""
    logging.getLogger().handlers = [_StandardHandler(logger)]
    for name, lowest in _STDLIB_LEVELS.items():
        logging.getLogger(name).setLevel(level.upper() if lowest is None else lowest)


def log_refused_key(logger: StructuredLogger, engine: str, deployment: str, reason: AttemptFailureReason) -> None:
    """Log that the provider refuses the key of a deployment, or its model."""
    logger.error("engine.key_refused", engine=engine, deployment=deployment, reason=reason)


class LogSink:
    """Implementation of the `EventSink` port that logs events; the methods after `publish` log everything else."""

    def __init__(self, logger: StructuredLogger) -> None:
        self.logger = logger
        self._is_verbose = logger.is_enabled_for(logging.DEBUG)
        self._runs: dict[str, _Run] = {}
        self._handlers: dict[type[Any], Callable[[str, Any, Any], None]] = {
            events.LifecycleTransition: self._on_transition,
            **dict.fromkeys(events.RESTING_EVENTS, self._on_rest),
        }
        if logger.is_enabled_for(logging.INFO):
            self._handlers |= {
                events.InferenceStart: self._on_inference_start,
                events.ExecutionSuspended: self._on_suspension,
                events.ExecutionCompleted: self._on_end,
                events.ExecutionCancelled: self._on_end,
            }
        if logger.is_enabled_for(logging.WARNING):
            self._handlers[events.ExecutionFailed] = self._on_failure
        self.wanted: Collection[type[Any]] = events.EVENT_TYPES if self._is_verbose else self._handlers.keys()
        """At level debug each event has a line of its own."""

    def publish(self, execution_id: str, items: Sequence[StoredEvent | LiveDelta]) -> None:
        for item in items:
            if type(item) is InheritedEvent:
                continue
            if self._is_verbose:
                self._log_event(execution_id, item)
            handler = self._handlers.get(type(item.event))
            if handler is not None:
                handler(execution_id, item, item.event)

    def log_bug(self, execution_id: str, bug: Exception) -> None:
        """Log an unexpected exception of an execution."""
        run = self._runs.get(execution_id)
        trace = {} if run is None or run.correlation is None else _trace(run.correlation)
        self.logger.error("execution.bug", execution_id=execution_id, **trace, exc_info=bug)

    def log_fault(self, fault: Exception, place: Literal["sink", "timer", "writer", "storage"]) -> None:
        """Log an exception of a sink, a failed commit or a database that does not answer."""
        self.logger.error(f"{place}.fault", exc_info=fault)

    def log_refusal(
        self,
        failure: Failure,
        request: Mapping[str, str | None],
        *,
        status: int | None = None,
        event: str = "request.refused",
    ) -> None:
        """Log a request that was refused before an execution began, without the message, which may name its fields.

        The `status` is the one that was sent, else that of the failure. With another `event` it was refused later.
        """
        sent = failure.status if status is None else status
        self.logger.log(
            logging.WARNING if sent >= 500 else logging.INFO, event, code=failure.code, status=sent, **request
        )

    def log_link(self, gateway_request_id: str, request: Mapping[str, str]) -> None:
        """Log the id under which a gateway knows a request."""
        self.logger.info("request.linked", **request, gateway_request_id=gateway_request_id)

    def log_issuer_failure(self, reason: str) -> None:
        """Log that the key set of the issuer of tokens could not be fetched; the reason quotes nothing of it."""
        self.logger.warning("issuer.unavailable", reason=reason)

    def log_export(self, is_failing: bool) -> None:  # noqa: FBT001 - the only thing it says
        """Log that the collector takes no traces any more, or takes them again."""
        if is_failing:
            self.logger.warning("traces.unavailable")
        else:
            self.logger.info("traces.exported")

    def log_exception(self, report: ExceptionReport) -> None:
        """Log an exception of a tool or of other code of the configuration, with its text."""
        ids = {"request_id": report.request_id, "trace_id": report.trace_id, "span_id": report.span_id}
        raised = {"type": report.type, "text": report.text, "frames": report.frames}
        self.logger.error(f"{report.kind}_exception", **ids, **{report.kind: report.name}, **raised)

    def log_warning(self, message: str) -> None:
        """Log a warning about the configuration."""
        self.logger.warning("configuration.warning", message=message)

    def log_server_line(self, server: str, line: str) -> None:
        """Log a line that an MCP server wrote to its standard error."""
        self.logger.debug("mcp.server_line", server=server, line=line)

    def log_server_failure(self, server: str, reason: str) -> None:
        """Log that an MCP server cannot be used, or not completely."""
        self.logger.warning("mcp.server_failure", server=server, reason=reason)

    def log_cut_connections(self, count: int) -> None:
        """Log how many connections a stopping server closed before their responses had ended."""
        self.logger.warning("connections.cut", count=count)

    def log_lag(self, seconds: float) -> None:
        """Log a delay of the event loop."""
        self.logger.warning("event_loop.lag", seconds=round(seconds, 3))

    def _log_event(self, execution_id: str, item: StoredEvent | LiveDelta) -> None:
        event, correlation = item.event, item.correlation
        fields = {WIRE_NAMES.get(name, name): getattr(event, name) for name in _LOGGED_FIELDS[type(event)]}
        fields["sequence_number"] = item.sequence_number if isinstance(item, StoredEvent) else None
        fields["execution_id"] = execution_id
        fields["request_id"] = correlation.request_id
        fields["trace_id"] = correlation.trace_id
        fields["span_id"] = correlation.span_id
        if correlation.step_name is not None:
            fields["step_name"] = correlation.step_name
        self.logger.debug(event.type, **fields)

    def _begin(self, execution_id: str) -> "_Run":
        run = self._runs[execution_id] = _Run()
        if len(self._runs) > _MAX_RUNS:
            del self._runs[next(iter(self._runs))]
        return run

    def _on_transition(self, execution_id: str, item: StoredEvent, event: events.LifecycleTransition) -> None:
        if event.from_state in _STARTING_STATES:
            run = self._runs.get(execution_id) or self._begin(execution_id)
            run.started_at, run.correlation = item.at, item.correlation

    def _on_inference_start(self, execution_id: str, _item: StoredEvent, _event: events.InferenceStart) -> None:
        run = self._runs.get(execution_id) or self._begin(execution_id)
        run.attempts += 1

    def _on_rest(self, execution_id: str, _item: StoredEvent, _event: object) -> None:
        self._runs.pop(execution_id, None)

    def _on_end(self, execution_id: str, item: StoredEvent, event: events.TerminalEvent) -> None:
        run = self._runs.pop(execution_id, None) or _Run()
        self.logger.info("execution.ended", **_summary(event.response, run, item))

    def _on_suspension(self, execution_id: str, item: StoredEvent, event: events.ExecutionSuspended) -> None:
        run = self._runs.pop(execution_id, None) or _Run()
        self.logger.info("execution.suspended", **_summary(event.response, run, item))

    def _on_failure(self, execution_id: str, item: StoredEvent, event: events.ExecutionFailed) -> None:
        self._on_end(execution_id, item, event)
        error = event.response.error
        self.logger.warning(
            "execution.failed",
            request_id=event.response.request_id,
            **_trace(item.correlation),
            code=None if error is None else error.code,
            message=None if error is None else error.message,
            caused_by=None if error is None else error.caused_by,
        )


@dataclass(slots=True)
class _Run:
    """State of a running execution for its last log line."""

    started_at: float | None = None
    attempts: int = 0
    correlation: CorrelationContext | None = None


def _trace(correlation: CorrelationContext) -> dict[str, str]:
    return {"trace_id": correlation.trace_id, "span_id": correlation.span_id}


def _summary(response: SystemResponse, run: _Run, item: StoredEvent) -> dict[str, Any]:
    return {
        "request_id": response.request_id,
        **_trace(item.correlation),
        "mode": response.mode,
        "channel": response.metadata.channel,
        "state": response.state,
        "duration_ms": None if run.started_at is None else round((item.at - run.started_at) * 1000, 3),
        "attempts": run.attempts,
        "input_tokens": response.token_usage.input_tokens,
        "output_tokens": response.token_usage.output_tokens,
        "provider": response.metadata.provider,
        "tool_rounds": response.metadata.tool_rounds,
        "code": None if response.error is None else response.error.code,
    }


class _Output:
    """Non-blocking output of entries to a file descriptor; `encode` returns the text of one."""

    def __init__(self, descriptor: int, encode: "_Encode") -> None:
        self._descriptor = descriptor
        self._encode = encode
        self._dropped = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, entry: "_Entry") -> None:
        """Write the entry as one line, or count it as dropped if the pipe is full or closed."""
        if self._dropped:
            report = {"level": "warning", "event": "log.dropped", "lines": self._dropped}
            if self._write(self._encode(report) + b"\n"):
                self._dropped = 0
        if not self._write(_line(self._encode, entry)):
            self._dropped += 1

    def _write(self, line: bytes) -> bool:
        with suppress(OSError):
            return bool(self._poll.poll(0)) and os.write(self._descriptor, line) > 0
        return False


class _StandardHandler(logging.Handler):
    """Handler that passes entries of the standard library to a logger of events."""

    def __init__(self, logger: StructuredLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        trace = {name: value for name, value in vars(record).items() if name in TRACE_FIELDS}
        self._logger.log(level, _message(record), logger=record.name, **trace, exc_info=record.exc_info)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return str(record.msg)


_Entry = MutableMapping[str, Any]
_Encode = Callable[[_Entry], bytes]


def _format_exception(entry: _Entry) -> _Entry:
    """Replace `exc_info` by the types and stack frames of the exception and its causes, without their messages."""
    given = entry.pop("exc_info", None)
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        entry["exception"] = frames_of(error)
    return entry


def _line(encode: _Encode, entry: _Entry) -> bytes:
    """Return the entry as one ASCII line of limited size; the longest values are replaced until it fits."""
    line = encode(entry)
    while len(line) >= MAX_LINE_BYTES:
        longest = max(entry, key=lambda name: len(_json(entry[name])))
        entry[longest] = "(too long)"
        line = encode(entry)
    return line + b"\n"


class _Console:
    """Lines for people: time, level and event, then the other fields as `name=value`.

    A text that needs it is written as JSON, so that a line stays one line and its values cannot be mistaken.
    """

    def __init__(self, *, colors: bool) -> None:
        from structlog.dev import ConsoleRenderer  # noqa: PLC0415 - only for this format

        self._render = ConsoleRenderer(colors=colors, sort_keys=False, pad_event_to=20, pad_level=False)

    def __call__(self, entry: _Entry) -> bytes:
        # An exception is one of the fields here; the renderer would write it on lines of its own.
        shown = {_CONSOLE_NAMES.get(name, name): _plain(value) for name, value in entry.items() if value is not None}
        return self._render(None, "", shown).encode()


def _plain(value: object) -> object:
    """Return a text as it may be written to a terminal, and any other value as JSON."""
    if not isinstance(value, str):
        return _json(value).decode()
    return value if value.isascii() and value.isprintable() else json.dumps(value)


def _json(value: object) -> bytes:
    with suppress(orjson.JSONEncodeError):
        line = orjson.dumps(value, default=str)
        if line.isascii():
            return line
    return json.dumps(value, default=str).encode()
