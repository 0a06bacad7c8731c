"""How a conversation is told to Anthropic's Messages API: as turns that user and assistant take, made of blocks.

What a neutral conversation may hold and the API refuses is told in another way, and nothing is lost:

- messages of one side in a row are one turn, so that all results of a round stand at its beginning;
- text of nothing but blanks is no block, and a turn without blocks is none;
- ids and names of calls that other providers gave may hold any character, and ids may come again in a later turn;
- a system prompt behind the opening ones is a message of the role `system` where the model honours one. It has to
  stand between a user's turn and an answer, so it waits for the end of the user's turn. Everywhere else it is text of
  the user's turn, marked as what it is;
- newer models take a thought back only while nothing before it has changed. Between two questions a lot changes here,
  such as what memory adds or what was cut, so they are told the thoughts of the answer that goes on, and no older ones.
"""

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Any, Final, TypeAlias

from app.adapters.engines.dialect import opaque_blocks
from app.domain.contract.messages import ImagePart, Message, Part

Block: TypeAlias = dict[str, Any]
Turn: TypeAlias = dict[str, Any]

HONOURS_SYSTEM = re.compile(r"claude-(opus-4-8|(opus|fable|mythos)-5|[a-z]+-5-[5-9](?!\d)|[a-z]+-[6-9])")
"""Older models refuse a system message within the conversation, Sonnet 5 takes no notice of it."""
BINDS_THOUGHTS = re.compile(r"claude-[a-z]+-(5-[1-9](?!\d)|[6-9])")
"""Models that sign a thought together with everything before it."""
SAFE_ID = re.compile(r"[a-zA-Z0-9_-]+")
UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
NAME_CHARACTERS: Final = 128
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
POSITION: Final = "index"
"""The member of a kept thought that says how many blocks stood before it; absent where there were none."""


def build_turns(messages: Sequence[Message], model: str) -> tuple[str, list[Turn]]:
    """The opening system prompts as one text, and the turns behind them."""
    opening = list(takewhile(lambda message: message.role == "system", messages))
    system = "\n\n".join(message.text for message in opening if message.text.strip())
    return system, _Telling(model).turns(messages[len(opening) :])


def answer_began_with_thinking(turns: Sequence[Turn]) -> bool:
    """Whether the answer that tool results go on with began with a thought; also where none goes on.

    One that another provider began did not, and the API then refuses to think by a budget.
    """
    first: Block | None = None
    for turn in reversed(turns):
        if turn["role"] == "assistant":
            first = turn["content"][0]
        elif turn["role"] == "user" and not any(block["type"] == "tool_result" for block in turn["content"]):
            break
    return first is None or first["type"] in THOUGHTS


class _Telling:
    """One conversation as it is told: the turns so far, and what waits for the end of the user's."""

    def __init__(self, model: str) -> None:
        self._honours_system = HONOURS_SYSTEM.search(model) is not None
        self._binds_thoughts = BINDS_THOUGHTS.search(model) is not None
        self._turns: list[Turn] = []
        self._waiting: list[Block] = []
        self._ids = _CallIds()

    def turns(self, messages: Sequence[Message]) -> list[Turn]:
        question = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
        for place, message in enumerate(messages):
            match message.role:
                case "system":
                    self._instruct(message)
                case "user":
                    self._say("user", _blocks(message.content))
                case "tool":
                    self._say("user", [self._result(message)])
                case "assistant":
                    self._answer(message, thoughts=place > question or not self._binds_thoughts)
        self._end_turn()
        return self._turns

    def _say(self, role: str, blocks: list[Block]) -> None:
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"] += blocks
        elif blocks:
            self._turns.append({"role": role, "content": blocks})

    def _instruct(self, message: Message) -> None:
        if not message.text.strip():
            return
        if self._honours_system:
            self._waiting.append(_text(message.text))
        else:
            self._say("user", [_marked(message.text)])

    def _end_turn(self) -> None:
        """Tells the system prompts that wait; no user's turn stands before them where an answer was just told."""
        waiting, self._waiting = self._waiting, []
        if self._turns and self._turns[-1]["role"] == "user":
            self._say("system", waiting)
        else:
            self._say("user", [_marked(block["text"]) for block in waiting])

    def _answer(self, message: Message, *, thoughts: bool) -> None:
        said = [
            *_blocks(message.content),
            *(self._call(call.id, call.name, call.arguments) for call in message.tool_calls or ()),
        ]
        if said:
            self._end_turn()
            self._say("assistant", list(_with_thoughts(message, said)) if thoughts else said)

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


class _CallIds:
    """Ids of calls as the API takes them: of its characters, and none twice in one conversation."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._taken: set[str] = set()

    def new(self, call_id: str) -> str:
        """The id that a call is told with. Its results are told with the same one, until a call has its id again."""
        base = told = _safe(call_id)
        while told in self._taken:
            told = f"{base}_{len(self._taken)}"
        self._taken.add(told)
        self._told[call_id] = told
        return told

    def known(self, call_id: str) -> str:
        return self._told.get(call_id) or _safe(call_id)


def _safe(call_id: str) -> str:
    if SAFE_ID.fullmatch(call_id):
        return call_id
    return f"call_{blake2b(call_id.encode(), digest_size=12).hexdigest()}"


def _with_thoughts(message: Message, said: Sequence[Block]) -> Iterator[Block]:
    """The blocks of an answer with its thoughts where they stood. Text that was several blocks is one now."""
    rest = list(said)
    count = 0 if not message.content or rest[0]["type"] == "text" else 1
    for thought in opaque_blocks(message):
        if thought.get("type") not in THOUGHTS:
            continue
        place = thought.get(POSITION, count)
        while rest and count < place:
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
    return _blocks(part.text)


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _marked(text: str) -> Block:
    return _text(f"<system>\n{text}\n</system>")
