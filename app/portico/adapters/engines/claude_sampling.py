"""Sampling parameters that models of Claude refuse, at every API that has them."""

import re
from typing import Final

from portico.domain.contract.request import ExecutionHints

MODELS_WITHOUT_SAMPLING: Final = re.compile(r"claude-(opus-4-[7-9]|[a-z]+-[5-9])")
"""Models that refuse temperature and top_p."""
MODELS_WITH_ONE_SAMPLING: Final = re.compile(r"claude-(opus-4-1|[a-z]+-4-[56])")
"""Models that refuse both at once."""
MIN_THINKING_TOP_P: Final = 0.95


def refuses_temperature(model: str, *, thinks: bool) -> bool:
    """Tell whether the model takes no temperature here."""
    return thinks or MODELS_WITHOUT_SAMPLING.search(model) is not None


def refuses_top_p(hints: ExecutionHints, model: str, *, thinks: bool) -> bool:
    """Tell whether the model does not take the `top_p` of the hints here."""
    if MODELS_WITHOUT_SAMPLING.search(model):
        return True
    if thinks:
        return hints.top_p is not None and hints.top_p < MIN_THINKING_TOP_P
    return hints.temperature is not None and MODELS_WITH_ONE_SAMPLING.search(model) is not None
