"""Conversations as the tokens that a local model reads.

The model's own chat template writes the turns. Only its text may contain control tokens: texts of users, tools and
earlier answers are never read as such, even when they spell their names.

What a template may not know is written as text: tool calls and their results, in turns of the assistant and the user,
and further system messages, which are appended to the first. Turns of one role are joined, since many templates refuse
two in a row.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeAlias

import orjson

from portico.adapters.engines.llama_cpp.library import LlamaCppLibrary
from portico.adapters.engines.llama_cpp.model import LocalModel
from portico.domain.contract.messages import Message
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

Turn: TypeAlias = Mapping[str, str]
_Written: TypeAlias = Callable[[Sequence[Turn]], str]
_PLACEHOLDER: Final = re.compile("\ue000([0-9]+)\ue000")
PLAIN_STOPS: Final = ("\nUser:", "\nSystem:")
"""The end of an answer of a model without a template, which may continue with the other's part."""


class PromptWriter:
    """Writes prompts for one model. Raises: EngineError (MODEL_MISSING) when its template cannot be read."""

    def __init__(self, library: LlamaCppLibrary, model: LocalModel) -> None:
        self._model = model
        self._vocabulary = vocabulary = model.vocabulary
        self._refusals = (library.jinja.TemplateError, ValueError, TypeError, LookupError, ArithmeticError)
        self._begin, _ = vocabulary.frame
        self._write = self._by_template(library, model.template) if model.template else _write_plainly
        self.stops = () if model.template else PLAIN_STOPS

    def tokens(self, messages: Sequence[Message]) -> list[int]:
        """Return the conversation up to the model's turn. Raises: EngineError (REFUSED, CONTEXT_EXCEEDED)."""
        turns = build_turns(messages)
        texts = [turn["content"] for turn in turns]
        self._model.refuse_too_long(sum(map(len, texts)))
        if not all(map(self._vocabulary.is_plain, texts)):
            hidden = [{**turn, "content": f"\ue000{number}\ue000"} for number, turn in enumerate(turns)]
            parts = _PLACEHOLDER.split(self._write(hidden))
        else:
            parts = [self._write(turns)]
        tokens = [] if self._vocabulary.begin is None or self._begins(parts[0]) else [self._vocabulary.begin]
        for place, part in enumerate(parts):
            is_text = place % 2 == 1
            tokens += self._vocabulary.tokens(texts[int(part)] if is_text else part, control=not is_text)
        return tokens

    def _begins(self, text: str) -> bool:
        return bool(self._begin) and text.startswith(self._begin)

    def _by_template(self, library: LlamaCppLibrary, template: str) -> _Written:
        begin, end = self._vocabulary.frame
        try:
            written = library.chat.Jinja2ChatFormatter(template, eos_token=end, bos_token=begin)
        except self._refusals as cause:
            raise EngineError(AttemptFailureReason.MODEL_MISSING, "the model's chat template cannot be read") from cause

        def write(turns: Sequence[Turn]) -> str:
            try:
                prompt: str = written(messages=turns).prompt
            except self._refusals as cause:
                raise EngineError(
                    AttemptFailureReason.REFUSED, "the model's chat template refuses the conversation"
                ) from cause
            return prompt

        return write


def build_turns(messages: Sequence[Message]) -> list[Turn]:
    """Return the turns that a template takes: the system's first, then user and assistant in turn."""
    turns = sorted(((_role(message), _content(message)) for message in messages), key=lambda turn: turn[0] != "system")
    joined = (
        (role, [texts for _, texts in group if texts]) for role, group in groupby(turns, key=lambda turn: turn[0])
    )
    return [{"role": role, "content": "\n\n".join(texts)} for role, texts in joined]


def _role(message: Message) -> str:
    return "user" if message.role == "tool" else message.role


def _content(message: Message) -> str:
    if message.role == "tool":
        return f"{message.name or 'The tool'} answered: {message.text}"
    calls = [f"I call {call.name} with {orjson.dumps(call.arguments).decode()}" for call in message.tool_calls or ()]
    return "\n".join([message.text, *calls] if message.text else calls)


def _write_plainly(turns: Sequence[Turn]) -> str:
    """Write the turns for a model without a template."""
    parts = [f"{turn['role'].capitalize()}: {turn['content']}" for turn in turns]
    return "\n\n".join([*parts, "Assistant:"])
