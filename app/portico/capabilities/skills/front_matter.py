"""Front matter: the beginning of a skill's file, between two lines of three dashes, and the skill that it describes.

It is YAML without anchors, aliases, tags, directives and documents, so nothing in it can grow or construct anything.
Every scalar is a text, which the key then gives its type: a trigger `no` is a word and a name `1.0` is a name.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from portico.domain.context.skill import Skill, SkillError
from portico.domain.tools import tool_of

MAX_FRONT_MATTER_BYTES: Final = 8 * 1024
MAX_TRIGGERS: Final = 64
MAX_TRIGGER_CHARACTERS: Final = 256
MAX_REFERENCES: Final = 64
"""Tools and skills that a skill may require."""
MAX_DESCRIPTION_CHARACTERS: Final = 1024
MAX_TOKENS: Final = 1_000_000
_MAX_DEPTH: Final = 8
_FENCE: Final = "---"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TOOL: Final = re.compile(r"agent:[A-Za-z0-9_-]{1,57}|[A-Za-z0-9_-]{1,64}")
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
_WITHOUT_EFFECT: Final = frozenset({"license", "compatibility", "metadata", "allowed-tools"})
"""Keys of the open Agent Skills layout that are accepted and mean nothing here."""

_Value: TypeAlias = "str | list[_Value] | dict[str, _Value]"


def read_skill(content: str, default_name: str) -> Skill:
    """Return the skill of a file; it has the default name unless it gives itself another.

    Raises: SkillError that says what is wrong with the file.
    """
    header, text = _split(content)
    fields = _parse(header)
    unknown = sorted(fields.keys() - _FIELDS.keys() - _WITHOUT_EFFECT - {"name", "description"})
    if unknown:
        raise SkillError(f"{unknown[0][:64]!a} is no key of a skill")
    name = _text_of("name", fields.get("name", default_name))
    if not _NAME.fullmatch(name):
        raise SkillError("name must have 1 to 64 letters, digits, dots, dashes and underscores")
    description = _text_of("description", fields.get("description", ""))
    if not 0 < len(description) <= MAX_DESCRIPTION_CHARACTERS:
        raise SkillError(f"description must have 1 to {MAX_DESCRIPTION_CHARACTERS} characters")
    if not text:
        raise SkillError("has no text behind its front matter")
    given = {key: read(key, fields[key]) for key, read in _FIELDS.items() if key in fields}
    if name in given.get("requires", ()):
        raise SkillError("must not require itself")
    return Skill(name=name, description=description, text=text, **given)


def _split(content: str) -> tuple[str, str]:
    """Return the front matter and the text behind it."""
    lines = content.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE:
        raise SkillError(f"must begin with front matter, whose first line is {_FENCE}")
    size = 0
    for index, line in enumerate(lines[1:], 1):
        if line.rstrip() == _FENCE:
            return "\n".join(lines[1:index]), "\n".join(lines[index + 1 :]).strip()
        size += len(line.encode("utf-8", "surrogatepass")) + 1
        if size > MAX_FRONT_MATTER_BYTES:
            raise SkillError(f"has front matter of more than {MAX_FRONT_MATTER_BYTES} bytes")
    raise SkillError(f"has front matter without an end, which is a line {_FENCE}")


def _parse(header: str) -> Mapping[str, Any]:
    """Return the front matter's mapping."""
    yaml = import_module("yaml")
    try:
        value = _composed(yaml.parse(header, yaml.BaseLoader))
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        raise SkillError("has front matter that is no YAML" + (f", line {mark.line + 2}" if mark else "")) from None
    if not isinstance(value, dict):
        raise SkillError("must have front matter of keys and values")
    return value


def _composed(events: Any) -> "_Value | None":
    """Return the one value of the parser's events, without recursion, so that no nesting exhausts the stack."""
    root: list[_Value] = []
    open_values: list[_Open] = []
    documents = 0
    for event in events:
        kind = type(event).__name__
        if kind == "AliasEvent" or getattr(event, "anchor", None) is not None:
            raise SkillError("must not have anchors and aliases in its front matter")
        if getattr(event, "tag", None) is not None or getattr(event, "version", None) or getattr(event, "tags", None):
            raise SkillError("must not have tags and directives in its front matter")
        if kind == "DocumentStartEvent":
            documents += 1
            if documents > 1:
                raise SkillError("must have one document of front matter")
        elif kind in {"MappingStartEvent", "SequenceStartEvent"}:
            if len(open_values) == _MAX_DEPTH:
                raise SkillError(f"has front matter that is nested more than {_MAX_DEPTH} deep")
            open_values.append(_Open({} if kind == "MappingStartEvent" else []))
        elif kind == "ScalarEvent":
            _add(open_values, root, event.value)
        elif kind in {"MappingEndEvent", "SequenceEndEvent"}:
            _add(open_values, root, open_values.pop().value)
    return root[0] if root else None


class _Open:
    """A mapping or sequence that has not ended; `key` is that of the value which comes next in a mapping."""

    def __init__(self, value: "dict[str, _Value] | list[_Value]") -> None:
        self.value = value
        self.key: str | None = None


def _add(open_values: list[_Open], root: list[_Value], value: _Value) -> None:
    """Add a whole value to the one that it stands in."""
    if not open_values:
        root.append(value)
        return
    into = open_values[-1]
    if isinstance(into.value, list):
        into.value.append(value)
    elif into.key is not None:
        into.value[into.key], into.key = value, None
    elif not isinstance(value, str):
        raise SkillError("must have texts as keys of its front matter")
    elif value in into.value:
        raise SkillError(f"has the key {value[:64]!a} twice in its front matter")
    else:
        into.key = value


def _text_of(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise SkillError(f"{key} must be a text")
    return value.strip()


def _triggers(key: str, value: object) -> tuple[str, ...]:
    triggers = _texts(key, value, MAX_TRIGGERS)
    for trigger in triggers:
        if len(trigger) > MAX_TRIGGER_CHARACTERS:
            raise SkillError(f"{key} must have at most {MAX_TRIGGER_CHARACTERS} characters each")
    return triggers


def _names(key: str, value: object) -> tuple[str, ...]:
    names, pattern = _texts(key, value, MAX_REFERENCES), _TOOL if key == "tools" else _NAME
    for name in names:
        if not pattern.fullmatch(name):
            raise SkillError(f"{key} must be names, and {name[:64]!a} is none")
    return tuple(map(tool_of, names)) if key == "tools" else names


def _texts(key: str, value: object, most: int) -> tuple[str, ...]:
    """Return the texts of a list without repetitions; a single text is a list of one."""
    items: Sequence[object] = value if isinstance(value, list) else [value] if value else []
    if len(items) > most:
        raise SkillError(f"{key} must be at most {most}")
    texts = [each.strip() for each in items if isinstance(each, str)]
    if len(texts) < len(items) or not all(texts):
        raise SkillError(f"{key} must be a list of texts")
    return tuple(dict.fromkeys(texts))


def _value(key: str, value: object) -> float:
    number = float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else -1.0
    if number < 0 or not isfinite(number):
        raise SkillError(f"{key} must be a number of at least 0")
    return number


def _tokens(key: str, value: object) -> int:
    if not (isinstance(value, str) and value.isascii() and value.isdigit() and int(value[:9]) <= MAX_TOKENS):
        raise SkillError(f"{key} must be a whole number of at most {MAX_TOKENS}")
    return int(value)


def _truth(key: str, value: object) -> bool:
    if value not in {"true", "false"}:
        raise SkillError(f"{key} must be true or false")
    return value == "true"


_FIELDS: Final[Mapping[str, Callable[[str, object], Any]]] = MappingProxyType(
    {
        "triggers": _triggers,
        "value": _value,
        "requires": _names,
        "tools": _names,
        "tokens": _tokens,
        "always": _truth,
    }
)
