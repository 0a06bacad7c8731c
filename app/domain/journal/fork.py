"""What an execution that goes on from a step of another one begins with, and what is different from there on."""

from app.domain.contract.messages import Message
from app.domain.contract.request import ExecutionHints
from app.domain.frozen import dataclass


@dataclass(frozen=True)
class Fork:
    """What an execution begins with: the top-level steps of its `origin`, a request id, before `from_step`.

    From there on what is not None holds, and the messages are said before the next inference. Where the origin was
    forked itself, what its forks `earlier` changed of the kept steps, and at the next, still holds.
    """

    origin: str
    from_step: int
    model: str | None = None
    hints: ExecutionHints | None = None
    tools: tuple[str, ...] | None = None
    messages: tuple[Message, ...] = ()
    earlier: tuple["Fork", ...] = ()

    @property
    def chain(self) -> tuple["Fork", ...]:
        """All that hold, in the order of their steps."""
        return (*self.earlier, self)

    def inherits(self, key: str) -> bool:
        """Whether what is recorded under that key, or hangs behind it, belongs to the steps that are kept."""
        ordinal = step_number(key)
        return ordinal is not None and ordinal < self.from_step


def step_number(key: str) -> int | None:
    """The number of the top-level step that a key belongs to, if it belongs to one."""
    first = key.partition("/")[0]
    return int(first) if first.isdecimal() else None
