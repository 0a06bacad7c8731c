"""Log lines: one per ended execution, without content, and impossible to forge or to block."""

import json
import logging
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from portico.adapters.telemetry.logs import (
    MAX_LINE_BYTES,
    LogSink,
    StructuredLogger,
    open_logger,
    route_standard_logging,
)
from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.events import RESTING_EVENTS, InheritedEvent, LifecycleTransition
from portico.domain.lifecycle import State
from portico.domain.raised_exception import CodeKind, ExceptionReport
from tests.support.examples import (
    CANCELLED,
    COMPLETED,
    DELTA,
    EVENTS,
    FAILED,
    MOVED,
    SPAN,
    STARTED,
    SUSPENDED,
    TRACE,
    live_delta,
    plain_chat,
    stored_events,
)
from tests.support.virtual_time import VirtualClock


class Pipe:
    """A pipe that the service writes to, with the lines that arrived."""

    def __init__(self) -> None:
        self.outlet, self.inlet = os.pipe()[::-1]
        os.set_blocking(self.inlet, False)
        self.raw = b""

    def lines(self) -> list[dict[str, Any]]:
        """Return all lines so far, each of which must be a JSON object."""
        while True:
            try:
                piece = os.read(self.inlet, 65536)
            except BlockingIOError:
                break
            if not piece:
                break
            self.raw += piece
        return [json.loads(line) for line in self.raw.decode("ascii").splitlines()]

    def close(self) -> None:
        for descriptor in (self.inlet, self.outlet):
            os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


class FixedClock(VirtualClock):
    """A clock without an event loop."""

    def now(self) -> float:
        return 1_790_000_000.25


def _sink(pipe: Pipe, level: str) -> LogSink:
    return LogSink(open_logger(level, FixedClock(), descriptor=pipe.outlet))


def test_a_plain_chat_is_one_line_at_info(pipe: Pipe) -> None:
    _sink(pipe, "info").publish("a", plain_chat())
    assert pipe.lines() == [
        {
            "timestamp": "2026-09-21T14:13:20.250000Z",
            "level": "info",
            "event": "execution.ended",
            "request_id": "r-1",
            "trace_id": TRACE,
            "span_id": SPAN,
            "mode": "chat",
            "channel": "api",
            "state": "COMPLETE",
            "duration_ms": 15000.0,
            "attempts": 1,
            "input_tokens": 12,
            "output_tokens": 34,
            "provider": "primary",
            "tool_rounds": 2,
            "code": None,
        }
    ]


def test_a_failed_execution_is_one_info_line_and_one_warning(pipe: Pipe) -> None:
    _sink(pipe, "info").publish("a", stored_events(FAILED))
    ended, failed = pipe.lines()
    assert (ended["level"], ended["event"], ended["state"]) == ("info", "execution.ended", "ERROR")
    assert (failed["level"], failed["event"]) == ("warning", "execution.failed")
    assert failed["code"] == ended["code"] == "INFERENCE_MODEL_UNAVAILABLE"
    assert failed["message"] == "it failed"


def test_a_cancelled_execution_is_one_line(pipe: Pipe) -> None:
    _sink(pipe, "info").publish("a", stored_events(CANCELLED))
    assert [(line["event"], line["code"]) for line in pipe.lines()] == [("execution.ended", "CANCELLED_TIMEOUT")]


def test_a_suspension_is_one_line_of_its_own(pipe: Pipe) -> None:
    _sink(pipe, "info").publish("a", stored_events(SUSPENDED))
    assert [line["event"] for line in pipe.lines()] == ["execution.suspended"]


def test_only_failures_are_logged_at_level_warning(pipe: Pipe) -> None:
    sink = _sink(pipe, "warning")
    sink.publish("a", plain_chat())
    sink.publish("b", stored_events(FAILED))
    assert [line["event"] for line in pipe.lines()] == ["execution.failed"]


def test_at_level_error_a_sink_wants_only_what_the_line_of_a_bug_needs(pipe: Pipe) -> None:
    sink = _sink(pipe, "error")
    assert set(sink.wanted) == {LifecycleTransition, *RESTING_EVENTS}
    sink.publish("a", stored_events(LifecycleTransition(None, State.INIT, 1, "accepted"), STARTED))
    sink.log_bug("a", ValueError())
    sink.publish("a", stored_events(FAILED))
    [line] = pipe.lines()
    assert (line["event"], line["trace_id"], line["span_id"]) == ("execution.bug", TRACE, SPAN)


@pytest.mark.parametrize("level", ["debug", "info"])
def test_inherited_events_are_not_logged_again(pipe: Pipe, level: str) -> None:
    *chat, end = plain_chat()
    _sink(pipe, level).publish("fork", [*(InheritedEvent(*item) for item in chat), end])
    *lines, ended = pipe.lines()
    assert [line["event"] for line in lines] == ([] if level == "info" else [end.event.type])
    assert (ended["event"], ended["attempts"], ended["duration_ms"]) == ("execution.ended", 0, None)


def test_every_event_is_logged_at_debug_with_its_ids(pipe: Pipe) -> None:
    sink = _sink(pipe, "debug")
    sink.publish("a", stored_events(*EVENTS))
    sink.publish("a", [live_delta()])
    lines = [line for line in pipe.lines() if line["level"] == "debug"]
    assert [line["event"] for line in lines] == [event.type for event in (*EVENTS, DELTA)]
    assert {line["request_id"] for line in lines} == {"r-1"}
    assert {line["span_id"] for line in lines} == {SPAN}
    assert [line["sequence_number"] for line in lines] == [*range(1, len(EVENTS) + 1), None]


def test_events_of_a_plan_step_are_logged_with_its_name(pipe: Pipe) -> None:
    sink = _sink(pipe, "debug")
    [plain, inside] = stored_events(STARTED, STARTED)
    sink.publish("a", [plain, inside._replace(correlation=replace(inside.correlation, step_name="roll"))])
    assert [line.get("step_name") for line in pipe.lines()] == [None, "roll"]


def test_no_content_is_logged_at_any_level(pipe: Pipe) -> None:
    sink = _sink(pipe, "debug")
    sink.publish("a", stored_events(*EVENTS))
    sink.publish("a", [live_delta()])
    sink.log_bug("a", ValueError("text that is not logged"))
    pipe.lines()
    assert b"text that is not logged" not in pipe.raw


def test_a_value_cannot_forge_a_line(pipe: Pipe) -> None:
    logger = open_logger("info", FixedClock(), descriptor=pipe.outlet)
    hostile = 'x"\r\n{"event":"forged"}\x00\x1b[31m\u2028\u2029\x85\u202e\ud800'
    logger.info(hostile, value=hostile, nested={"deep": [hostile]})
    (line,) = pipe.lines()
    assert line["event"] == line["value"] == line["nested"]["deep"][0] == hostile
    assert pipe.raw.count(b"\n") == 1


def test_only_types_and_stack_frames_of_exceptions_are_logged(pipe: Pipe) -> None:
    def fails() -> None:
        try:
            {}["sk-secret"]
        except KeyError as cause:
            raise ExceptionGroup("sk-secret", [ValueError("sk-secret")]) from cause

    with pytest.raises(ExceptionGroup) as raised:
        fails()
    _sink(pipe, "info").log_bug("a", raised.value)
    (line,) = pipe.lines()
    assert line["level"] == "error"
    assert line["execution_id"] == "a"
    assert line["exception"].startswith("ExceptionGroup (ValueError in ) in fails ")
    assert " from KeyError in fails " in line["exception"]
    assert "secret" not in str(line)


def test_the_longest_values_of_a_long_line_are_replaced(pipe: Pipe) -> None:
    open_logger("info", FixedClock(), descriptor=pipe.outlet).info("long", short="unchanged", long="é" * MAX_LINE_BYTES)
    (line,) = pipe.lines()
    assert line["short"] == "unchanged"
    assert line["long"] == "(too long)"


@pytest.mark.parametrize(("surplus", "is_whole"), [(0, True), (1, False)])
def test_a_line_of_as_many_bytes_as_a_pipe_takes_at_once_is_whole_and_a_longer_one_is_cut(
    pipe: Pipe, surplus: int, is_whole: bool
) -> None:
    logger = open_logger("info", FixedClock(), descriptor=pipe.outlet)
    logger.info("line", filler="")
    pipe.lines()
    filler = "x" * (MAX_LINE_BYTES - len(pipe.raw) + surplus)
    pipe.raw = b""
    logger.info("line", filler=filler)
    (line,) = pipe.lines()
    assert line["filler"] == (filler if is_whole else "(too long)")
    assert len(pipe.raw) <= MAX_LINE_BYTES == select.PIPE_BUF


def test_a_stopped_reader_does_not_block_the_service_and_dropped_lines_are_counted(pipe: Pipe) -> None:
    logger = open_logger("info", FixedClock(), descriptor=pipe.outlet)
    for number in range(5000):
        logger.info("line", number=number, filler="x" * 100)
    arrived = len(pipe.lines())
    assert arrived < 5000
    logger.info("after")
    dropped, after = pipe.lines()[arrived:]
    assert (dropped["event"], dropped["lines"]) == ("log.dropped", 5000 - arrived)
    assert after["event"] == "after"


def test_a_reader_that_is_gone_cannot_hurt_the_service() -> None:
    inlet, outlet = os.pipe()
    os.close(inlet)
    logger = open_logger("info", FixedClock(), descriptor=outlet)
    logger.info("an unread line")
    os.close(outlet)


def test_lag_and_faults_are_logged(pipe: Pipe) -> None:
    sink = _sink(pipe, "info")
    sink.log_lag(0.51234)
    sink.log_fault(ZeroDivisionError(), "sink")
    lag, fault = pipe.lines()
    assert (lag["level"], lag["event"], lag["seconds"]) == ("warning", "event_loop.lag", 0.512)
    assert (fault["level"], fault["event"], fault["exception"]) == ("error", "sink.fault", "ZeroDivisionError in ")


@pytest.fixture
def stdlib(pipe: Pipe) -> Iterator[Pipe]:
    """Route the loggers of the standard library to the pipe, and restore them afterwards."""
    names = ("", "uvicorn", "uvicorn.access")
    handlers, levels = logging.getLogger().handlers, [logging.getLogger(name).level for name in names]
    route_standard_logging(open_logger("info", FixedClock(), descriptor=pipe.outlet), "info")
    yield pipe
    logging.getLogger().handlers = handlers
    for name, level in zip(names, levels, strict=True):
        logging.getLogger(name).setLevel(level)


def test_what_libraries_log_has_the_same_form(stdlib: Pipe) -> None:
    logging.getLogger("uvicorn.error").info("listening on %s", "http://127.0.0.1:8080")
    logging.getLogger("asyncio").warning("odd\nthing")
    logging.getLogger("asyncio").info("below the level")
    logging.getLogger("uvicorn.access").info("below the level")
    assert [(line["level"], line["event"], line["logger"]) for line in stdlib.lines()] == [
        ("info", "listening on http://127.0.0.1:8080", "uvicorn.error"),
        ("warning", "odd\nthing", "asyncio"),
    ]


def test_an_unusual_record_is_logged_too(stdlib: Pipe) -> None:
    (handler,) = (each for each in logging.getLogger().handlers if not hasattr(each, "records"))
    handler.handle(logging.LogRecord("odd", logging.WARNING, "", 0, "two %s %s", ("one",), None))
    logging.getLogger("odd").log(55, "above all levels")
    logging.getLogger("odd").log(35, "between two levels")
    try:
        {}["sk-secret"]
    except KeyError:
        logging.getLogger("odd").exception("went wrong")
    lines = stdlib.lines()
    assert [line["event"] for line in lines] == ["two %s %s", "above all levels", "between two levels", "went wrong"]
    assert [line["level"] for line in lines] == ["warning", "critical", "warning", "error"]
    assert lines[-1]["exception"].startswith("KeyError in test_an_unusual_record_is_logged_too ")


def test_what_goes_on_after_a_suspension_is_timed_from_there(pipe: Pipe) -> None:
    sink = _sink(pipe, "info")
    sink.publish("a", stored_events(MOVED, SUSPENDED))
    sink.publish("a", stored_events(LifecycleTransition(State.SUSPENDED, State.EXECUTE, 1, "resumed"), COMPLETED))
    suspended, ended = pipe.lines()
    assert (suspended["duration_ms"], ended["duration_ms"]) == (None, 1000.0)


@pytest.mark.parametrize(
    ("code", "status", "level"), [(Code.REQUEST_INVALID, 422, "info"), (Code.REQUEST_OVERLOADED, 503, "warning")]
)
def test_a_refused_request_is_one_line_without_what_the_client_sent(
    pipe: Pipe, code: Code, status: int, level: str
) -> None:
    sink = _sink(pipe, "info")
    sink.log_refusal(RequestFailure(code, "secret: is not known"), {"route": "/v1/execute", "request_id": "r-1"})
    [line] = pipe.lines()
    assert (line["event"], line["level"], line["code"], line["status"]) == ("request.refused", level, code, status)
    assert (line["route"], line["request_id"]) == ("/v1/execute", "r-1")
    assert "secret" not in str(line)


def test_the_request_id_of_a_gateway_is_logged_with_that_of_the_execution(pipe: Pipe) -> None:
    _sink(pipe, "info").log_link("gateway-1", {"request_id": "r-1", "trace_id": TRACE, "span_id": SPAN})
    [line] = pipe.lines()
    assert (line["trace_id"], line["span_id"]) == (TRACE, SPAN)
    assert (line["event"], line["request_id"], line["gateway_request_id"]) == ("request.linked", "r-1", "gateway-1")


def test_what_goes_wrong_in_an_execution_is_logged_with_its_trace_and_span(pipe: Pipe) -> None:
    sink = _sink(pipe, "warning")
    sink.publish("a", stored_events(LifecycleTransition(None, State.INIT, 1, "accepted")))
    sink.log_bug("a", ValueError())
    ids = {"trace_id": TRACE, "span_id": SPAN}
    sink.log_exception(ExceptionReport(CodeKind.NODE, "Draft", "ValueError", "x", "ValueError in f x.py:1", "r", **ids))
    sink.publish("a", stored_events(FAILED))
    lines = pipe.lines()
    assert [line["event"] for line in lines] == ["execution.bug", "node_exception", "execution.failed"]
    assert {(line["trace_id"], line["span_id"]) for line in lines} == {(TRACE, SPAN)}


def test_an_entry_of_the_standard_library_may_have_a_trace_and_nothing_else(stdlib: Pipe) -> None:
    ids = {"trace_id": TRACE, "span_id": SPAN}
    logging.getLogger("odd").error("failed", extra=ids | {"authorization": "sk-secret"})
    [line] = stdlib.lines()
    assert {name: line.get(name) for name in ids} == ids
    assert "sk-secret" not in str(line)


def _console_lines(pipe: Pipe, log: Callable[[StructuredLogger], None]) -> list[str]:
    log(open_logger("info", FixedClock(), log_format="console", descriptor=pipe.outlet))
    return os.read(pipe.inlet, 65536).decode("ascii").splitlines()


def test_the_console_shows_one_line_for_each_entry(pipe: Pipe) -> None:
    [line] = _console_lines(pipe, lambda logger: LogSink(logger).publish("a", plain_chat()))
    assert line.startswith("2026-09-21T14:13:20.250000Z [info] execution.ended")
    assert f"trace_id={TRACE} span_id={SPAN} mode=chat channel=api state=COMPLETE duration_ms=15000.0" in line
    assert "code=" not in line


def test_a_value_cannot_forge_a_line_of_the_console(pipe: Pipe) -> None:
    hostile = "x\r\n2026 [error] forged\x00\x1b[31m\u2028\x85"
    [line] = _console_lines(pipe, lambda logger: logger.info(hostile, value=hostile, deep=[hostile]))
    assert "\x1b" not in line
    assert line.count("forged") == 3


def test_an_exception_is_a_field_of_its_line_on_the_console(pipe: Pipe) -> None:
    [line] = _console_lines(pipe, lambda logger: LogSink(logger).log_fault(ZeroDivisionError("sk-secret"), "sink"))
    assert "sink.fault" in line
    assert "error=" in line
    assert "ZeroDivisionError" in line
    assert "sk-secret" not in line


def test_dropped_lines_are_reported_on_the_console_too(pipe: Pipe) -> None:
    logger = open_logger("info", FixedClock(), log_format="console", descriptor=pipe.outlet)
    for _ in range(5000):
        logger.info("line", filler="x" * 100)
    while select.select([pipe.inlet], [], [], 0)[0]:
        os.read(pipe.inlet, 65536)
    logger.info("after")
    dropped, after = os.read(pipe.inlet, 65536).decode("ascii").splitlines()
    assert dropped.startswith("[warning] log.dropped")
    assert "after" in after
