"""Estimate of the tokens that a model reads, by character class."""

import string
from collections.abc import Sequence
from functools import lru_cache

import orjson

from app.domain.contract.messages import ImagePart, Message
from app.domain.tools import ToolDefinition

_PER_MESSAGE = 4
_PER_TOOL = 8
_PER_IMAGE = 768
_WORD_CHARACTERS_PER_TOKEN = 4
_DIGITS_PER_TOKEN = 2
_MARKS_PER_TOKEN = 2
_DIGITS = string.digits.encode()
_MARKS = string.punctuation.encode()


class EstimatingTokenCounter:
    """Token counter by estimate: letters and spaces by four, digits and marks by two, characters outside ASCII by one.

    Fractions are rounded up, so a text that is not empty has at least one token.
    """

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return _text(text)

    def messages(self, messages: Sequence[Message]) -> int:
        """Return the tokens of whole messages, with their roles, calls and images."""
        return sum(map(self._message, messages))

    def tools(self, tools: Sequence[ToolDefinition]) -> int:
        """Return the tokens of tool definitions as a provider is sent them."""
        return sum(map(_definition, tools))

    def _message(self, message: Message) -> int:
        if isinstance(message.content, str):
            tokens = _PER_MESSAGE + _text(message.content)
        else:
            tokens = _PER_MESSAGE + _text(message.text)
            tokens += _PER_IMAGE * sum(isinstance(part, ImagePart) for part in message.content)
        for call in message.tool_calls or ():
            tokens += _PER_TOOL + _text(f"{call.name}{orjson.dumps(call.arguments).decode()}")
        return tokens


@lru_cache(maxsize=1024)
def _definition(tool: ToolDefinition) -> int:
    return _PER_TOOL + _text(f"{tool.name}{tool.description}{orjson.dumps(tool.parameters).decode()}")


def _text(text: str) -> int:
    ascii_text = text.encode("ascii", "ignore")
    words = ascii_text.translate(None, _DIGITS)
    letters = len(words.translate(None, _MARKS))
    foreign, digits, marks = len(text) - len(ascii_text), len(ascii_text) - len(words), len(words) - letters
    return (
        foreign
        - (-letters // _WORD_CHARACTERS_PER_TOKEN)
        - (-digits // _DIGITS_PER_TOKEN)
        - (-marks // _MARKS_PER_TOKEN)
    )
