"""Command templates: the argument list of a program, with places for the arguments of a call.

A place is `{name}`, where `name` is a property of the tool's parameters; `{caller.FIELD}` and `{metadata.NAME}` stand
for facts of the caller; `{{name}}` is the text `{name}`. No shell is involved: a value is always part of one argument.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from portico.adapters.tools.caller_values import CALLER_PLACE, caller_value, check_place
from portico.capabilities.tools.definition import ToolArgumentError
from portico.domain.tools import Caller
from portico.ports.tool import ToolError

_NAME: Final = rf"{CALLER_PLACE}|[A-Za-z_][A-Za-z0-9_]*"
_PLACE: Final = re.compile(rf"(?<!\{{)\{{({_NAME})\}}(?!\}})")
_ESCAPED: Final = re.compile(rf"\{{(\{{(?:{_NAME})\}})\}}")
_END_OF_OPTIONS: Final = "--"


class _Word(NamedTuple):
    """One word of the template: texts and names of properties in turn, beginning and ending with a text."""

    parts: tuple[str, ...]
    precedes_operands: bool

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[1::2]

    @property
    def is_whole_place(self) -> bool:
        return len(self.parts) == 3 and not self.parts[0] and not self.parts[2]


class CommandTemplate:
    """The words of a command after the program.

    Raises: ValueError for a place in the program's position, for a place that is no property and no fact of a caller,
    and for a property that cannot be an argument: an object, or an array beside other text.
    """

    def __init__(self, command: Sequence[str], parameters: Mapping[str, Any]) -> None:
        self.program = command[0]
        if _PLACE.search(self.program):
            raise ValueError("the program itself must not be a place for an argument")
        ends = command.index(_END_OF_OPTIONS) if _END_OF_OPTIONS in command else len(command)
        self._words = [
            _Word(tuple(_PLACE.split(word)), position < ends) for position, word in enumerate(command) if position > 0
        ]
        properties = parameters.get("properties", {})
        for word in self._words:
            for name in word.names:
                if "." in name:
                    check_place(name)
                else:
                    _check_property(name, properties, word)

    def fill(self, arguments: Mapping[str, Any], caller: Caller | None = None) -> list[str]:
        """Return the words for a call; a word whose argument is absent is left out.

        Raises: ToolArgumentError for a value that a program cannot take, or would take for an option; ToolError for
        such a fact of the caller, and for an absent one.
        """
        return [filled for word in self._words for filled in _fill(word, arguments, caller)]


def _check_property(name: str, properties: Mapping[str, Any], word: _Word) -> None:
    schema = properties.get(name)
    if schema is None:
        raise ValueError(f"{{{name}}} is no property of the parameters")
    types = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = {types} if isinstance(types, str) else set(types or ())
    if "object" in kinds:
        raise ValueError(f"{{{name}}} is an object, which cannot be an argument")
    if "array" in kinds and not word.is_whole_place:
        raise ValueError(f"{{{name}}} is an array, which must be a word of its own")


def _fill(word: _Word, arguments: Mapping[str, Any], caller: Caller | None) -> list[str]:
    if any("." not in name and arguments.get(name) is None for name in word.names):
        return []
    facts = {name: _fact(name, caller) for name in word.names if "." in name}
    if word.is_whole_place and facts:
        [(name, fact)] = facts.items()
        if word.precedes_operands and fact.startswith("-"):
            raise ToolError(f"{name} is needed in the command, and must not begin with -")
        return [fact]
    if word.is_whole_place:
        name = word.names[0]
        value = arguments[name]
        texts = [_text(name, each) for each in value] if isinstance(value, list) else [_text(name, value)]
        if word.precedes_operands and any(text.startswith("-") for text in texts):
            raise ToolArgumentError(((f"arguments.{name}", "must not begin with -"),))
        return texts
    texts = [
        part if place % 2 == 0 else facts[part] if part in facts else _text(part, arguments[part])
        for place, part in enumerate(word.parts)
    ]
    return ["".join(_ESCAPED.sub(r"\1", text) if place % 2 == 0 else text for place, text in enumerate(texts))]


def _fact(name: str, caller: Caller | None) -> str:
    value = caller_value(name, caller)
    if not value or "\0" in value:
        raise ToolError(f"{name} is needed in the command, and must not be absent, empty or contain NUL")
    return value


def _text(name: str, value: Any) -> str:
    if isinstance(value, dict | list):
        raise ToolArgumentError(((f"arguments.{name}", "must be a text, a number or a truth value"),))
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    if "\0" in text:
        raise ToolArgumentError(((f"arguments.{name}", "must not contain NUL"),))
    return text
