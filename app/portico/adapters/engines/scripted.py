"""An engine that answers from a script of texts, tool calls and faults, one entry an attempt.

    [{"text": "Hello"},
     {"chunks": ["Hel", "lo"], "delay": 0.5, "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}},
     {"tool_calls": [{"name": "roll_dice", "arguments": {"count": 2, "sides": 6}}]},
     {"fault": "rate_limited", "retry_after": 2},
     {"fault": "broken", "after_chunks": 3}]

Entries are used in order, one for each attempt, retries included. An attempt beyond the last entry is refused as an
invalid request, so that no retry and no other engine hides that the script is too short.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from anyio.lowlevel import checkpoint
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from portico.adapters.engines.unsupported import DEFAULT_NAMES, unsent_options
from portico.capabilities.models.context_window import count_tokens
from portico.capabilities.models.tokens import UNCORRECTED
from portico.domain.contract.messages import ToolCall
from portico.domain.contract.response import TokenUsage
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.field_errors import invalid_fields
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.ports.model import EngineError, EngineProfile, Progress
from portico.ports.runtime import Clock

CallText = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    delay: float = Field(0, ge=0, description="Seconds to wait before anything is said.")
    usage: TokenUsage | None = Field(None, description="The tokens it reports; a reply without has an estimate.")


class ScriptedCall(BaseModel):
    """A tool call of a reply."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: CallText = Field(description="The tool's name.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="The arguments by name.")
    id: CallText | None = Field(None, description="The call's id; `call_<n>`, unique in the script, when absent.")


class ScriptedReply(_Entry):
    """An attempt that succeeds; `chunks` are its text in the pieces of a stream, otherwise a stream has one piece."""

    text: str = Field("", description="The answer.")
    chunks: list[str] = Field(default_factory=list, description="The answer in pieces, instead of `text`.")
    reasoning: str = Field("", description="What is thought before the answer.")
    tool_calls: list[ScriptedCall] = Field(default_factory=list, description="The tools that are asked for.")
    finish_reason: Literal["stop", "tool", "length", "content_filter"] | None = Field(
        None, description="Why it ends; when absent, `tool` with calls and `stop` without."
    )

    @model_validator(mode="after")
    def _has_one_text(self) -> "ScriptedReply":
        if self.text and self.chunks and self.text != "".join(self.chunks):
            raise ValueError("text must be what the chunks make together, or absent")
        return self

    @property
    def pieces(self) -> list[str]:
        """The text in the pieces of a stream."""
        return self.chunks or ([self.text] if self.text else [])


class ScriptedFault(_Entry):
    """An attempt that fails, in a stream after that many pieces."""

    fault: AttemptFailureReason = Field(description="Why it fails.")
    retry_after: float | None = Field(None, ge=0, description="Seconds the provider asks to wait.")
    after_chunks: int = Field(0, ge=0, le=10_000, description="Pieces that a stream brings before.")

    @property
    def pieces(self) -> list[str]:
        """The pieces of a stream before its fault."""
        return [f"piece {number + 1} " for number in range(self.after_chunks)]


class ScriptedEngine:
    """Implements `Engine`. Each instance has its own position in the script.

    Raises: ConfigurationFailure (CONFIG_INVALID) naming the entry that is not valid.
    """

    def __init__(
        self, profile: EngineProfile, replies: Sequence[Mapping[str, Any]], clock: Clock, *, source: str = "script"
    ) -> None:
        self.profile = profile
        self._clock = clock
        self._script = [_entry(value, f"{source}: entry {index}") for index, value in enumerate(replies)]
        self._calls = _calls(self._script)
        self._position = 0

    @classmethod
    def from_file(cls, profile: EngineProfile, path: Path, clock: Clock) -> "ScriptedEngine":
        """Return the engine of a JSON file. Raises: ConfigurationFailure (CONFIG_INVALID) naming the file."""
        try:
            replies = orjson.loads(path.read_bytes())
        except (OSError, ValueError) as cause:
            raise ConfigurationFailure(Code.CONFIG_INVALID, f"{path} cannot be read as JSON") from cause
        if not isinstance(replies, list):
            raise ConfigurationFailure(Code.CONFIG_INVALID, f"{path} must hold a list of replies")
        return cls(profile, replies, clock, source=str(path))

    async def ping(self) -> str:
        """Return the number of remaining replies."""
        return f"scripted: {len(self._script) - self._position} of {len(self._script)} replies left"

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Use the next entry for any call."""
        if self._position == len(self._script):
            raise EngineError(AttemptFailureReason.REFUSED, "scripted: the script has no reply left")
        index, self._position = self._position, self._position + 1
        entry = self._script[index]
        await self._clock.sleep(entry.delay)
        if stream:
            await _publish(entry, progress)
        if isinstance(entry, ScriptedFault):
            if entry.usage is not None:
                progress.usage(entry.usage)
            raise EngineError(entry.fault, f"scripted: {entry.fault}", entry.retry_after)
        reply = _reply(entry, self._calls[index], self.profile.model, call)
        progress.usage(reply.usage)
        return reply


def _entry(value: object, where: str) -> ScriptedReply | ScriptedFault:
    kind = ScriptedFault if isinstance(value, Mapping) and "fault" in value else ScriptedReply
    try:
        return kind.model_validate(value)
    except ValidationError as invalid:
        fields = invalid_fields(invalid.errors(include_url=False, include_input=False), schema=kind.model_json_schema())
        messages = "; ".join(map(str, fields))
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"{where}: {messages}") from invalid


def _calls(script: Sequence[ScriptedReply | ScriptedFault]) -> list[tuple[ToolCall, ...]]:
    """Return the tool calls of every entry; those without an id get the next one that no call of the script has."""
    tool_calls = [entry.tool_calls if isinstance(entry, ScriptedReply) else [] for entry in script]
    used_ids = {each.id for calls in tool_calls for each in calls}
    unused_ids = (name for name in map("call_{}".format, count(1)) if name not in used_ids)
    return [
        tuple(ToolCall(id=each.id or next(unused_ids), name=each.name, arguments=each.arguments) for each in calls)
        for calls in tool_calls
    ]


async def _publish(entry: ScriptedReply | ScriptedFault, progress: Progress) -> None:
    if isinstance(entry, ScriptedReply) and entry.reasoning:
        progress.reasoning(entry.reasoning)
    for piece in entry.pieces:
        progress.text(piece)
        await checkpoint()


def _reply(entry: ScriptedReply, calls: tuple[ToolCall, ...], model: str, call: EngineCall) -> Reply:
    text = entry.text or "".join(entry.chunks)
    finish = entry.finish_reason or ("tool" if calls else "stop")
    usage = entry.usage or _estimate(call, text)
    return Reply(text, calls, finish, finish, usage, model, entry.reasoning, withheld=_ignored(call))


def _ignored(call: EngineCall) -> tuple[str, ...]:
    """Return the names of all hints: only the script decides the form of an answer."""
    return unsent_options(call, DEFAULT_NAMES, {"grammar": call.grammar})


def _estimate(call: EngineCall, text: str) -> TokenUsage:
    read, written = count_tokens(call, UNCORRECTED), UNCORRECTED.text(text)
    return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written, estimated=True)
