"""The budget of the context window, and what is cut when tool rounds outgrow it.

    system + history + skills + memory + message + tool definitions ≤ context window − response reserve

Exactly the limit fits. PREPARE checks it for the request, the execution again before every inference.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from app.domain.contract.messages import Message
from app.domain.failures import Code, InferenceFailure
from app.domain.model_call import EngineCall
from app.domain.tools import ToolDefinition
from app.ports.model import Engine, TokenCounter

CUT_MARK = "[cut: this tool result was dropped to fit the context window]"


@dataclass(frozen=True, slots=True)
class ContextParts:
    """The left side of the equation, in tokens."""

    system: int
    history: int
    message: int
    tools: int
    skills: int = 0
    memory: int = 0

    @property
    def used(self) -> int:
        """Return the sum of all parts."""
        return self.system + self.history + self.message + self.tools + self.skills + self.memory


def capacity(engine: Engine) -> int:
    """Return the right side of the equation for that engine, in tokens; never below 0."""
    return max(0, engine.profile.context_window - engine.profile.response_reserve)


def count_tokens(call: EngineCall, counter: TokenCounter) -> int:
    """Return the tokens of the call that an engine reads."""
    return counter.messages(call.messages) + counter.tools(call.tools)


def context_exceeded(parts: ContextParts, limit: int) -> InferenceFailure:
    """Return the failure that shows both sides of the equation."""
    return InferenceFailure(
        Code.INFERENCE_CONTEXT_EXCEEDED,
        f"the context needs {parts.used} tokens and {limit} fit",
        {"used": parts.used, "limit": limit, **asdict(parts)},
    )


def measure(messages: Sequence[Message], tools: Sequence[ToolDefinition], counter: TokenCounter) -> ContextParts:
    """Return the parts of a conversation with these tools: system messages, history, the last message and tools."""
    system = [message for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    return ContextParts(
        system=counter.messages(system),
        history=counter.messages(others[:-1]),
        message=counter.messages(others[-1:]),
        tools=counter.tools(tools),
    )


def results_to_cut(
    conversation: Sequence[Message], *, turn_starts: int, over: int, counter: TokenCounter
) -> tuple[int, ...]:
    """Return the indexes of the oldest tool results of this turn that save `over` tokens; all of them if too few do."""
    cut: list[int] = []
    for index in range(turn_starts, len(conversation)):
        if over <= 0:
            break
        message = conversation[index]
        if message.role == "tool" and message.content != CUT_MARK:
            cut.append(index)
            over -= counter.messages([message]) - counter.messages([_without_result(message)])
    return tuple(cut)


def with_results_cut(conversation: Sequence[Message], cut: Sequence[int]) -> list[Message]:
    """Return the conversation with the mark in place of the results at those indexes."""
    return [_without_result(message) if index in cut else message for index, message in enumerate(conversation)]


def _without_result(message: Message) -> Message:
    return message.model_copy(update={"content": CUT_MARK})
