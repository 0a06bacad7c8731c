"""Redaction: earlier conversations without secrets, e-mail addresses and card numbers.

It happens on the way to a model and to readers, never in a store. Of an object the whole value of a sensitive key goes,
and in texts the sensitive parts go, wherever they are nested. A model's answer with a sensitive part loses the content
that only its provider can read, since that may hold the same part again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from app.capabilities.guards.sensitive_text import kind_of_key, redact, redaction
from app.domain.contract.messages import ImagePart, Message, ModelMessage, Part, ToolCall, TracedMessage

_LEAST_CARD = 10**12
"""Smallest number with as many digits as the shortest card number."""


class Redactor:
    """Redactor of texts, JSON values and messages that counts what it replaces, by kind."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def text(self, text: str) -> str:
        """Return the text with `[redacted:KIND]` in place of each sensitive part."""
        redacted = redact(text)
        if redacted.counts:
            self.counts.update(redacted.counts)
        return redacted.text

    def value(self, value: Any) -> Any:
        """Return a JSON value with `[redacted:KIND]` in place of values of sensitive keys and of parts of texts."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {name: self._member(name, each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        if isinstance(value, int) and value >= _LEAST_CARD:
            text = self.text(str(value))
            return text if text != str(value) else value
        return value

    def message(self, message: Message) -> Message:
        """Return the message with its text, its parts and the arguments of its calls redacted."""
        before = self.counts.total()
        content = self.text(message.content) if isinstance(message.content, str) else self._parts(message.content)
        calls = None if message.tool_calls is None else [self._call(call) for call in message.tool_calls]
        if isinstance(message, ModelMessage) and message.kept:
            hidden = Redactor()
            hidden.value(message.kept)
            if hidden.counts or self.counts.total() > before:
                return _plain(message, content, calls)
        if self.counts.total() == before:
            return message
        return message.model_copy(update={"content": content, "tool_calls": calls})

    def messages(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return the messages redacted."""
        return tuple([self.message(message) for message in messages])

    def _member(self, name: str, value: Any) -> Any:
        kind = kind_of_key(name)
        if kind is None or value is None or isinstance(value, bool) or value == redaction(kind):
            return self.value(value)
        self.counts[kind] += 1
        return redaction(kind)

    def _parts(self, parts: Iterable[Part]) -> list[Part]:
        return [
            part if isinstance(part, ImagePart) else part.model_copy(update={"text": self.text(part.text)})
            for part in parts
        ]

    def _call(self, call: ToolCall) -> ToolCall:
        return call.model_copy(update={"arguments": self.value(call.arguments)})


def _plain(message: ModelMessage, content: str | list[Part], calls: list[ToolCall] | None) -> Message:
    """Return the message with this content, without what only its provider can read."""
    fields = {"role": message.role, "content": content, "tool_calls": calls, "name": message.name}
    if message.origin is None:
        return Message.model_validate(fields)
    return TracedMessage.model_validate({**fields, "origin": message.origin})
