"""Downgrade of a call to the features of one engine.

A conversation is independent of providers. Blocks that only their provider can read stay with that provider; features
that an engine lacks are expressed in another way if there is one, otherwise left out and named. All of it depends only
on the call and the engine's profile, so a failover to the next engine starts from the same call.

    system messages, without the role        → before the first text of the user
    several calls of one answer              → one answer and result each, if only one is read at a time
    calls and results, without tools         → as text
    text documents                           → as text
    other documents, audio, images           → a note that there is one
    tools, a forced call                     → left out
    a level of reasoning                     → left out
    signed or encrypted thoughts of others   → left out
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import orjson

from portico.domain.contract.media import PDF
from portico.domain.contract.messages import AudioPart, DocumentPart, ImagePart, Message, ModelMessage, Part, TextPart
from portico.domain.model_call import EngineCall
from portico.domain.value import replace
from portico.ports.model import EngineCapabilities, EngineProfile

DOCUMENT_PLACEHOLDER = "[a document that this model cannot read"
AUDIO_PLACEHOLDER = "[audio that this model cannot hear]"
IMAGE_PLACEHOLDER = "[an image that this model cannot see]"


def downgrade(call: EngineCall, profile: EngineProfile) -> EngineCall:
    """Return the call as this engine can be sent it."""
    supported = profile.capabilities
    messages: Sequence[Message] = call.messages
    name, binds, account = profile.name, profile.binds_kept, profile.account
    if any(
        isinstance(each, ModelMessage) and (each.provider != name or (binds and each.account != account))
        for each in messages
    ):
        messages = [
            _without_provider_blocks(each)
            if isinstance(each, ModelMessage) and (each.provider != name or (binds and each.account != account))
            else each
            for each in messages
        ]
    is_able = supported.images and supported.documents and supported.audio
    if not is_able and any(message.content.__class__ is list for message in messages):
        messages = [_with_supported_parts(message, supported) for message in messages]
    if not supported.tools:
        messages = [_as_text(message) for message in messages]
    elif not supported.parallel_tools:
        messages = list(_one_call_each(messages))
    if not supported.system_role:
        messages = _without_system(messages)
    hints = call.hints
    if hints.tool_choice is not None and hints.demands_call and not _supports_forced_calls(profile):
        hints = hints.model_copy(update={"tool_choice": None})
    if hints.reasoning is not None and not supported.reasoning:
        hints = hints.model_copy(update={"reasoning": None})
    tools = call.tools if supported.tools else ()
    if messages is call.messages and tools is call.tools and hints is call.hints:
        return call
    return replace(call, messages=messages, tools=tools, hints=hints)


def unsupported_parts(call: EngineCall, profile: EngineProfile) -> tuple[str, ...]:
    """Return the parts of the call that this engine does not support, by dotted name.

    The reply names what its dialect could not send besides.
    """
    supported = profile.capabilities
    name, binds, account = profile.name, profile.binds_kept, profile.account
    authors = dict.fromkeys(
        [
            each.provider
            for each in call.messages
            if isinstance(each, ModelMessage) and (each.provider != name or (binds and each.account != account))
        ]
    )
    demands_call = call.hints.tool_choice is not None and call.hints.demands_call
    has_files = has_audio = False
    for message in call.messages:
        if message.content.__class__ is list:
            has_files, has_audio = has_files or _has_file(message), has_audio or bool(message.audio)
    return (
        *(["hints.reasoning"] if call.hints.reasoning is not None and not supported.reasoning else ()),
        *(["hints.tool_choice"] if demands_call and not _supports_forced_calls(profile) else ()),
        *(["messages.images"] if not supported.images and any(message.images for message in call.messages) else ()),
        *(["messages.documents"] if has_files and not supported.documents else ()),
        *(["messages.audio"] if has_audio and not supported.audio else ()),
        *[f"messages.kept.{provider}" for provider in authors],
        *(["tools"] if call.tools and not supported.tools else ()),
    )


def without_kept(call: EngineCall) -> EngineCall:
    """Return the call without the blocks that only a provider can read."""
    messages = [_without_provider_blocks(each) if isinstance(each, ModelMessage) else each for each in call.messages]
    return replace(call, messages=messages)


def _without_provider_blocks(message: Message) -> Message:
    return Message(**{name: getattr(message, name) for name in Message.model_fields})


def _supports_forced_calls(profile: EngineProfile) -> bool:
    return profile.capabilities.tools and profile.capabilities.forced_calls


def _has_file(message: Message) -> bool:
    """Tell whether the message has a document that is no text."""
    return any(document.media_type == PDF for document in message.documents)


def _with_supported_parts(message: Message, supported: EngineCapabilities) -> Message:
    if isinstance(message.content, str):
        return message
    return message.model_copy(update={"content": [_supported_part(part, supported) for part in message.content]})


def _supported_part(part: Part, supported: EngineCapabilities) -> Part:
    """Return the part, or a text in its place if the engine does not support it."""
    if isinstance(part, ImagePart) and not supported.images:
        return TextPart(type="text", text=IMAGE_PLACEHOLDER)
    if isinstance(part, AudioPart) and not supported.audio:
        return TextPart(type="text", text=AUDIO_PLACEHOLDER)
    if isinstance(part, DocumentPart) and not supported.documents:
        return TextPart(type="text", text=_document_text(part))
    return part


def _document_text(document: DocumentPart) -> str:
    text, name = document.plain_text, document.name
    if text is not None:
        return f"[document {name}]\n{text}" if name else text
    return f"{DOCUMENT_PLACEHOLDER}: {name}]" if name else f"{DOCUMENT_PLACEHOLDER}]"


def _as_text(message: Message) -> Message:
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
        results = {each.tool_call_id: each for each in islice(following, len(calls))}
        for number, call in enumerate(calls):
            answer = message if number == 0 else Message(role="assistant", content="")
            yield answer.model_copy(update={"tool_calls": [call]})
            yield results[call.id]


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Put all system text before the first text of the user; later system messages become the user's."""
    result: list[Message] = []
    waiting: list[Message] = []
    for message in messages:
        if message.role == "system":
            waiting.append(message)
        elif waiting and message.role == "user":
            result.append(_prefixed(waiting, message))
            waiting = []
        else:
            result.append(message)
    return result + [Message(role="user", content=message.content) for message in waiting]


def _prefixed(system: Sequence[Message], message: Message) -> Message:
    text = "\n\n".join(each.text for each in system)
    if isinstance(message.content, str):
        return message.model_copy(update={"content": f"{text}\n\n{message.content}"})
    return message.model_copy(update={"content": [TextPart(type="text", text=text), *message.content]})
