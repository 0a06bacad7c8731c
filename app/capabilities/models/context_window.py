"""The budget of the context window, the estimate of tokens, and what is cut when tool rounds outgrow the budget.

    system + history + skills + memory + message + tool definitions ≤ context window − response reserve

Exactly the limit fits. PREPARE checks it for the request, the execution again before every inference.
"""

import string
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache

import orjson

from app.domain.context.report import ContextTerms
from app.domain.contract.messages import ImagePart, Message, Origin, origin_of
from app.domain.failures import Code, InferenceFailure
from app.domain.model_call import EngineCall
from app.domain.tools import ToolDefinition
from app.ports.model import Engine, TokenCounter

CUT_MARK = "[cut: this tool result was dropped to fit the context window]"
_PER_MESSAGE = 4
_PER_TOOL = 8
_PER_IMAGE = 768
_WORD_CHARACTERS_PER_TOKEN = 4
_DIGITS_PER_TOKEN = 2
_MARKS_PER_TOKEN = 2
_DIGITS = string.digits.encode()
_MARKS = string.punctuation.encode()


class EstimatingTokenCounter:
    """Token counter by estimate: letters and spaces by four, digits and marks by two, characters outside ASCII by one.

    Fractions are rounded up, so a text that is not empty has at least one token.
    """

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return _text(text)

    def message(self, message: Message) -> int:
        """Return the tokens of a whole message, with its role, calls and images."""
        if isinstance(message.content, str):
            tokens = _PER_MESSAGE + _text(message.content)
        else:
            tokens = _PER_MESSAGE + _text(message.text)
            tokens += _PER_IMAGE * sum(isinstance(part, ImagePart) for part in message.content)
        for call in message.tool_calls or ():
            tokens += _PER_TOOL + _text(f"{call.name}{orjson.dumps(call.arguments).decode()}")
        return tokens

    def tools(self, tools: Sequence[ToolDefinition]) -> int:
        """Return the tokens of tool definitions as a provider is sent them."""
        return sum(map(_definition, tools))


def capacity(engine: Engine) -> int:
    """Return the right side of the equation for that engine, in tokens; never below 0."""
    return max(0, engine.profile.context_window - engine.profile.response_reserve)


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
    messages: Sequence[Message], tools: Sequence[ToolDefinition], counter: TokenCounter, limit: int = 0
) -> ContextTerms:
    """Return the terms of a conversation with these tools, and the limit.

    Skills and retrieved context are known by their origin. The last message that is none of these and no system
    message is the `message`, all before it is history.
    """
    system = skills = memory = history = last = 0
    for message in messages:
        tokens = counter.message(message)
        if message.role == "system":
            if origin_of(message) is Origin.SKILL:
                skills += tokens
            else:
                system += tokens
        elif message.role == "user" and origin_of(message) is Origin.RETRIEVED:
            memory += tokens
        else:
            history, last = history + last, tokens
    return ContextTerms(system, history, last, counter.tools(tools), skills, memory, limit)


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


@lru_cache(maxsize=1024)
def _definition(tool: ToolDefinition) -> int:
    return _PER_TOOL + _text(f"{tool.name}{tool.description}{orjson.dumps(tool.parameters).decode()}")


def _text(text: str) -> int:
    ascii_text = text.encode("ascii", "ignore")
    words = ascii_text.translate(None, _DIGITS)
    letters = len(words.translate(None, _MARKS))
    foreign, digits, marks = len(text) - len(ascii_text), len(ascii_text) - len(words), len(words) - letters
    return (
        foreign
        - (-letters // _WORD_CHARACTERS_PER_TOKEN)
        - (-digits // _DIGITS_PER_TOKEN)
        - (-marks // _MARKS_PER_TOKEN)
    )
