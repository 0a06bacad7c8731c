"""Redaction: earlier conversations without secrets, e-mail addresses and card numbers.

It happens on the way to a model and to readers, never in a store. Of an object the whole value of a sensitive key goes,
and in texts the sensitive parts go, wherever they are nested. A model's answer with a sensitive part loses the content
that only its provider can read, since that may hold the same part again.
"""

from base64 import b64encode
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from portico.capabilities.guards.sensitive_text import Finding, find_sensitive, kind_of_key, redact, redaction, without
from portico.domain.contract.messages import (
    DocumentPart,
    Message,
    ModelMessage,
    Part,
    TextPart,
    ToolCall,
    TracedMessage,
)

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

    def message(self, message: Message, findings: Sequence[Finding] = ()) -> Message:
        """Return the message with its text, its parts and the arguments of its calls redacted.

        The `findings` are all that is sensitive in a message of text alone; without them they are searched for.
        """
        if findings:
            redacted = without(message.text, findings)
            self.counts.update(redacted.counts)
            return message.model_copy(update={"content": redacted.text})
        content = self.text(message.content) if isinstance(message.content, str) else self._parts(message.content)
        calls = None if message.tool_calls is None else [self._call(call) for call in message.tool_calls]
        is_same = content == message.content and calls == message.tool_calls
        if isinstance(message, ModelMessage) and message.kept:
            hidden = Redactor()
            hidden.value(message.kept)
            if hidden.counts or not is_same:
                return _plain(message, content, calls)
        return message if is_same else message.model_copy(update={"content": content, "tool_calls": calls})

    def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages redacted."""
        found = sensitive_messages(messages)
        return tuple(
            [
                self.message(message, found[index]) if index in found else message
                for index, message in enumerate(messages)
            ]
        )

    def _member(self, name: str, value: Any) -> Any:
        kind = kind_of_key(name)
        if kind is None or value is None or isinstance(value, bool) or value == redaction(kind):
            return self.value(value)
        self.counts[kind] += 1
        return redaction(kind)

    def _parts(self, parts: Iterable[Part]) -> list[Part]:
        return [
            part.model_copy(update={"text": self.text(part.text)}) if isinstance(part, TextPart) else self._media(part)
            for part in parts
        ]

    def _media(self, part: Part) -> Part:
        """Return a part that is no text: a text document and a URL redacted, anything else as it is."""
        if not isinstance(part, TextPart) and part.url is not None:
            return part.model_copy(update={"url": self.text(part.url)})
        text = part.plain_text if isinstance(part, DocumentPart) else None
        if text is None:
            return part
        return part.model_copy(update={"data": b64encode(self.text(text).encode()).decode()})

    def _call(self, call: ToolCall) -> ToolCall:
        arguments = self.value(call.arguments)
        return call if arguments == call.arguments else call.model_copy(update={"arguments": arguments})


def sensitive_messages(messages: Sequence[Message]) -> Mapping[int, Sequence[Finding]]:
    """Return the indexes of the messages that have something to redact, with the findings in those of text alone.

    Their texts are searched as one, since a search costs more than reading the text. No pattern but that of a private
    key goes beyond a line, and every text that it goes through is searched again.
    """
    texts: list[str] = []
    ends: list[int] = []
    owners: list[int] = []
    found: dict[int, list[Finding]] = {}
    end = 0
    for index, message in enumerate(messages):
        for text in _texts(message):
            if text is None:
                found[index] = []
                continue
            end += len(text) + 1
            texts.append(text)
            ends.append(end)
            owners.append(index)
    for finding in find_sensitive("\n".join(texts)):
        first, last = bisect_right(ends, finding.start), bisect_right(ends, finding.end - 1)
        for place in range(first, last + 1):
            begins = 0 if place == 0 else ends[place - 1]
            index = owners[place]
            is_plain = first == last and _is_plain(messages[index]) and found.get(index) != []
            if is_plain:
                within = Finding(finding.kind, finding.start - begins, finding.end - begins)
                found.setdefault(index, []).append(within)
            else:
                found[index] = []
    return found


def _is_plain(message: Message) -> bool:
    """Return True for a message of text alone."""
    return isinstance(message.content, str) and not message.tool_calls and not isinstance(message, ModelMessage)


def _texts(message: Message) -> Iterator[str | None]:
    """Yield all texts of a message, and None for a sensitive key."""
    yield message.text
    if message.content.__class__ is list:
        yield from [text for document in message.documents if (text := document.plain_text) is not None]
        yield from [part.url for _, part in message.media_by_url]
    for call in message.tool_calls or ():
        yield from _texts_of(call.arguments)
    if isinstance(message, ModelMessage):
        yield from _texts_of(message.kept)


def _texts_of(value: Any) -> Iterator[str | None]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if kind_of_key(name) is not None:
                yield None
            yield from _texts_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts_of(each)
    elif isinstance(value, int) and value >= _LEAST_CARD:
        yield str(value)


def _plain(message: ModelMessage, content: str | list[Part], calls: list[ToolCall] | None) -> Message:
    """Return the message with this content, without what only its provider can read."""
    fields = {"role": message.role, "content": content, "tool_calls": calls, "name": message.name}
    if message.origin is None:
        return Message.model_validate(fields)
    return TracedMessage.model_validate({**fields, "origin": message.origin})
