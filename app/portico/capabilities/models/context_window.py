"""The budget of the context window, and what is cut when tool rounds outgrow it.

    system + history + skills + memory + message + tool definitions ≤ context window − response reserve

Both sides may be equal. PREPARE checks the budget for the request, and the execution again before every inference.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from math import ceil

from portico.domain.context.report import ContextTerms
from portico.domain.contract.messages import Message, Origin, origin_of
from portico.domain.failures import Code, InferenceFailure
from portico.domain.ids import TenantId
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.domain.value import value
from portico.ports.model import ConfiguredEngine, TokenCounter, TokenEstimator

CUT_MARK = "[cut: this tool result was dropped to fit the context window]"


def capacity(engine: ConfiguredEngine) -> int:
    """Return the right side of the equation for that engine, in tokens; never below 0."""
    return max(0, engine.profile.context_window - engine.profile.response_reserve)


@value
class Window:
    """The right side of the equation, in tokens of the model that `counter` counts for."""

    limit: int
    counter: TokenCounter


class RememberingCounter:
    """Token counter that counts a message once: the same history is reckoned with by several stages."""

    def __init__(self, counter: TokenCounter) -> None:
        self.ratio = counter.ratio
        self.text = counter.text
        self.tools = counter.tools
        self._message = counter.message
        self._counted: dict[int, tuple[Message, int]] = {}

    def message(self, message: Message) -> int:
        """Return the tokens of a whole message."""
        counted = self._counted.get(id(message))
        if counted is None:
            counted = self._counted[id(message)] = message, self._message(message)
        return counted[1]


def largest_window(engines: Iterable[ConfiguredEngine], tenant: TenantId, estimator: TokenEstimator) -> Window:
    """Return the window of the engine that holds the most text of the tenant."""
    windows = [Window(capacity(each), estimator.counter(tenant, each.profile.model)) for each in engines]
    return max(windows, key=lambda window: window.limit / window.counter.ratio)


def count_tokens(call: EngineCall, counter: TokenCounter) -> int:
    """Return the tokens of the call that an engine reads."""
    return sum(map(counter.message, call.messages)) + counter.tools(call.tools)


def context_exceeded(terms: ContextTerms) -> InferenceFailure:
    """Return the failure that shows both sides of the equation with every term."""
    return InferenceFailure(
        Code.INFERENCE_CONTEXT_EXCEEDED,
        f"the context needs {terms.used} tokens and {terms.limit} fit",
        {"used": terms.used, **asdict(terms)},
    )


def measure(
    messages: Sequence[Message],
    tools: Sequence[ToolDefinition],
    counter: TokenCounter,
    limit: int = 0,
    sizes: Sequence[int] | None = None,
) -> ContextTerms:
    """Return the terms of a conversation with these tools, and the limit.

    `sizes` are the tokens of the messages without correction, if they are known. Skills and retrieved context are known
    by their origin. The last message that is none of these and no system message is the `message`, all before it is
    history.
    """
    system = skills = memory = history = last = 0
    counted = map(counter.message, messages) if sizes is None else [ceil(size * counter.ratio) for size in sizes]
    for message, tokens in zip(messages, counted, strict=True):
        if message.role == "system":
            if origin_of(message) is Origin.SKILL:
                skills += tokens
            else:
                system += tokens
        elif type(message) is not Message and message.role == "user" and origin_of(message) is Origin.RETRIEVED:
            memory += tokens
        else:
            history, last = history + last, tokens
    return ContextTerms(system, history, last, counter.tools(tools) if tools else 0, skills, memory, limit)


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
            over -= counter.message(message) - counter.message(_without_result(message))
    return tuple(cut)


def with_results_cut(conversation: Sequence[Message], cut: Sequence[int]) -> list[Message]:
    """Return the conversation with the mark in place of the results at those indexes."""
    return [_without_result(message) if index in cut else message for index, message in enumerate(conversation)]


def _without_result(message: Message) -> Message:
    return message.model_copy(update={"content": CUT_MARK})
