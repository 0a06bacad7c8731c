"""Builder of a reply from its deltas, with the one rule for all dialects of what makes a reply complete.

Only the form is checked here: an empty answer is a reply, and failover decides whether it is good enough. Arguments
of a tool call that are not one JSON object are stored as text, so that the tool executor can show the model its
mistake.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from portico.adapters.engines.wire.deltas import Delta, ToolCallFragment
from portico.adapters.engines.wire.faults import malformed_reply
from portico.adapters.engines.wire.json_fields import MAX_NESTING
from portico.adapters.engines.wire.usage import NO_BOUNDS, UsageAccumulator, UsageBounds
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from portico.domain.contract.response import NO_USAGE, USAGE_IMPLAUSIBLE, TokenUsage
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.domain.strict_json import MAX_WRITABLE_DEPTH, loads
from portico.ports.model import EngineError

MAX_NAME_CHARACTERS: Final = 256


class _TextFragments(list[str]):
    """The fragments of one text of an opaque block, to be joined when the reply is built."""


@dataclass(slots=True)
class _OpenCall:
    id: str
    name: str
    signature: str
    arguments: list[str] = field(default_factory=list)


class ReplyBuilder:
    """One reply under construction. `finish_reasons` is the dialect's table of final words."""

    def __init__(
        self, finish_reasons: Mapping[str, str | AttemptFailureReason], usage_bounds: UsageBounds = NO_BOUNDS
    ) -> None:
        self._finish_reasons = finish_reasons
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []
        self._calls_by_index: dict[int, _OpenCall] = {}
        self._finish: str | None = None
        self._needs_done = False
        self._model = ""
        self._opaque: dict[int, dict[str, Any]] = {}
        self._refused = False
        self.token_counts = UsageAccumulator(usage_bounds)
        self.done = False
        """True once the end of the stream was seen. Nothing after it counts."""

    @property
    def has_started(self) -> bool:
        """True once there is any text, reasoning or call."""
        return bool(self._text or self._reasoning or self._calls or self.is_complete)

    @property
    def is_complete(self) -> bool:
        """True once the terminal marker was seen."""
        return self.done or (self._finish is not None and not self._needs_done)

    def add(self, delta: Delta) -> None:
        """Add the next part of the reply."""
        text, reasoning, calls, finish, usage, model, refused, done, opaque, needs_done = delta
        if text:
            self._text.append(text)
        if reasoning:
            self._reasoning.append(reasoning)
        for fragment in calls:
            self._add_call(fragment)
        for number, data in opaque:
            _merge(self._opaque.setdefault(number, {}), data)
        if finish is not None:
            self._finish, self._needs_done = finish, needs_done
        if usage is not None:
            self.token_counts.add(usage)
        if model and not self._model:
            self._model = model
        if refused:
            self._refused = True
        if done:
            self.done = True

    def build(self, model: str, withheld: tuple[str, ...] = (), usage: TokenUsage | None = None) -> Reply:
        """Return the whole reply, with what was `withheld` of the call, and its usage, unless that is known already.

        `model` is the requested one, for providers that do not name theirs.

        Raises: EngineError when the reply is incomplete or malformed, or ended as a failure.
        """
        if not self.is_complete:
            raise malformed_reply("the reply ended before its terminal marker")
        raw = self._finish or ""
        finish = AttemptFailureReason.CONTENT_FILTERED if self._refused else self._finish_reasons.get(raw, "stop")
        if isinstance(finish, AttemptFailureReason):
            raise EngineError(finish, "the provider ended its reply as a failure")
        calls = self._tool_calls(truncated=finish == "length") if self._calls else ()
        usage = self.token_counts.usage() if usage is None else usage
        return Reply(
            text="".join(self._text),
            tool_calls=calls,
            finish_reason="tool" if calls and finish == "stop" else finish,
            raw_finish="" if raw in self._finish_reasons else raw,
            usage=usage,
            model=self._model or model,
            reasoning="".join(self._reasoning),
            withheld=withheld,
            flags=(USAGE_IMPLAUSIBLE,) if usage is NO_USAGE and self.token_counts.is_known else (),
            kept=(*map(_joined, self._opaque.values()), *self._signatures(calls)) if self._opaque or calls else (),
        )

    def _signatures(self, calls: Sequence[ToolCall]) -> Iterator[dict[str, Any]]:
        for open_call, call in zip(self._calls, calls, strict=True):
            if open_call.signature:
                yield {"call": call.id, "signature": open_call.signature}

    def _add_call(self, fragment: ToolCallFragment) -> None:
        if self._finish is not None and not fragment.is_complete and (fragment.name or fragment.arguments):
            raise malformed_reply("the reply continues a tool call after its finish reason")
        call = None if fragment.is_complete else self._continued_call(fragment)
        if call is None:
            call = _OpenCall(fragment.id, fragment.name, fragment.signature)
            if not fragment.runs_at_provider:
                self._calls.append(call)
        if fragment.index is not None:
            self._calls_by_index[fragment.index] = call
        call.id = call.id or fragment.id
        call.name = call.name or fragment.name
        call.signature = call.signature or fragment.signature
        call.arguments.append(fragment.arguments)

    def _continued_call(self, fragment: ToolCallFragment) -> _OpenCall | None:
        """Return the call that a fragment continues, None when it starts one.

        A fragment without a name continues a call. One with a name starts a call where its index is new, and also
        where the index is missing or not counted up, as some servers do, unless its id or name repeats the open call's.
        """
        index = fragment.index
        call = self._calls_by_index.get(index) if index is not None else self._calls[-1] if self._calls else None
        if call is None or not fragment.name or not call.name:
            return call
        if fragment.id:
            return call if fragment.id == call.id else None
        return call if index is not None and fragment.name == call.name else None

    def _tool_calls(self, *, truncated: bool) -> tuple[ToolCall, ...]:
        for call in self._calls:
            if not 1 <= len(call.name) <= MAX_NAME_CHARACTERS or len(call.id) > MAX_NAME_CHARACTERS:
                raise malformed_reply("the reply has a tool call without a usable name or id")
        calls = tuple(
            ToolCall(id=call.id or f"call_{number}", name=call.name, arguments=_arguments(call, truncated=truncated))
            for number, call in enumerate(self._calls)
        )
        if len({call.id for call in calls}) < len(calls):
            raise malformed_reply("the reply has two tool calls with one id")
        return calls


def _merge(block: dict[str, Any], data: Mapping[str, Any]) -> None:
    for key, value in data.items():
        if not isinstance(value, str):
            block[key] = value
        elif isinstance(fragments := block.get(key), _TextFragments):
            fragments.append(value)
        else:
            block[key] = _TextFragments([value])


def _joined(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: "".join(value) if isinstance(value, _TextFragments) else value for key, value in block.items()}


def _arguments(call: _OpenCall, *, truncated: bool) -> dict[str, Any]:
    text = "".join(call.arguments)
    if not text.strip() and not truncated:
        return {}
    arguments = _parsed_object(text)
    if arguments is None and truncated:
        raise malformed_reply("the reply was cut within a tool call")
    return {UNREADABLE_ARGUMENTS: text} if arguments is None else arguments


def _parsed_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None for any other text, and for an object too deep to be sent back."""
    try:
        value = loads(text.encode(), max_depth=MAX_WRITABLE_DEPTH)
    except ValueError:
        return None
    is_too_deep = text.count("{") + text.count("[") > MAX_NESTING and _is_deeper(value, MAX_NESTING)
    return value if isinstance(value, dict) and not is_too_deep else None


def _is_deeper(value: Any, levels: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if children is None:
        return False
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)
