"""Skills: texts of the configuration that a model reads when they are of use for a task."""

from portico.domain.contract.messages import Message, Origin, TracedMessage
from portico.domain.value import value


class SkillError(ValueError):
    """A file or a set of skills that cannot be used; the message says why."""


@value
class Skill:
    """A skill: its text and when it is of use.

    `triggers` are words, or regular expressions between slashes. `requires` names skills that it is read with, `tools`
    those that it needs. `tokens` is its cost where the configuration says more than is estimated. An `always` skill is
    a candidate for every message.
    """

    name: str
    description: str
    text: str
    triggers: tuple[str, ...] = ()
    value: float = 1.0
    requires: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tokens: int = 0
    always: bool = False

    @property
    def message(self) -> Message:
        """The skill as a model reads it, under a heading with its name."""
        headed = f"# {self.name}\n\n{self.text}"
        return TracedMessage(role="system", content=headed, origin=Origin.SKILL)
