"""Messages, their parts, tool calls and tool results."""

import base64
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from portico.domain.contract.media import MAX_URL_CHARACTERS, PDF, checked_data
from portico.domain.failures import TAXONOMY, Code, Failure, failure
from portico.domain.ids import ToolCallId
from portico.domain.tools import ArgumentViolation
from portico.domain.value import value

Role = Literal["system", "user", "assistant", "tool"]
TOOL_NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"
"""Names are compared bytewise, so only characters without look-alikes are accepted."""
UNREADABLE_ARGUMENTS = "_raw"
"""Name of the only argument if the arguments are not a JSON object; it holds their text. Such a call is not run."""


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(_Value):
    """Text next to other parts."""

    type: Literal["text"] = Field(description="Type of the part.")
    text: str = Field(description="The text.")


MediaUrl = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=MAX_URL_CHARACTERS,
        description="URL from which the service fetches the bytes, once, instead of `data`; of user messages only.",
    ),
]


def _require_one(text: str, info: ValidationInfo, beside_url: str) -> None:
    """Raise for a field that is there beside a `url`, or missing without one; a wrong `url` has an error of its own."""
    if "url" not in info.data:
        return
    if info.data["url"] is None and not text:
        raise PydanticKnownError("missing")
    if info.data["url"] is not None and text:
        raise ValueError(beside_url)


class _MediaPart(_Value):
    """Part whose bytes are its `data`, or are fetched from its `url` before a model reads them."""

    type: str
    url: MediaUrl = None
    media_type: str
    data: str

    @field_validator("data")
    @classmethod
    def _is_of_type(cls, data: str, info: ValidationInfo) -> str:
        """Check the bytes, whose type may have an error of its own."""
        _require_one(data, info, "must be absent beside a url")
        return checked_data(data, info.data["media_type"]) if data and "media_type" in info.data else data


class ImagePart(_MediaPart):
    """Image, embedded in the message, or by its URL."""

    type: Literal["image"] = Field(description="Type of the part.")
    url: MediaUrl = None
    media_type: str = Field(
        "",
        validate_default=True,
        pattern=r"^(image/[a-z0-9.+-]{1,40})?$",
        description="The image's media type; absent with a `url`, whose bytes have one.",
    )
    data: str = Field("", validate_default=True, description="The image's bytes in base64.")

    @field_validator("media_type")
    @classmethod
    def _is_said_once(cls, media_type: str, info: ValidationInfo) -> str:
        _require_one(media_type, info, "must be absent beside a url, whose bytes have one")
        return media_type


class DocumentPart(_MediaPart):
    """Document, embedded in the message of a user, or by its URL."""

    type: Literal["document"] = Field(description="Type of the part.")
    url: MediaUrl = None
    media_type: Literal["application/pdf", "text/plain", "text/markdown"] = Field(
        description="The document's media type."
    )
    data: str = Field("", validate_default=True, description="The document's bytes in base64.")
    name: str | None = Field(None, min_length=1, max_length=256, description="Name of the document.")

    @property
    def plain_text(self) -> str | None:
        """The text of a text document; None of any other."""
        return None if self.media_type == PDF else base64.b64decode(self.data).decode()


class AudioPart(_MediaPart):
    """Audio, embedded in the message of a user, or by its URL."""

    type: Literal["audio"] = Field(description="Type of the part.")
    url: MediaUrl = None
    media_type: Literal["audio/wav", "audio/mpeg"] = Field(description="The audio's media type.")
    data: str = Field("", validate_default=True, description="The audio's bytes in base64.")


MediaPart: TypeAlias = ImagePart | DocumentPart | AudioPart
Part = Annotated[TextPart | ImagePart | DocumentPart | AudioPart, Field(discriminator="type")]


class ToolCall(_Value):
    """Tool call that a model asked for."""

    id: ToolCallId = Field(
        min_length=1, max_length=256, description="Id of the call, generated if the provider gave none."
    )
    name: str = Field(min_length=1, max_length=256, description="Name of the tool as the model wrote it.")
    arguments: dict[str, Any] = Field(description="The arguments by name.")


class Message(_Value):
    """Message of a conversation, independent of any provider's dialect."""

    role: Role = Field(description="Author's role.")
    content: str | Annotated[list[Part], Field(fail_fast=True)] = Field(
        description="Text, or a list of parts: text and images, and of a user also documents and audio."
    )
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = Field(
        None, description="Tool calls of an assistant message."
    )
    tool_call_id: ToolCallId | None = Field(None, max_length=256, description="Call that a tool message answers.")
    name: str | None = Field(None, max_length=64, description="Name of the author or tool.")

    @property
    def text(self) -> str:
        """Return all text of the message, with parts joined by newlines; images have none."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> list[ImagePart]:
        """Return the images among the parts, in order."""
        return [] if isinstance(self.content, str) else [part for part in self.content if isinstance(part, ImagePart)]

    @property
    def documents(self) -> list[DocumentPart]:
        """Return the documents among the parts, in order."""
        parts = () if isinstance(self.content, str) else self.content
        return [part for part in parts if isinstance(part, DocumentPart)]

    @property
    def audio(self) -> list[AudioPart]:
        """Return the audio among the parts, in order."""
        return [] if isinstance(self.content, str) else [part for part in self.content if isinstance(part, AudioPart)]

    @property
    def media_by_url(self) -> list[tuple[int, MediaPart]]:
        """Return the parts whose bytes are still to be fetched, each with its index."""
        parts = () if isinstance(self.content, str) else self.content
        return [(index, part) for index, part in enumerate(parts) if not isinstance(part, TextPart) and part.url]


class Origin(StrEnum):
    """Origin of the text of a message.

    `trusted` is a result of a tool that followed from no untrusted text; `model` is such an answer. `client` is a
    client's record of a conversation, `tool` what followed from untrusted results, `retrieved` from documents;
    `fetched` is a message of a person with what was behind its URLs. A `summary` of turns is an `untrusted_summary` if
    one of them was untrusted. `skill` is a text of the configuration.
    """

    TRUSTED = "trusted"
    MODEL = "model"
    CLIENT = "client"
    TOOL = "tool"
    RETRIEVED = "retrieved"
    FETCHED = "fetched"
    SUMMARY = "summary"
    UNTRUSTED_SUMMARY = "untrusted_summary"
    SKILL = "skill"

    @property
    def is_trusted(self) -> bool:
        """Return True if the text follows from people, models and the service alone."""
        return self in _TRUSTED


_TRUSTED = frozenset({Origin.TRUSTED, Origin.MODEL, Origin.SUMMARY, Origin.SKILL})


class TracedMessage(Message):
    """Message with its origin, as a session stores those of models and tools."""

    origin: Origin = Field(description="Origin of the text.")


class ModelMessage(Message):
    """Answer of a model with content that only its provider can read, such as signed thoughts.

    `kept` holds blocks in the provider's own format, in their original order. They are omitted for any other provider.
    """

    provider: str = Field(description="Configured name of the engine that answered.")
    account: str | None = Field(
        None, description="Account at the provider that alone can read the blocks, if one does."
    )
    kept: list[dict[str, Any]] = Field(description="Blocks that the provider needs back unchanged.")
    origin: Origin | None = Field(None, description="Origin of the text, where a session stores it.")


def origin_of(message: Message) -> Origin | None:
    """Return the origin of a message; None where it is not known."""
    return message.origin if isinstance(message, TracedMessage | ModelMessage) else None


def last_question(messages: Sequence[Message]) -> str:
    """Return the text of the last user message; empty without one."""
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


def is_untrusted_text(messages: Iterable[Message]) -> bool:
    """Return True if any of these messages, with which a conversation begins, is not trusted.

    What people ask is theirs, but for documents, audio and what a URL leads to, which others may have made; what models
    and tools said is trusted only where it was stored as such.
    """
    return any(
        origin is None or not origin.is_trusted
        for message in messages
        if (origin := origin_of(message)) is not None
        or message.role in {"assistant", "tool"}
        or (message.content.__class__ is list and (message.documents or message.audio or message.media_by_url))
    )


def with_origin(message: Message, origin: Origin) -> Message:
    """Return the message with its origin."""
    if isinstance(message, ModelMessage):
        return message.model_copy(update={"origin": origin})
    return TracedMessage.model_validate({**dict(message), "origin": origin})


@value
class ToolResult:
    """Result of one tool call; `content` is the text the model sees. `code` is set if `is_error` is.

    `idempotent` is True if the tool may be called again without harm. `violations` are the reasons why the arguments
    were refused.
    """

    call: ToolCall
    content: str
    is_error: bool
    code: Code | None
    attempts: int
    duration_ms: float
    idempotent: bool = False
    violations: Sequence[ArgumentViolation] = ()

    def failure(self) -> Failure | None:
        """Return an error as a failure, for callers that need the result; its text is only in the list of calls."""
        if self.code is None:
            return None
        row = TAXONOMY[self.code]
        condition = "idempotent" if self.idempotent else "not idempotent"
        known = any(variant.condition == condition for variant in row.variants)
        details = {"tool": self.call.name, "tool_call_id": self.call.id}
        return failure(self.code, row.meaning, details=details, condition=condition if known else None)

    def message(self) -> Message:
        """Return the result as a message for the model."""
        return Message(role="tool", content=self.content, tool_call_id=self.call.id, name=self.call.name[:64])


def system_prompt(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the system messages at the beginning of a conversation."""
    return tuple(takewhile(lambda message: message.role == "system", messages))


def joined(earlier: Sequence[Message], own: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with new messages at its end; their system messages replace those at its beginning."""
    earlier_prompt, own_prompt = system_prompt(earlier), system_prompt(own)
    return (*(own_prompt or earlier_prompt), *earlier[len(earlier_prompt) :], *own[len(own_prompt) :])


def leading_results(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the results of calls with which the messages begin, behind their system messages."""
    return tuple(takewhile(lambda message: message.role == "tool", messages[len(system_prompt(messages)) :]))


def _media_errors(message: Message, here: str) -> list[tuple[str, str]]:
    if message.role == "user" or not (message.documents or message.audio or message.media_by_url):
        return []
    return [(f"{here}.content", "has a document, audio or a url, which only user messages may have")]


def conversation_errors(messages: Sequence[Message], *, continues: bool = False) -> list[tuple[str, str]]:
    """Return the errors in the order of a conversation, as pairs of field path and message.

    Every tool result must follow its call, every call must have exactly one result before the next message of another
    role, and no call id may occur twice in one message. A conversation that `continues` an earlier one may begin with
    results of its last calls.
    """
    errors: list[tuple[str, str]] = []
    open_calls: dict[str, str] = {}
    for index, message in enumerate(messages):
        here = f"messages.{index}"
        if message.content.__class__ is list:
            errors.extend(_media_errors(message, here))
        continues = continues and message.role in {"system", "tool"}
        if continues and message.role == "tool":
            continue
        if message.role == "tool":
            if open_calls.pop(message.tool_call_id or "", None) is None:
                errors.append((f"{here}.tool_call_id", "must name a call of the assistant message before it"))
            continue
        errors.extend((where, "has no result after it") for where in open_calls.values())
        open_calls = {}
        if message.tool_call_id is not None:
            errors.append((f"{here}.tool_call_id", "is for tool messages only"))
        if message.tool_calls and message.role != "assistant":
            errors.append((f"{here}.tool_calls", "is for assistant messages only"))
        for number, call in enumerate(message.tool_calls or ()):
            if call.id in open_calls:
                errors.append((f"{here}.tool_calls.{number}.id", "occurs twice in this message"))
            open_calls[call.id] = f"{here}.tool_calls.{number}"
    errors.extend((where, "has no result after it") for where in open_calls.values())
    return errors
