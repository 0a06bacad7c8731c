"""The parts of a call that a request does not contain, found by looking them up in the request.

A dialect leaves out, or changes, what its API or the model would refuse, each part in its own place. Each part of the
call is then looked up in the finished request, so that exactly the parts that are missing are named.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, get_args

from portico.domain.contract.messages import Message, Role
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall

HINT_NAMES: Final = ("max_tokens", "temperature", "top_p", "stop", "seed")
"""The hints that are sent as values."""
DEFAULT_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {name: name for name in (*HINT_NAMES, "tool_choice", "grammar")}
)
"""The parameter names of a dialect that has none of its own."""
ALL_ROLES: Final = frozenset(get_args(Role))


def translated_hints(hints: ExecutionHints, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the given `HINT_NAMES` under the dialect's parameter names; a hint without one is left out."""
    if not hints.model_fields_set:
        return {}
    given = ((names[name], getattr(hints, name)) for name in HINT_NAMES if name in names)
    return {word: value for word, value in given if value is not None}


def unsent_options(call: EngineCall, names: Mapping[str, str], *parts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted names of the options that none of these parts of a request contains.

    `names` gives the dialect's names of `HINT_NAMES`, `tool_choice` and `grammar`; `hints.options` keep theirs. The
    last two only have to be present, and a `tool_choice` only where it demands a call.
    """
    hints = call.hints
    if not hints.model_fields_set and call.grammar is None:
        return ()
    asked = ((name, getattr(hints, name), names.get(name, "")) for name in HINT_NAMES)
    missing = [
        f"hints.{name}" for name, value, word in asked if value is not None and not _contains(parts, word, value)
    ]
    if hints.demands_call and not _has_parameter(parts, names.get("tool_choice", "")):
        missing.append("hints.tool_choice")
    missing += [f"hints.options.{key}" for key, value in hints.options.items() if not _contains(parts, key, value)]
    if call.grammar is not None and not _has_parameter(parts, names.get("grammar", "")):
        missing.append("output.grammar")
    return tuple(missing)


def unsent_message_parts(messages: Iterable[Message], imageless: Container[str] = ()) -> tuple[str, ...]:
    """Return the parts of messages that are left out: authors' names, and images in these roles."""
    named = pictured = False
    for message in messages:
        named = named or bool(message.name and message.role != "tool")
        pictured = pictured or bool(message.role in imageless and message.images)
    return (*(["messages.images"] if pictured else ()), *(["messages.name"] if named else ()))


def _has_parameter(parts: Sequence[Mapping[str, Any]], word: str) -> bool:
    return any(word in part for part in parts)


def _contains(parts: Sequence[Mapping[str, Any]], word: str, asked: Any) -> bool:
    return any(word in part and _includes(part[word], asked) for part in parts)


def _includes(said: Any, asked: Any) -> bool:
    """Tell whether a value includes the requested one: an object may have more members, a list just that text."""
    if isinstance(said, Mapping) and isinstance(asked, Mapping):
        return all(key in said and _includes(said[key], value) for key, value in asked.items())
    return bool(said in (asked, [asked]))
