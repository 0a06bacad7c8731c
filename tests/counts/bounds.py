"""The bounds of the ways, in calls of functions of Portico. A commit that lowers a number lowers its bound, too."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

BOUNDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "chat": 520,
        "features that a chat does not name": 0,
        "one more tool round": 368,
        "one more streamed chunk": 21,
        "journaled instead of in memory": 288,
        "one more pass, of 2 to 4": 1398,
        "the 20th pass, in percent of the 3rd": 105,
        "changes of file": 269,
    }
)
CHAT_BOUNDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "adapters": 17,
        "adapters/engines": 5,
        "adapters/runners": 7,
        "adapters/stores": 62,
        "adapters/telemetry": 74,
        "capabilities/context": 2,
        "capabilities/limits": 12,
        "capabilities/models": 57,
        "capabilities/tools": 11,
        "domain": 16,
        "domain/access": 3,
        "domain/context": 4,
        "domain/contract": 4,
        "domain/journal": 21,
        "orchestration": 12,
        "orchestration/execution": 157,
        "orchestration/patterns": 3,
        "orchestration/pipeline": 19,
        "orchestration/runtime": 28,
        "ports": 12,
    }
)
"""The calls of a chat by package; each call counts in one."""
