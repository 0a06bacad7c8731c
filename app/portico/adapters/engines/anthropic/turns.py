"""Conversations as Anthropic's Messages API takes them: turns of user and assistant, made of blocks.

A conversation that the API would refuse is sent in another form, and nothing is lost:

- consecutive messages of one side are one turn, so that all results of a round are at its beginning;
- text of blanks only is no block, and a turn without blocks is left out;
- ids and names of calls from other providers may have any character, and ids may be repeated in a later turn;
- a system prompt after the opening ones is a message of the role `system` where the model honours it. It must be
  between a user's turn and an answer, so it waits for the end of the user's turn. Everywhere else it is marked text of
  the user's turn;
- newer models accept a thought only while nothing before it has changed. Much changes here between two questions, such
  as memory and the cut of the history, so only the thoughts of the answer in progress are sent back to them.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Final, TypeAlias

from portico.adapters.engines.call_ids import CallIds
from portico.adapters.engines.dialect import opaque_blocks
from portico.domain.contract.messages import AudioPart, DocumentPart, ImagePart, Message, Part

Block: TypeAlias = dict[str, Any]
Turn: TypeAlias = dict[str, Any]

HONOURS_SYSTEM = re.compile(r"claude-(opus-4-8|(opus|fable|mythos)-5|[a-z]+-5-[5-9](?!\d)|[a-z]+-[6-9])")
"""Models that accept a system message within the conversation. Older ones refuse it, Sonnet 5 ignores it."""
BINDS_THOUGHTS = re.compile(r"claude-[a-z]+-(5-[1-9](?!\d)|[6-9])")
"""Models that sign a thought together with everything before it."""
SAFE_ID = re.compile(r"[a-zA-Z0-9_-]+")
UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
NAME_CHARACTERS: Final = 128
THOUGHT_TYPES: Final = frozenset({"thinking", "redacted_thinking"})
POSITION: Final = "index"
"""The member of a stored thought with the number of blocks before it; absent where there were none."""


def build_turns(messages: Sequence[Message], model: str) -> tuple[str, list[Turn]]:
    """Return the opening system prompts as one text, and the turns after them."""
    opening = list(takewhile(lambda message: message.role == "system", messages))
    system = "\n\n".join(message.text for message in opening if message.text.strip())
    return system, _TurnBuilder(model).turns(messages[len(opening) :])


def answer_began_with_thinking(turns: Sequence[Turn]) -> bool:
    """Tell whether the answer that tool results continue began with a thought; true where none is continued.

    An answer that another provider began did not, and the API then refuses thinking with a budget.
    """
    first: Block | None = None
    for turn in reversed(turns):
        if turn["role"] == "assistant":
            first = turn["content"][0]
        elif turn["role"] == "user" and not any(block["type"] == "tool_result" for block in turn["content"]):
            break
    return first is None or first["type"] in THOUGHT_TYPES


class _TurnBuilder:
    """One conversation in the making: its turns, and the system prompts that wait for the end of the user's turn."""

    def __init__(self, model: str) -> None:
        self._honours_system = HONOURS_SYSTEM.search(model) is not None
        self._binds_thoughts = BINDS_THOUGHTS.search(model) is not None
        self._turns: list[Turn] = []
        self._waiting: list[Block] = []
        self._ids = CallIds(SAFE_ID)

    def turns(self, messages: Sequence[Message]) -> list[Turn]:
        last_question = max(
            (position for position, message in enumerate(messages) if message.role == "user"), default=-1
        )
        for position, message in enumerate(messages):
            match message.role:
                case "system":
                    self._add_system(message)
                case "user":
                    self._append("user", _blocks(message.content))
                case "tool":
                    self._append("user", [self._result(message)])
                case "assistant":
                    self._add_answer(message, thoughts=position > last_question or not self._binds_thoughts)
        self._end_turn()
        return self._turns

    def _append(self, role: str, blocks: list[Block]) -> None:
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"] += blocks
        elif blocks:
            self._turns.append({"role": role, "content": blocks})

    def _add_system(self, message: Message) -> None:
        if not message.text.strip():
            return
        if self._honours_system:
            self._waiting.append(_text(message.text))
        else:
            self._append("user", [_marked(message.text)])

    def _end_turn(self) -> None:
        """Add the waiting system prompts, to the user's turn where an answer comes before them."""
        waiting, self._waiting = self._waiting, []
        if self._turns and self._turns[-1]["role"] == "user":
            self._append("system", waiting)
        else:
            self._append("user", [_marked(block["text"]) for block in waiting])

    def _add_answer(self, message: Message, *, thoughts: bool) -> None:
        blocks = [
            *_blocks(message.content),
            *(self._call(call.id, call.name, call.arguments) for call in message.tool_calls or ()),
        ]
        if blocks:
            self._end_turn()
            self._append("assistant", list(_with_thoughts(message, blocks)) if thoughts else blocks)

    def _call(self, call_id: str, name: str, arguments: dict[str, Any]) -> Block:
        return {
            "type": "tool_use",
            "id": self._ids.new(call_id),
            "name": UNSAFE.sub("_", name)[:NAME_CHARACTERS],
            "input": arguments,
        }

    def _result(self, message: Message) -> Block:
        block = {"type": "tool_result", "tool_use_id": self._ids.known(message.tool_call_id or "")}
        content = _blocks(message.content)
        if not content:
            return block
        return block | {"content": message.content if isinstance(message.content, str) else content}


def _with_thoughts(message: Message, blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks of an answer with its thoughts in their places. Text of several blocks is one block now."""
    rest = list(blocks)
    count = 0 if not message.content or rest[0]["type"] == "text" else 1
    for thought in opaque_blocks(message):
        if thought.get("type") not in THOUGHT_TYPES:
            continue
        position = thought.get(POSITION, count)
        while rest and count < position:
            yield rest.pop(0)
            count += 1
        yield {key: value for key, value in thought.items() if key != POSITION}
        count += 1
    yield from rest


def _blocks(content: str | Sequence[Part]) -> list[Block]:
    if isinstance(content, str):
        return [_text(content)] if content.strip() else []
    return [block for part in content for block in _part(part)]


def _part(part: Part) -> list[Block]:
    if isinstance(part, ImagePart):
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
        return [{"type": "image", "source": source}]
    if isinstance(part, DocumentPart):
        return [_document(part)]
    if isinstance(part, AudioPart):
        return []
    return _blocks(part.text)


def _document(document: DocumentPart) -> Block:
    text = document.plain_text
    source = (
        {"type": "base64", "media_type": document.media_type, "data": document.data}
        if text is None
        else {"type": "text", "media_type": "text/plain", "data": text}
    )
    return {"type": "document", "source": source} | ({"title": document.name} if document.name else {})


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _marked(text: str) -> Block:
    return _text(f"<system>\n{text}\n</system>")
