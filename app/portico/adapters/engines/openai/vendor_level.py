"""The level of reasoning in the forms of the vendors of OpenAI's APIs."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from portico.adapters.engines.levels import OPENAI_EFFORTS, SWITCHES, LevelRow, SentLevel, find_level
from portico.adapters.engines.openai.vendors import ReasoningForm
from portico.domain.contract.request import ExecutionHints
from portico.domain.value import value
from portico.ports.model import EngineProfile


@value
class _Form:
    """The place of a parameter in a request, what it is for each level, and the words of a switch."""

    path: tuple[str, ...]
    levels: Sequence[LevelRow] = OPENAI_EFFORTS
    switch: tuple[Any, Any] = (False, True)


_FORMS: Final[Mapping[ReasoningForm, _Form]] = MappingProxyType(
    {
        ReasoningForm.EFFORT: _Form(("reasoning_effort",)),
        ReasoningForm.NESTED_EFFORT: _Form(("reasoning", "effort")),
        ReasoningForm.THINKING_TYPE: _Form(("thinking", "type"), SWITCHES, ("disabled", "enabled")),
        ReasoningForm.ENABLE_THINKING: _Form(("chat_template_kwargs", "enable_thinking"), SWITCHES),
    }
)


def put_level(body: dict[str, Any], hints: ExecutionHints, profile: EngineProfile, form: ReasoningForm) -> bool:
    """Put the level of reasoning into a body that has the options, and return True if it has exactly that level.

    An option for the same parameter is kept.
    """
    if hints.reasoning is None:
        return True
    parameter = _FORMS[form]
    level = find_level(hints.reasoning, parameter.levels, profile.known_as or profile.model)
    if level is None:
        return False
    sent = _in_words(level, parameter)
    *parents, name = parameter.path
    members = body
    for parent in parents:
        option = body.get(parent, {})
        if not isinstance(option, dict):
            return False
        members = body[parent] = dict(option)
    members.setdefault(name, sent)
    return level.is_exact and bool(members[name] == sent)


def _in_words(level: SentLevel, parameter: _Form) -> Any:
    return parameter.switch[level.value] if isinstance(level.value, bool) else level.value
