"""Compaction: the turns of a session that are summed up, and the message in which a model reads the summary.

Turns are summed up once 8 of them have been cut that no summary covers. The new summary covers the earlier one, too,
and is made from redacted turns in every case, so that every reader may read it whole.
"""

from collections.abc import Sequence
from typing import Final

from portico.capabilities.context.redaction import Redactor
from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompts.summary import EarlierTurnsInput
from portico.capabilities.prompting.registry import PromptRegistry
from portico.domain.context.summary import SessionSummary
from portico.domain.contract.messages import Message, Origin, TracedMessage
from portico.ports.model import TokenCounter

MIN_TURNS: Final = 8
"""Turns that are cut and not covered before they are summed up."""
MAX_MESSAGES: Final = 400
"""Most messages that are summed up at a time; those that remain are summed up with the next ones."""
SUMMARY_SHARE: Final = 0.1
"""Largest share of the history's tokens that a summary takes."""
_MAX_CHARACTERS: Final = 2_000
"""Most characters of one message that are summed up."""
_SHRINK: Final = 0.9


def whole_turns(messages: Sequence[Message], tokens: int, counter: TokenCounter) -> Sequence[Message]:
    """Return the first turns that make at most so many tokens; none if they are fewer than `MIN_TURNS`.

    The messages end where a turn ends. Each counts as far as it is summed up.
    """
    starts = [
        index
        for index, message in enumerate(messages)
        if message.role == "user" and (index == 0 or messages[index - 1].role != "user")
    ]
    ends, used, end = {*starts[1:], len(messages)}, 0, 0
    for index, message in enumerate(messages, 1):
        used += counter.text(_line(message))
        if used > tokens:
            break
        end = index if index in ends else end
    return messages[:end] if sum(start < end for start in starts) >= MIN_TURNS else ()


def lines_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the messages as texts with their roles, redacted."""
    return tuple(map(_line, Redactor().messages([message for message in messages if message.role != "system"])))


def summary_message(summary: SessionSummary, prompts: PromptRegistry, mark: str) -> TracedMessage:
    """Return the fenced message with the summary."""
    text = prompts.get_prompt(PromptId.EARLIER_TURNS_USER, EarlierTurnsInput(summary=summary.text), mark)
    origin = Origin.UNTRUSTED_SUMMARY if summary.is_untrusted else Origin.SUMMARY
    return TracedMessage(role="user", content=text, origin=origin)


def shortened(text: str, tokens: int, counter: TokenCounter) -> str:
    """Return the beginning of the text that has at most so many tokens."""
    while text and counter.text(text) > tokens:
        text = text[: min(len(text) - 1, int(len(text) * _SHRINK))]
    return text


def _line(message: Message) -> str:
    calls = "".join(f" [calls {call.name}]" for call in message.tool_calls or ())
    text = message.text
    return f"{message.role}: {text[:_MAX_CHARACTERS]}{'…' if len(text) > _MAX_CHARACTERS else ''}{calls}"
