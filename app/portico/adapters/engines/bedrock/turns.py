"""Conversations as Bedrock's Converse API takes them: turns of user and assistant, made of blocks.

- consecutive messages of one side are one turn, so that all results of a round are at its beginning;
- text of blanks only is no block, and a turn without blocks is left out;
- a system prompt after the opening ones is marked text of the user's turn;
- reasoning is sent back within the answer in progress only: models ignore it in earlier ones, or refuse it there;
- calls and their results are refused in a request that offers no tools, so they are text there.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Final, TypeAlias

import orjson

from portico.adapters.engines.bedrock.replies import POSITION, REASONING, REDACTED
from portico.adapters.engines.call_ids import CallIds
from portico.adapters.engines.dialect import opaque_blocks
from portico.domain.contract.messages import DocumentPart, ImagePart, Message, Part, TextPart, ToolCall

Block: TypeAlias = dict[str, Any]
Turn: TypeAlias = dict[str, Any]

SAFE_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
NAME_CHARACTERS: Final = 64

MAX_NAME = 200
"""Characters of a document's name."""
NAME_UNSAFE = re.compile(r"[^a-zA-Z0-9-]+")


def safe_name(name: str) -> str:
    """Return the name of a tool as the API takes it."""
    return UNSAFE.sub("_", name)[:NAME_CHARACTERS]


def build_turns(messages: Sequence[Message], *, offers_tools: bool) -> tuple[list[Block], list[Turn]]:
    """Return the opening system prompts as blocks, and the turns after them."""
    opening = list(takewhile(lambda message: message.role == "system", messages))
    system = [_text(message.text) for message in opening if message.text.strip()]
    return system, _TurnBuilder(offers_tools=offers_tools).turns(messages[len(opening) :])


def answer_began_with_reasoning(turns: Sequence[Turn]) -> bool:
    """Tell whether the answer that tool results continue began with reasoning; true where none is continued."""
    first: Block | None = None
    for turn in reversed(turns):
        if turn["role"] == "assistant":
            first = turn["content"][0]
        elif not any("toolResult" in block for block in turn["content"]):
            break
    return first is None or "reasoningContent" in first


class _TurnBuilder:
    """One conversation in the making."""

    def __init__(self, *, offers_tools: bool) -> None:
        self._offers_tools = offers_tools
        self._turns: list[Turn] = []
        self._ids = CallIds(SAFE_ID)
        self._names: dict[str, str] = {}

    def turns(self, messages: Sequence[Message]) -> list[Turn]:
        questions = [position for position, message in enumerate(messages) if message.role == "user"]
        last_question = questions[-1] if questions else -1
        for position, message in enumerate(messages):
            match message.role:
                case "system":
                    self._append("user", [_text(f"<system>\n{message.text}\n</system>")] if message.text else [])
                case "user":
                    self._append("user", _blocks(message.content))
                case "tool":
                    self._append("user", self._result(message))
                case "assistant":
                    self._append("assistant", self._answer(message, is_open=position > last_question))
        return self._turns

    def _append(self, role: str, blocks: list[Block]) -> None:
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"] += blocks
        elif blocks:
            self._turns.append({"role": role, "content": blocks})

    def _answer(self, message: Message, *, is_open: bool) -> list[Block]:
        calls = [self._call(call) for call in message.tool_calls or ()]
        blocks = [*([_text(message.text)] if message.text.strip() else []), *calls]
        return list(_with_reasoning(message, blocks)) if is_open and self._offers_tools and blocks else blocks

    def _call(self, call: ToolCall) -> Block:
        self._names[call.id] = call.name
        if not self._offers_tools:
            return _text(f"[called {call.name} with {orjson.dumps(call.arguments).decode()}]")
        return {"toolUse": {"toolUseId": self._ids.new(call.id), "name": safe_name(call.name), "input": call.arguments}}

    def _result(self, message: Message) -> list[Block]:
        call_id, content = message.tool_call_id or "", _blocks(message.content)
        if not self._offers_tools:
            return [_text(f"[result of {self._names.get(call_id, 'a tool')}]"), *content]
        return [{"toolResult": {"toolUseId": self._ids.known(call_id), "content": content}}]


def _with_reasoning(message: Message, blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks of an answer with its reasoning in its places. Text of several blocks is one block now."""
    rest = list(blocks)
    count = 0
    for stored in opaque_blocks(message):
        reasoning = _reasoning(stored)
        if reasoning is None:
            continue
        while rest and count < stored.get(POSITION, 0):
            yield rest.pop(0)
            count += 1
        yield reasoning
        count += 1
    yield from rest


def _reasoning(stored: Block) -> Block | None:
    """Return stored reasoning as it is sent back; None for reasoning that nothing proves, which models refuse."""
    if REDACTED in stored:
        return {"reasoningContent": {REDACTED: stored[REDACTED]}}
    if "signature" not in stored:
        return None
    text = {"text": stored.get(REASONING, ""), "signature": stored["signature"]}
    return {"reasoningContent": {REASONING: text}}


def _blocks(content: str | Sequence[Part]) -> list[Block]:
    if isinstance(content, str):
        return [_text(content)] if content.strip() else []
    return [block for part in content for block in _part(part)]


def _part(part: Part) -> list[Block]:
    if isinstance(part, ImagePart):
        format_ = part.media_type.removeprefix("image/")
        return [{"image": {"format": format_, "source": {"bytes": part.data}}}]
    if isinstance(part, TextPart):
        return _blocks(part.text)
    return _document(part) if isinstance(part, DocumentPart) else []


def _document(document: DocumentPart) -> list[Block]:
    """Return a document, under a name of the few characters that the API takes, or its text."""
    if document.plain_text is not None:
        return _blocks(document.plain_text)
    name = NAME_UNSAFE.sub("-", document.name or "document")[:MAX_NAME]
    return [{"document": {"format": "pdf", "name": name, "source": {"bytes": document.data}}}]


def _text(text: str) -> Block:
    return {"text": text}
