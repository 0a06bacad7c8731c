"""The bounds of the ways, in calls of functions of Portico. A commit that lowers a number lowers its bound, too."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

BOUNDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "chat": 343,
        "features that a chat does not name": 0,
        "one more tool round": 235,
        "one more streamed chunk": 16,
        "journaled instead of in memory": 176,
        "one more pass, of 2 to 4": 992,
        "the 20th pass, in percent of the 3rd": 102,
        "changes of file": 190,
        "served chat": 456,
        "one more served tool round": 294,
        "one more served chunk": 21,
        "served chat on 16 deployments, more": 23,
    }
)
CHAT_BOUNDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "adapters": 15,
        "adapters/engines": 5,
        "adapters/runners": 6,
        "adapters/stores": 38,
        "adapters/telemetry": 39,
        "capabilities/context": 2,
        "capabilities/limits": 8,
        "capabilities/models": 37,
        "capabilities/tools": 7,
        "domain": 16,
        "domain/context": 2,
        "domain/contract": 3,
        "domain/journal": 12,
        "orchestration": 10,
        "orchestration/execution": 89,
        "orchestration/patterns": 3,
        "orchestration/pipeline": 16,
        "orchestration/runtime": 25,
        "ports": 10,
    }
)
"""The calls of a chat by package; each call counts in one."""
