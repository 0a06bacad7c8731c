"""Errors that a provider reports within a stream, in frames of other forms than its protocol has.

Gateways and servers in front of a model report their own errors in a stream that began with status 200. Such a frame
ends the reply as a failure; what came before it is not the whole answer, even if an end marker follows.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from portico.adapters.engines.wire.deltas import UNKNOWN_FRAME, Delta
from portico.ports.model import EngineError

ERROR_TEXTS: Final = ("message", "detail", "error_msg")
"""The members whose text is an error in a frame that its dialect does not know."""


def unknown_frame(frame: Mapping[str, Any], reported_fault: Callable[[Any], EngineError]) -> Delta:
    """Return the delta of a frame that its dialect does not know. Raises: EngineError when it speaks of an error."""
    error = _error_in_frame(frame)
    if error is not None:
        raise reported_fault(error)
    return UNKNOWN_FRAME


def error_in_event(data: bytes) -> Any:
    """Return the error in the data of an event that is named `error`, of any form."""
    try:
        frame = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode(errors="replace")
    error = _error_in_frame(frame) if isinstance(frame, dict) else None
    return frame if error is None else error


def _error_in_frame(frame: Mapping[str, Any]) -> Any:
    """Return the error that a frame speaks of, None without one; one that is the frame itself has a `message`."""
    error = frame.get("error")
    if error is not None:
        return error
    text = next((frame[name] for name in ERROR_TEXTS if isinstance(frame.get(name), str)), None)
    if text is None and not frame.get("error_code") and frame.get("object") != "error":
        return None
    return {**frame, "message": text or ""}
