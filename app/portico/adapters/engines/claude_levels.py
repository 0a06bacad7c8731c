"""Thinking of Claude, for every API that has it: the parameters for a level of reasoning.

Newer models decide themselves how long to think and take an effort; older ones take a budget, which counts among the
tokens that a model may write. A name that is not known is that of a newer model.
"""

import re
from typing import Any, Final, NamedTuple

from portico.adapters.engines.levels import CLAUDE_BUDGETS, CLAUDE_EFFORTS, find_level
from portico.domain.model_call import EngineCall

LEAST_BUDGET: Final = 1024
MODELS_WITH_SHORT_REPLIES: Final = re.compile(r"claude-opus-4(?!\d)(?!-[2-9](?!\d))")
SHORT_REPLY_TOKENS: Final = 32_000
REPLY_TOKENS: Final = 64_000
"""Tokens that a model with a budget may write at most, thoughts included."""
DISABLED: Final = "disabled"


class ClaudeThinking(NamedTuple):
    """The parameter `thinking`, the effort beside it, and whether it is exactly the requested level."""

    thinking: dict[str, Any]
    effort: str | None
    is_exact: bool

    @property
    def budget(self) -> int:
        """The tokens of the budget; 0 without one."""
        budget = self.thinking.get("budget_tokens")
        return budget if isinstance(budget, int) else 0


def claude_thinking(call: EngineCall, model: str, max_tokens: int) -> ClaudeThinking | None:
    """Return the parameters for the level of a call whose answer has up to `max_tokens`; None if there are none.

    A budget is cut to what the model may write beside the answer. In a call that is limited it is part of these tokens.
    """
    wanted = call.hints.reasoning
    if wanted is None:
        return None
    level = find_level(wanted, CLAUDE_BUDGETS, model)
    if level is None:
        effort = find_level(wanted, CLAUDE_EFFORTS, model)
        assert effort is not None  # noqa: S101 - every model is in this table and has the level low
        if effort.value == "none":
            return ClaudeThinking({"type": DISABLED}, None, effort.is_exact)
        return ClaudeThinking({"type": "adaptive"}, str(effort.value), effort.is_exact)
    if level.value == 0:
        return ClaudeThinking({"type": DISABLED}, None, level.is_exact)
    most = SHORT_REPLY_TOKENS if MODELS_WITH_SHORT_REPLIES.search(model) else REPLY_TOKENS
    budget = min(int(level.value), max_tokens // 2 if call.is_limited else most - max_tokens)
    if budget < LEAST_BUDGET:
        return None
    return ClaudeThinking({"type": "enabled", "budget_tokens": budget}, None, budget == level.value)
