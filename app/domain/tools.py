"""What a tool says of itself: its definition for the model and its safety for us."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class SideEffects(StrEnum):
    """What a call does to the world."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True, eq=False)
class ToolDefinition:
    """What the model is told: `parameters` is a JSON Schema of an object.

    A tool gives the same object every time, so what is derived from it is kept by identity.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """What the service is told. `timeout` is the tool's own limit in seconds, None for the deadline alone."""

    name: str
    type: str
    description: str
    side_effects: SideEffects
    idempotent: bool
    requires: tuple[str, ...] = ()
    timeout: float | None = None

    @property
    def unsafe(self) -> bool:
        """Whether a second run could act twice: not idempotent, and its effect reaches the world."""
        return not self.idempotent and self.side_effects in {SideEffects.WRITE, SideEffects.EXTERNAL}


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a tool can run right now; `reason` says why not."""

    available: bool
    reason: str = ""


@dataclass(frozen=True)
class OfferedTool:
    """A tool as one inference offered it; `unsafe` makes its calls barriers, `approval` has each wait for a person."""

    name: str
    unsafe: bool
    idempotent: bool = False
    approval: bool = False


def concurrent_groups(names: Sequence[str], unsafe: frozenset[str]) -> list[list[int]]:
    """Splits the calls of one reply into groups that may run at once, as indexes in call order.

    An unsafe call is a barrier: it stands alone, all before it have settled and none after it has started.
    """
    groups: list[list[int]] = []
    barrier = True
    for index, name in enumerate(names):
        alone = name in unsafe
        if alone or barrier:
            groups.append([index])
        else:
            groups[-1].append(index)
        barrier = alone
    return groups
