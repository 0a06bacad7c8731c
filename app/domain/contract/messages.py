"""What is said: messages, their parts, the calls a model asks for and what came of them."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from app.domain.failures import TAXONOMY, Code, Failure, failure
from app.domain.ids import ToolCallId

Role = Literal["system", "user", "assistant", "tool"]
TOOL_NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"
"""Names are compared bytewise, so only names without look-alikes are taken."""
UNREADABLE_ARGUMENTS = "_raw"
"""The one argument of a call whose arguments are no JSON object: their text. No tool is run with it."""


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(_Value):
    """Text beside other parts."""

    type: Literal["text"] = Field(description="Says that this part is text.")
    text: str = Field(description="The text.")


class ImagePart(_Value):
    """An image, in the message itself."""

    type: Literal["image"] = Field(description="Says that this part is an image.")
    media_type: str = Field(pattern=r"^image/[a-z0-9.+-]{1,40}$", description="The image's media type.")
    data: str = Field(min_length=1, description="The image's bytes in base64.")

    @field_validator("data")
    @classmethod
    def _is_base64(cls, data: str) -> str:
        try:
            base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("must be base64") from None
        return data


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class ToolCall(_Value):
    """A tool call that a model asked for."""

    id: ToolCallId = Field(
        min_length=1, max_length=256, description="The provider's id of the call, ours where it gave none."
    )
    name: str = Field(min_length=1, max_length=256, description="The tool's name as the model wrote it.")
    arguments: dict[str, Any] = Field(description="The arguments by name.")


class Message(_Value):
    """One message of a conversation, in no provider's dialect."""

    role: Role = Field(description="Who says it.")
    content: str | Annotated[list[Part], Field(fail_fast=True)] = Field(
        description="Text, or a list of text and image parts."
    )
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = Field(
        None, description="The calls an assistant message asks for."
    )
    tool_call_id: ToolCallId | None = Field(None, max_length=256, description="The call a tool message answers.")
    name: str | None = Field(None, max_length=64, description="The author's or tool's name.")

    @property
    def text(self) -> str:
        """All text of the message, parts joined by a newline; images have none."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> list[ImagePart]:
        """The images among its parts, in order."""
        return [] if isinstance(self.content, str) else [part for part in self.content if isinstance(part, ImagePart)]


class ModelMessage(Message):
    """An answer of a model with what only the provider that gave it can read, such as signed thoughts.

    `kept` holds blocks in that provider's own form, in the order in which they came. For any other provider it is
    left out.
    """

    provider: str = Field(description="The configured name of the engine that answered.")
    kept: list[dict[str, Any]] = Field(description="What that provider wants to be told again, as it said it.")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of one tool call; `content` is the text the model sees. `code` is set when `is_error` is.

    `idempotent` says whether the tool may be called again without harm.
    """

    call: ToolCall
    content: str
    is_error: bool
    code: Code | None
    attempts: int
    duration_ms: float
    idempotent: bool = False

    def failure(self) -> Failure | None:
        """What an error is to whoever cannot go on without the result; its text stays where the calls are listed."""
        if self.code is None:
            return None
        row = TAXONOMY[self.code]
        condition = "idempotent" if self.idempotent else "not idempotent"
        known = any(variant.condition == condition for variant in row.variants)
        details = {"tool": self.call.name, "tool_call_id": self.call.id}
        return failure(self.code, row.meaning, details=details, condition=condition if known else None)

    def message(self) -> Message:
        """The result as the model is told it."""
        return Message(role="tool", content=self.content, tool_call_id=self.call.id, name=self.call.name[:64])


def conversation_errors(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """What is wrong with the order of a conversation, as (field path, message) pairs; empty when nothing is.

    Every tool result must follow its call, every call has exactly one result before anybody speaks again, and no
    call id stands twice in one message.
    """
    faults: list[tuple[str, str]] = []
    open_calls: dict[str, str] = {}
    for index, message in enumerate(messages):
        here = f"messages.{index}"
        if message.role == "tool":
            if open_calls.pop(message.tool_call_id or "", None) is None:
                faults.append((f"{here}.tool_call_id", "must name a call of the assistant message before it"))
            continue
        faults.extend((where, "has no result after it") for where in open_calls.values())
        open_calls = {}
        if message.tool_call_id is not None:
            faults.append((f"{here}.tool_call_id", "is for tool messages only"))
        if message.tool_calls and message.role != "assistant":
            faults.append((f"{here}.tool_calls", "is for assistant messages only"))
        for number, call in enumerate(message.tool_calls or ()):
            if call.id in open_calls:
                faults.append((f"{here}.tool_calls.{number}.id", "stands twice in this message"))
            open_calls[call.id] = f"{here}.tool_calls.{number}"
    faults.extend((where, "has no result after it") for where in open_calls.values())
    return faults
