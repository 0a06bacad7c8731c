"""What is peculiar to OpenAI's own models, told by their names; nothing here holds for anybody else's.

They are asked for `max_completion_tokens`, since the reasoning ones refuse `max_tokens`, which is what every other
server knows. While they reason they refuse sampling: temperature, top_p and stop. Some speak the Responses API alone.
"""

import re
from typing import Any, Final

from app.ports.model import EngineCapabilities

CAPABILITIES: Final = EngineCapabilities(schema=True, schema_with_tools=True, embeddings=True)
OWN = re.compile(r"(ft:)?(gpt-(?!oss)|chatgpt-|o\d|codex-|computer-use-)")
REASONING = re.compile(r"(ft:)?(o\d|codex-|gpt-5(?!-chat)|gpt-[6-9]|gpt-\d\d)")
RESTING = re.compile(r"(ft:)?gpt-5\.[1-4](-mini|-nano|-\d|$)")
"""Those that reason only when they are told to."""
NO_EFFORT = "none"
SAMPLING: Final = frozenset({"temperature", "top_p", "stop"})
ONLY_RESPONSES = re.compile(r"(^|-)(pro|codex|cyber|rosalind|law|daybreak|deep-research|computer-use)(?![a-z])")


def is_openai_model(model: str) -> bool:
    return OWN.match(model) is not None


def may_reason(model: str) -> bool:
    """Whether it can, and so may have thoughts to keep. Of models that are not OpenAI's nobody knows: yes."""
    return REASONING.match(model) is not None or not is_openai_model(model)


def without_unsupported_sampling(asked: dict[str, Any], model: str, effort: object) -> dict[str, Any]:
    """The members of a request that it takes when asked to reason with that effort; None is its default."""
    if supports_sampling(model, effort):
        return asked
    return {key: value for key, value in asked.items() if key not in SAMPLING}


def supports_sampling(model: str, effort: object) -> bool:
    """Whether it takes `SAMPLING` when asked to reason with that effort; None is its default."""
    if REASONING.match(model) is None:
        return True
    return effort == NO_EFFORT if effort is not None else RESTING.match(model) is not None


def requires_responses_api(model: str) -> bool:
    """Whether it is one of OpenAI's models that only speak the Responses API."""
    family = model.removeprefix("ft:").partition(":")[0]
    return is_openai_model(model) and ONLY_RESPONSES.search(family) is not None
