"""Vectors of texts in a provider's reply."""

from array import array
from typing import Any

from portico.adapters.engines.wire.faults import malformed_reply
from portico.adapters.engines.wire.json_fields import as_list


def vector_of(values: Any) -> bytes:
    """Return a list of numbers as 32-bit floats. Raises: EngineError."""
    try:
        vector = array("f", as_list(values))
    except (TypeError, OverflowError) as cause:
        raise malformed_reply("the reply has another value where a vector is expected") from cause
    return vector.tobytes()


def token_count(value: Any) -> int:
    """Return a count of tokens, 0 where the reply has none that can be true."""
    return value if isinstance(value, int) and value > 0 else 0
