"""Forks: executions that continue from a step of another one, with other settings."""

from portico.domain.access.principal import ALL, Permissions
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints
from portico.domain.ids import RequestId
from portico.domain.journal.step_key import StepKey
from portico.domain.value import value


@value(slots=False)
class ResultEdit:
    """The result that a fork takes for the tool call of that step instead of the recorded one."""

    key: str
    content: str
    is_error: bool = False


@value(slots=False)
class Fork:
    """Origin of an execution that inherits the top-level steps of another one before `from_step`.

    `origin` is a request id. From that step on, the settings that are not None replace those of the origin, and the
    messages are added before the next inference. If the origin is a fork itself, `earlier` holds its forks, the
    earliest first; their settings still apply to the inherited steps and, unless replaced, to those that follow.
    `edits` are in the last inherited step, where they stand in the place of what was recorded.
    `permissions` are the rights from that step on, `origin_permissions` those of the first execution of the chain.
    """

    origin: RequestId
    from_step: int
    model: str | None = None
    hints: ExecutionHints | None = None
    tools: tuple[str, ...] | None = None
    messages: tuple[Message, ...] = ()
    earlier: tuple["Fork", ...] = ()
    permissions: Permissions = ALL
    origin_permissions: Permissions = ALL
    edits: tuple[ResultEdit, ...] = ()

    @property
    def edited_keys(self) -> frozenset[str]:
        """Return the keys of the inherited tool calls whose result this fork, or one that led to it, has edited."""
        return frozenset(edit.key for fork in self.chain for edit in fork.edits)

    @property
    def chain(self) -> tuple["Fork", ...]:
        """Return this fork and those that led to it, the earliest first."""
        return (*self.earlier, self)

    def inherits(self, key: str) -> bool:
        """Return True if what is recorded under the key, or anchored to it, belongs to the inherited steps."""
        number = StepKey(key).step_number
        return number is not None and number < self.from_step
