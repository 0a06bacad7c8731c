"""Dataclasses that are frozen for whoever checks types, and plain where they run.

What is frozen at run time sets its fields one by one past its own guard: such an object takes three times as long to
make, its class twice, and some seventy are made for the smallest request. Nothing here is ever changed all the
same, since the type checker refuses it. Refused: named tuples for all of them, which are equal to any tuple.

What is recorded or streamed, events and outcomes and all that they hold, has no slots: orjson writes what has a dict
five times as fast.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(kind: type | None = None, /, *, frozen: bool = False, eq: bool = True, **options: Any) -> Any:
        """As `dataclasses.dataclass`, without the guard; what would be frozen has a hash all the same."""
        return dataclasses.dataclass(kind, eq=eq, unsafe_hash=frozen and eq, **options)
