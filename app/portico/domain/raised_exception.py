"""Exceptions of other people's code: what of them is shown and where, so that their authors find them.

Their text may hold anything. It goes to the log and into the record of the step, for who may view the full history; no
event, response or metric has it, and a model only if the configuration says so.
"""

import traceback
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from portico.domain.value import value

TOO_LONG: Final = "(too long)"
MAX_RAISED_TEXT: Final = 65_536
"""Characters of the longest text that is read; of a longer one nothing is shown, since a part cannot be redacted."""
MAX_RECORDED_TEXT: Final = 2_000
MAX_RECORDED_FRAMES: Final = 20
_MAX_FRAMES: Final = 12
_MAX_INNER: Final = 4


class CodeKind(StrEnum):
    """Kind of code that people write."""

    TOOL = "tool"
    STEP = "step"
    RULE = "rule"
    PLANNER = "planner"
    NODE = "node"


@value
class RaisedException:
    """An exception as it was raised: its type, its text, and the frames of it and of its causes.

    `places` are its own frames, from the outermost to where it was raised.
    """

    type: str
    text: str
    frames: str
    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> "RaisedException":
        """Return the exception without its objects."""
        return cls(type(error).__qualname__, _text(error), frames_of(error), _places(error))


@value
class RecordedException:
    """An exception as its step records it: `frames` from the outermost to where it was raised."""

    type: str
    message: str
    frames: tuple[str, ...]

    @classmethod
    def of(cls, error: BaseException | RaisedException) -> "RecordedException":
        """Return the exception without its objects, with a text that is cut."""
        raised = RaisedException.of(error) if isinstance(error, BaseException) else error
        return cls(raised.type, raised.text[:MAX_RECORDED_TEXT], raised.places)


@value
class ExceptionReport:
    """An exception of the code of that name as the log shows it; `text` is None where nothing may be kept of it.

    The ids are those of the request, and of the span in which it was raised; None before there is an execution.
    """

    kind: CodeKind
    name: str
    type: str
    text: str | None
    frames: str
    request_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None


def frames_of(error: BaseException) -> str:
    """Return the types and the innermost stack frames of an exception and of its causes, without their texts."""
    return " from ".join(_frames(each) for each in _causes(error))


def _places(error: BaseException) -> tuple[str, ...]:
    frames = traceback.extract_tb(error.__traceback__, limit=-MAX_RECORDED_FRAMES)
    return tuple([f"{frame.name} {frame.filename}:{frame.lineno}" for frame in frames])


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _frames(error: BaseException) -> str:
    frames = reversed(traceback.extract_tb(error.__traceback__, limit=-_MAX_FRAMES))
    places = ", ".join(f"{frame.name} {frame.filename}:{frame.lineno}" for frame in frames)
    inner = ""
    if isinstance(error, BaseExceptionGroup):
        inner = f" ({'; '.join(_frames(each) for each in error.exceptions[:_MAX_INNER])})"
    return f"{type(error).__qualname__}{inner} in {places}"


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception is other people's code, too
        return "(it has no text)"
    return TOO_LONG if len(text) > MAX_RAISED_TEXT else text.encode("utf-8", "replace").decode()
