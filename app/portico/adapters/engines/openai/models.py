"""Properties of OpenAI's own models by their names. None of them holds for models of other vendors.

They take `max_completion_tokens`, since the reasoning ones refuse `max_tokens`, which every other server knows. While
they reason they refuse temperature, top_p and stop. Some speak the Responses API only.
"""

import re
from typing import Any, Final

OPENAI_MODELS = re.compile(r"(ft:)?(gpt-(?!oss)|chatgpt-|o\d|codex-|computer-use-)")
REASONING_MODELS = re.compile(r"(ft:)?(o\d|codex-|gpt-5(?!-chat)|gpt-[6-9]|gpt-\d\d)")
REASONING_ON_REQUEST = re.compile(r"(ft:)?gpt-5\.[1-4](-mini|-nano|-\d|$)")
"""Models that reason only on request."""
NO_EFFORT = "none"
SAMPLING: Final = frozenset({"temperature", "top_p", "stop"})
RESPONSES_MODELS = re.compile(r"(^|-)(pro|codex|cyber|rosalind|law|daybreak|deep-research|computer-use)(?![a-z])")


def is_openai_model(model: str) -> bool:
    return OPENAI_MODELS.match(model) is not None


def may_reason(model: str) -> bool:
    """Tell whether a model may reason, and so have reasoning to send back. True for models of other vendors."""
    return REASONING_MODELS.match(model) is not None or not is_openai_model(model)


def without_unsupported_sampling(parameters: dict[str, Any], model: str, effort: object) -> dict[str, Any]:
    """Return the parameters that a model accepts at a reasoning effort; None is its default effort."""
    if supports_sampling(model, effort):
        return parameters
    return {key: value for key, value in parameters.items() if key not in SAMPLING}


def supports_sampling(model: str, effort: object) -> bool:
    """Tell whether a model accepts `SAMPLING` at a reasoning effort; None is its default effort."""
    if REASONING_MODELS.match(model) is None:
        return True
    return effort == NO_EFFORT if effort is not None else REASONING_ON_REQUEST.match(model) is not None


def requires_responses_api(model: str) -> bool:
    """Tell whether a model is one of OpenAI's that speak the Responses API only."""
    family = model.removeprefix("ft:").partition(":")[0]
    return is_openai_model(model) and RESPONSES_MODELS.search(family) is not None
