"""JSON lines on standard error: one per ended execution, one per failure, every event at debug.

What is said is chosen field by field, so that prompts, answers, arguments, results, headers and keys never get here;
of an exception only types and places are told, since its text may quote any of them. A line is ASCII, so nothing can
forge another. Whoever reads the lines cannot stop the service: a line that does not fit into the pipe is dropped and
counted, and the next line says how many were.
"""

import json
import logging
import os
import select
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import orjson
import structlog
from structlog.typing import FilteringBoundLogger

from app.domain.contract.response import SystemResponse
from app.domain.journal import events
from app.domain.journal.events import EVENT_FIELDS, InheritedEvent, LiveDelta, StoredEvent, format_timestamp
from app.domain.lifecycle import State
from app.ports.runtime import Clock

STANDARD_ERROR = 2
MAX_LINE_BYTES = 4096
"""What a pipe takes whole or not at all [POSIX, PIPE_BUF]."""
_MOST_RUNS = 20_000
_FRAMES = 12
_CONTENT = frozenset({"response", "suspensions", "text", "reasoning", "value", "errors", "warnings", "repairs"})
_TOLD: Mapping[type[Any], tuple[str, ...]] = MappingProxyType(
    {kind: tuple(name for name in names if name not in _CONTENT) for kind, names in EVENT_FIELDS.items()}
)
_BEGINNINGS = frozenset({None, State.SUSPENDED})
"""What an execution leaves when it begins, or goes on."""
_STDLIB_LEVELS: Mapping[str, int | None] = MappingProxyType(
    {"": logging.WARNING, "uvicorn": None, "uvicorn.access": logging.WARNING}
)
"""From which level on the standard library's loggers are heard; None is the configured one."""


def open_logger(level: str, clock: Clock, *, descriptor: int = STANDARD_ERROR) -> FilteringBoundLogger:
    """A logger from that level on (`debug`, `info`, `warning`, `error`) to standard error or another descriptor."""
    logger = structlog.wrap_logger(
        _Outlet(descriptor),
        processors=[_stamped_by(clock), _place_exception, _encode],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=dict,
    )
    bound: FilteringBoundLogger = logger.bind()
    return bound


def route_standard_logging(logger: FilteringBoundLogger, level: str) -> None:
    """Sends what libraries log through the standard library the same way. Changes the whole process."""
    logging.getLogger().handlers = [_Routed(logger)]
    for name, least in _STDLIB_LEVELS.items():
        logging.getLogger(name).setLevel(level.upper() if least is None else least)


class LogSink:
    """Implements `ports.EventSink`; what has no event is told by the methods after `publish`."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._logger = logger
        self._verbose = logger.is_enabled_for(logging.DEBUG)
        self._tallies: dict[str, _Tally] = {}
        self._handlers: Mapping[type[Any], Callable[[str, float, Any], None]] = {
            events.LifecycleTransition: self._moved,
            events.InferenceStart: self._inference_began,
            events.ExecutionSuspended: self._suspended,
            events.ExecutionCompleted: self._ended,
            events.ExecutionFailed: self._failed,
            events.ExecutionCancelled: self._ended,
        }

    def publish(self, execution_id: str, items: Sequence[StoredEvent | LiveDelta]) -> None:
        if self._verbose:
            for item in items:
                if type(item) is not InheritedEvent:
                    self._tell(execution_id, item)
        elif type(items[0]) is LiveDelta:
            return
        for item in items:
            handler = self._handlers.get(type(item.event))
            if handler is not None and type(item) is not InheritedEvent:
                handler(execution_id, item.at, item.event)

    def log_bug(self, execution_id: str, bug: Exception) -> None:
        """An execution raised what nobody expected."""
        self._logger.error("execution.bug", execution_id=execution_id, exc_info=bug)

    def log_fault(self, fault: Exception, place: Literal["sink", "writer", "storage"]) -> None:
        """A sink raised, what was to be committed could not be, or the database did not answer."""
        self._logger.error(f"{place}.fault", exc_info=fault)

    def log_lag(self, seconds: float) -> None:
        """The event loop was late."""
        self._logger.warning("event_loop.lag", seconds=round(seconds, 3))

    def _tell(self, execution_id: str, item: StoredEvent | LiveDelta) -> None:
        event, correlation = item.event, item.correlation
        told = {name: getattr(event, name) for name in _TOLD[type(event)]}
        told["sequence_number"] = item.sequence_number if isinstance(item, StoredEvent) else None
        told["execution_id"] = execution_id
        told["request_id"] = correlation.request_id
        told["trace_id"] = correlation.trace_id
        told["span_id"] = correlation.span_id
        if correlation.step_name is not None:
            told["step_name"] = correlation.step_name
        self._logger.debug(event.type, **told)

    def _tally(self, execution_id: str) -> "_Tally":
        tally = self._tallies.get(execution_id)
        if tally is None:
            tally = self._tallies[execution_id] = _Tally()
            if len(self._tallies) > _MOST_RUNS:
                del self._tallies[next(iter(self._tallies))]
        return tally

    def _moved(self, execution_id: str, at: float, event: events.LifecycleTransition) -> None:
        if event.from_state in _BEGINNINGS:
            self._tally(execution_id).began = at

    def _inference_began(self, execution_id: str, _at: float, _event: events.InferenceStart) -> None:
        self._tally(execution_id).attempts += 1

    def _ended(self, execution_id: str, at: float, event: events.TerminalEvent) -> None:
        tally = self._tallies.pop(execution_id, None) or _Tally()
        self._logger.info("execution.ended", **_summary(event.response, tally, at))

    def _suspended(self, execution_id: str, at: float, event: events.ExecutionSuspended) -> None:
        tally = self._tallies.pop(execution_id, None) or _Tally()
        self._logger.info("execution.suspended", **_summary(event.response, tally, at))

    def _failed(self, execution_id: str, at: float, event: events.ExecutionFailed) -> None:
        self._ended(execution_id, at, event)
        error = event.response.error
        self._logger.warning(
            "execution.failed",
            request_id=event.response.request_id,
            trace_id=event.response.trace_id,
            code=None if error is None else error.code,
            message=None if error is None else error.message,
            caused_by=None if error is None else error.caused_by,
        )


@dataclass(slots=True)
class _Tally:
    began: float | None = None
    attempts: int = 0


def _summary(response: SystemResponse, tally: _Tally, at: float) -> dict[str, Any]:
    return {
        "request_id": response.request_id,
        "trace_id": response.trace_id,
        "mode": response.mode,
        "state": response.state,
        "duration_ms": None if tally.began is None else round((at - tally.began) * 1000, 3),
        "attempts": tally.attempts,
        "input_tokens": response.token_usage.input_tokens,
        "output_tokens": response.token_usage.output_tokens,
        "provider": response.metadata.provider,
        "tool_rounds": response.metadata.tool_rounds,
        "code": None if response.error is None else response.error.code,
    }


class _Outlet:
    """What structlog writes to: a descriptor that is never waited for."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._dropped = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def info(self, line: bytes) -> None:
        """Writes the line, or counts it as dropped when there is no room or nobody who reads."""
        if self._dropped and self._write(b'{"level":"warning","event":"log.dropped","lines":%d}\n' % self._dropped):
            self._dropped = 0
        if not self._write(line):
            self._dropped += 1

    debug = warning = error = critical = info

    def _write(self, line: bytes) -> bool:
        with suppress(OSError):
            return bool(self._poll.poll(0)) and os.write(self._descriptor, line) > 0
        return False


class _Routed(logging.Handler):
    """The standard library's way to our logger."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        self._logger.log(level, _message(record), logger=record.name, exc_info=record.exc_info)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return str(record.msg)


_Entry = MutableMapping[str, Any]


def _stamped_by(clock: Clock) -> Callable[[object, str, _Entry], _Entry]:
    def stamp(_outlet: object, level: str, entry: _Entry) -> _Entry:
        return {"timestamp": format_timestamp(clock.now()), "level": level, "event": entry.pop("event"), **entry}

    return stamp


def _place_exception(_outlet: object, _level: str, entry: _Entry) -> _Entry:
    """Replaces `exc_info` by what was raised where, along the chain of causes and without any text."""
    given = entry.pop("exc_info", None)
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        entry["exception"] = " from ".join(_placed(each) for each in _chain(error))
    return entry


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _placed(error: BaseException) -> str:
    frames = reversed(traceback.extract_tb(error.__traceback__, limit=-_FRAMES))
    places = ", ".join(f"{frame.name} {frame.filename}:{frame.lineno}" for frame in frames)
    inner = ""
    if isinstance(error, BaseExceptionGroup):
        inner = f" ({'; '.join(_placed(each) for each in error.exceptions[:4])})"
    return f"{type(error).__qualname__}{inner} in {places}"


def _encode(_outlet: object, _level: str, entry: _Entry) -> bytes:
    """One line of ASCII that fits: the longest values give way."""
    line = _json(entry)
    while len(line) >= MAX_LINE_BYTES:
        longest = max(entry, key=lambda name: len(_json(entry[name])))
        entry[longest] = "(too long)"
        line = _json(entry)
    return line + b"\n"


def _json(value: object) -> bytes:
    with suppress(orjson.JSONEncodeError):
        line = orjson.dumps(value, default=str)
        if line.isascii():
            return line
    return json.dumps(value, default=str).encode()
