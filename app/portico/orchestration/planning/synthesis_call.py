"""Synthesis call: asks a model for the final answer, with as much of what was found as it can read.

The input is cut, oldest results first, if the limits of the request leave a share only, or the context window of every
engine is exceeded. What it is cut to follows from the request and from recorded refusals, so a replay cuts it alike.
"""

import json
from typing import Any, Final

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts.answer import AnswerSynthesisInput, FinalAnswerOutput
from portico.domain.failures import Code, InferenceFailure
from portico.domain.journal.header import EffectiveLimits
from portico.orchestration.execution.context import RunContext
from portico.orchestration.planning.synthesis import CUT_MARK, Ask

_BYTES_WITHIN_LIMITS: Final = 8192
"""What is quoted of the results if tokens or cost are limited: what the withheld share has room for."""
_FEWEST_BYTES: Final = 256
_MARGIN: Final = 0.9
_LESS_NEEDED: Final = (
    "execution_passes",
    "convergence_assessment",
    "semantic_validation",
    "task_profile",
    "plan_state",
)
"""The parts that are left out after the results, in this order."""


def synthesis_ask(context: RunContext) -> Ask:
    """Return the function that asks for the final answer in that context."""

    async def ask(prompt_id: PromptId, given: AnswerSynthesisInput) -> FinalAnswerOutput:
        most_bytes = _bytes_within(context.limits)
        given = given if most_bytes is None else cut_to(given, most_bytes)
        while True:
            try:
                return await context.ask(PromptCall(prompt_id, given, FinalAnswerOutput))
            except InferenceFailure as failure:
                most_bytes = _bytes_that_fit(given, failure)
                if most_bytes < _FEWEST_BYTES:
                    raise
            given = cut_to(given, most_bytes)

    return ask


def cut_to(given: AnswerSynthesisInput, most_bytes: int) -> AnswerSynthesisInput:
    """Return the input with its parts cut to so many bytes: the oldest results first, then what is needed less."""
    excess = _size_of_parts(given) - most_bytes
    if excess <= 0:
        return given
    results: dict[str, Any] = dict(given.execution_results or {})
    for name, value in results.items():
        if excess > 0:
            results[name] = _cut(value, excess)
            excess -= _size(value) - _size(results[name])
    changed: dict[str, Any] = {"execution_results": results} if results else {}
    for name in _LESS_NEEDED:
        if excess > 0 and getattr(given, name) is not None:
            changed[name] = None
            excess -= _size(getattr(given, name))
    return given.model_copy(update=changed)


def _cut(value: object, excess: int) -> object:
    """Return the value with so many bytes less: a list without its first items, all else as its text, marked."""
    if isinstance(value, list):
        kept = list(value)
        while kept and excess > 0:
            excess -= _size(kept.pop(0)) + 2
        return [CUT_MARK, *kept]
    text = value if isinstance(value, str) else _json(value)
    left = len(text.encode()) - excess - _size(CUT_MARK)
    return text.encode()[: max(0, left)].decode(errors="ignore") + CUT_MARK


def _bytes_within(limits: EffectiveLimits) -> int | None:
    """Return the size of the parts that limits of tokens or cost leave room for; None without such limits."""
    if limits.tokens is None and limits.cost is None:
        return None
    return _BYTES_WITHIN_LIMITS if limits.tokens is None else min(_BYTES_WITHIN_LIMITS, limits.tokens)


def _bytes_that_fit(given: AnswerSynthesisInput, failure: InferenceFailure) -> int:
    """Return the size of the parts that fits the context window by which the input was refused; 0 for other failures.

    The size shrinks with every refusal, because the rest of the prompt takes a part of the window.
    """
    if failure.code is not Code.INFERENCE_CONTEXT_EXCEEDED or "limit" not in failure.details:
        return 0
    return int(_size_of_parts(given) * failure.details["limit"] / failure.details["used"] * _MARGIN)


def _size_of_parts(given: AnswerSynthesisInput) -> int:
    return sum(_size(getattr(given, name)) for name in ("execution_results", *_LESS_NEEDED))


def _size(value: object) -> int:
    return len(_json(value).encode(errors="replace"))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
