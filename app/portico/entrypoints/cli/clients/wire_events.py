"""Events as a server sends them, read back into the events of the core for the views of a terminal."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from portico.domain.journal.events import (
    EVENT_FIELDS,
    EVENT_TYPES,
    WIRE_NAMES,
    CorrelationContext,
    InferenceDelta,
    LiveDelta,
    StoredEvent,
    ToolContent,
)

_KINDS: Final[Mapping[str, type[Any]]] = MappingProxyType({kind.type: kind for kind in EVENT_TYPES})
_CORRELATION: Final = TypeAdapter(CorrelationContext)
_LIVE: Final = (InferenceDelta, ToolContent)


def read_event(data: Mapping[str, Any]) -> StoredEvent | LiveDelta | None:
    """Return the event, None for one of a type or a form that only a newer server knows."""
    kind = _KINDS.get(str(data.get("type")))
    if kind is None:
        return None
    fields = {
        name: data[WIRE_NAMES.get(name, name)] for name in EVENT_FIELDS[kind] if WIRE_NAMES.get(name, name) in data
    }
    try:
        event = _adapter(kind.type).validate_python(fields, extra="ignore")
        correlation = _CORRELATION.validate_python(data, extra="ignore")
        at = datetime.fromisoformat(str(data["timestamp"])).timestamp()
        if isinstance(event, _LIVE):
            return LiveDelta(at, correlation, event)
        return StoredEvent(int(data["sequence_number"]), at, "", correlation, event)
    except (ValidationError, KeyError, ValueError):
        return None


@cache
def _adapter(type_name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_KINDS[type_name])
