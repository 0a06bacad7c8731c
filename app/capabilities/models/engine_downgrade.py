"""What one engine is asked, where it cannot be asked all of it.

A conversation belongs to no provider. What only the provider that said it can read stays with that provider, and what
an engine cannot do is told in another way where there is one, else left out and named. All of it is decided from the
call and the engine's profile, so that whoever fails over to the next engine says the same thing once more.

    system messages, without the role        → before the first words of the user
    several calls of one answer              → one answer and result each, where only one is read at a time
    calls and results, without tools         → as text
    images, tools, a demanded call           → left out
    signed or encrypted thoughts of others   → left out
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import orjson

from app.domain.contract.messages import ImagePart, Message, ModelMessage, Part, TextPart
from app.domain.model_call import EngineCall
from app.ports.model import EngineProfile

IMAGE_PLACEHOLDER = "[an image that this model cannot see]"


def downgrade(call: EngineCall, profile: EngineProfile) -> EngineCall:
    """The call as this engine can be asked it."""
    able = profile.capabilities
    messages: Sequence[Message] = call.messages
    if any(_is_foreign(message, profile) for message in messages):
        messages = [_plain(message) if _is_foreign(message, profile) else message for message in messages]
    if not able.images and any(message.images for message in messages):
        messages = [_without_images(message) for message in messages]
    if not able.tools:
        messages = [_in_words(message) for message in messages]
    elif not able.parallel_tools:
        messages = list(_one_call_each(messages))
    if not able.system_role:
        messages = _without_system(messages)
    hints = call.hints
    if hints.demands_call and not _can_be_made_to_call(profile):
        hints = hints.model_copy(update={"tool_choice": None})
    tools = call.tools if able.tools else ()
    if messages is call.messages and tools is call.tools and hints is call.hints:
        return call
    return replace(call, messages=messages, tools=tools, hints=hints)


def unsupported_parts(call: EngineCall, profile: EngineProfile) -> tuple[str, ...]:
    """What the call holds and this engine cannot be told, by dotted name; what it was not told beside that, its reply
    says.
    """
    able = profile.capabilities
    return (
        *(["hints.tool_choice"] if call.hints.demands_call and not _can_be_made_to_call(profile) else ()),
        *(["messages.images"] if not able.images and any(message.images for message in call.messages) else ()),
        *_foreign_thoughts(call.messages, profile),
        *(["tools"] if call.tools and not able.tools else ()),
    )


def _foreign_thoughts(messages: Sequence[Message], profile: EngineProfile) -> Iterator[str]:
    foreign = {message.provider: None for message in messages if isinstance(message, ModelMessage)}
    return (f"messages.kept.{provider}" for provider in foreign if provider != profile.name)


def _is_foreign(message: Message, profile: EngineProfile) -> bool:
    return isinstance(message, ModelMessage) and message.provider != profile.name


def _plain(message: Message) -> Message:
    return Message(**{name: getattr(message, name) for name in Message.model_fields})


def _can_be_made_to_call(profile: EngineProfile) -> bool:
    return profile.capabilities.tools and profile.capabilities.forced_calls


def _without_images(message: Message) -> Message:
    if isinstance(message.content, str):
        return message
    parts: list[Part] = [
        TextPart(type="text", text=IMAGE_PLACEHOLDER) if isinstance(part, ImagePart) else part
        for part in message.content
    ]
    return message.model_copy(update={"content": parts})


def _in_words(message: Message) -> Message:
    if message.role == "tool":
        return Message(role="user", content=f"[{message.name or 'tool'} answered] {message.text}")
    if not message.tool_calls:
        return message
    calls = (f"[{call.name} was called with {orjson.dumps(call.arguments).decode()}]" for call in message.tool_calls)
    return Message(role="assistant", content="\n".join(filter(None, chain([message.text], calls))))


def _one_call_each(messages: Sequence[Message]) -> Iterator[Message]:
    following = iter(messages)
    for message in following:
        calls = message.tool_calls or ()
        if len(calls) < 2:
            yield message
            continue
        results = {result.tool_call_id: result for result in islice(following, len(calls))}
        for number, call in enumerate(calls):
            said = message if number == 0 else Message(role="assistant", content="")
            yield said.model_copy(update={"tool_calls": [call]})
            yield results[call.id]


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """The first words of the user begin with all system text before them; later system messages are the user's."""
    told: list[Message] = []
    waiting: list[Message] = []
    for message in messages:
        if message.role == "system":
            waiting.append(message)
        elif waiting and message.role == "user":
            told.append(_prefixed(waiting, message))
            waiting = []
        else:
            told.append(message)
    return told + [Message(role="user", content=message.content) for message in waiting]


def _prefixed(system: Sequence[Message], message: Message) -> Message:
    text = "\n\n".join(each.text for each in system)
    if isinstance(message.content, str):
        return message.model_copy(update={"content": f"{text}\n\n{message.content}"})
    return message.model_copy(update={"content": [TextPart(type="text", text=text), *message.content]})
