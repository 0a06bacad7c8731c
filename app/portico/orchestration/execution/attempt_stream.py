"""Stream of an attempt: what has arrived of it so far, and what is published of that."""

from collections.abc import Callable
from functools import partial
from typing import Final

from portico.capabilities.output.partial import PartialAnswer
from portico.domain.contract.response import TokenUsage
from portico.domain.journal.events import InferenceDelta
from portico.orchestration.execution.branches import InputGate
from portico.ports.model import TokenCounter

STORED_CHARACTERS: Final = 2**20
"""Characters of a text that are stored if its attempt does not succeed."""


class HeldDeltas:
    """Deltas of one attempt, which are held until the judges of the input have passed it."""

    def __init__(self, gate: InputGate, publish: Callable[[InferenceDelta], None]) -> None:
        self._gate = gate
        self._publish = publish
        self._is_void = False

    def publish(self, delta: InferenceDelta) -> None:
        """Publish the delta, now or when the gate opens."""
        self._gate.hold(partial(self._publish_valid, delta))

    def were_published(self) -> bool:
        """Return True if deltas of the failed attempt were published; those that are still held never will be."""
        self._is_void = not self._gate.is_open
        return self._gate.is_open

    def _publish_valid(self, delta: InferenceDelta) -> None:
        if not self._is_void:
            self._publish(delta)


class AttemptStream:
    """Stream of one attempt: what has arrived of it so far.

    Implements `ports.model.Progress`. Deltas are published once `publish` is set; with `has_schema` the value that the
    text makes so far is published, too.
    """

    def __init__(self, segment: str, *, has_schema: bool) -> None:
        self.segment = segment
        self.publish: Callable[[InferenceDelta], None] | None = None
        self.held: HeldDeltas | None = None
        """The deltas that wait for the judges of the input, if there are any."""
        self.usage_so_far: TokenUsage | None = None
        self._value = PartialAnswer() if has_schema else None
        self._pieces: list[str] = []
        self._text_size = 0
        self._reasoning_size = 0

    @property
    def partial_text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @property
    def stored_text(self) -> str:
        """The part of the text that is stored if the attempt does not succeed: all of it unless it is very long."""
        return self.partial_text[:STORED_CHARACTERS]

    def count_tokens(self, counter: TokenCounter) -> int:
        """Estimate the tokens of the text so far."""
        text = self.stored_text
        tokens = counter.text(text)
        return tokens if len(text) == self._text_size else tokens * self._text_size // len(text)

    @property
    def has_published(self) -> bool:
        """True once a delta was published."""
        return self.publish is not None and bool(self._text_size or self._reasoning_size)

    def text(self, piece: str) -> None:
        """Take a piece of the answer."""
        if self.publish is not None:
            self.publish(InferenceDelta(self.segment, self._text_size, text=piece))
        self._pieces.append(piece)
        self._text_size += len(piece)
        if self._value is not None and self.publish is not None:
            value = self._value.add(piece)
            if value is not None:
                self.publish(InferenceDelta(self.segment, self._text_size, value=value))

    def reasoning(self, piece: str) -> None:
        """Take a piece of the reasoning."""
        if self.publish is not None:
            self.publish(InferenceDelta(self.segment, self._reasoning_size, reasoning=piece))
        self._reasoning_size += len(piece)

    def usage(self, usage: TokenUsage) -> None:
        """Take the usage that the provider reports so far."""
        self.usage_so_far = usage
