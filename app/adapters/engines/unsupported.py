"""What a request does not hold of what was asked for, read off the request itself.

A dialect leaves out, or changes, what its API or the model would refuse, each thing in its own place and without saying
so there. What was asked for is looked up in the request that came of it, so that what is named is what is not sent.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, get_args

from app.domain.contract.messages import Message, Role
from app.domain.contract.request import ExecutionHints
from app.domain.model_call import EngineCall

HINT_NAMES: Final = ("max_tokens", "temperature", "top_p", "stop", "seed")
"""The hints that are told by their value."""
DEFAULT_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {name: name for name in (*HINT_NAMES, "tool_choice", "grammar")}
)
"""The words of a dialect that has none of its own."""
ALL_ROLES: Final = frozenset(get_args(Role))


def translated_hints(hints: ExecutionHints, words: Mapping[str, str]) -> dict[str, Any]:
    """Those of `HINTS` that are given, under the words that a dialect has for them; one without a word is not told."""
    if not hints.model_fields_set:
        return {}
    given = ((words[name], getattr(hints, name)) for name in HINT_NAMES if name in words)
    return {word: value for word, value in given if value is not None}


def unsent_options(call: EngineCall, words: Mapping[str, str], *parts: Mapping[str, Any]) -> tuple[str, ...]:
    """What is asked for beside the conversation and stands in none of these parts of a request, by dotted name.

    `words` says what `HINTS`, `tool_choice` and `grammar` are called there; options keep their names. The last two only
    have to be there, and a `tool_choice` only where it demands a call.
    """
    hints = call.hints
    if not hints.model_fields_set and call.grammar is None:
        return ()
    asked = ((name, getattr(hints, name), words.get(name, "")) for name in HINT_NAMES)
    missing = [f"hints.{name}" for name, value, word in asked if value is not None and not _says(parts, word, value)]
    if hints.demands_call and not _mentions(parts, words.get("tool_choice", "")):
        missing.append("hints.tool_choice")
    missing += [f"hints.options.{key}" for key, value in hints.options.items() if not _says(parts, key, value)]
    if call.grammar is not None and not _mentions(parts, words.get("grammar", "")):
        missing.append("output.grammar")
    return tuple(missing)


def unsent_message_parts(messages: Iterable[Message], imageless: Container[str] = ()) -> tuple[str, ...]:
    """What is left out of messages that are told without their author's name, and in these roles without images."""
    named = pictured = False
    for message in messages:
        named = named or bool(message.name and message.role != "tool")
        pictured = pictured or bool(message.role in imageless and message.images)
    return (*(["messages.images"] if pictured else ()), *(["messages.name"] if named else ()))


def _mentions(parts: Sequence[Mapping[str, Any]], word: str) -> bool:
    return any(word in part for part in parts)


def _says(parts: Sequence[Mapping[str, Any]], word: str, asked: Any) -> bool:
    return any(word in part and _holds(part[word], asked) for part in parts)


def _holds(said: Any, asked: Any) -> bool:
    """Whether a value says all that was asked for: an object may say more, a text may be the only one of a list."""
    if isinstance(said, Mapping) and isinstance(asked, Mapping):
        return all(key in said and _holds(said[key], value) for key, value in asked.items())
    return bool(said in (asked, [asked]))
