"""A turn: what a client API shows of an execution, from its response or from its events as they come.

A turn has, in order, for each turn of the model its text and the calls that ran here, and at its end the calls that the
client has to run, or the approvals that are open. Modes other than chat show the content of the answer only.

Theory of operation

1. `turn_of` makes the whole turn of a response.
2. `TurnReader` makes changes of the events of one execution. It follows the top-level inferences only: agents that are
   called as tools, judges and planners have texts of their own, which are no part of the answer.
3. `DisplayTime` decides when a text is shown. LIVE shows each delta as it comes. COMMITTED shows the text of an
   inference once that was answered, so that no failover can take it back. END shows nothing before the response.
4. At the response, everything that it has and that was not shown yet is shown, in order. So a reader that came late, or
   reads on a replica that does not run the execution, misses nothing.
5. With END the reasoning of a chat is kept, and shown with the turns of the response that it belongs to.
6. If a text was shown and is then retracted, the turn breaks: texts of two attempts are never joined.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from portico.domain.contract.request import OutputContract, SystemRequest
from portico.domain.contract.response import (
    Suspension,
    SuspensionKind,
    SystemError,
    SystemResponse,
    TokenUsage,
    ToolCallStatus,
)
from portico.domain.failures import Code, InferenceFailure
from portico.domain.ids import RequestId, SuspensionId, ToolCallId
from portico.domain.journal.events import (
    Event,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    InferenceDelta,
    InferenceEnd,
    InferenceRetracted,
    InferenceStart,
    LiveDelta,
    LiveEvent,
    StoredEvent,
    ToolContent,
    ToolStart,
)
from portico.domain.journal.suspensions import DECISION_KINDS
from portico.domain.lifecycle import Mode
from portico.domain.value import replace, value
from portico.entrypoints.http.client_apis.ids import client_call_id

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
_FINISH_REASONS: Final[Mapping[str, FinishReason]] = MappingProxyType(
    {
        "tool": "tool_calls",
        "length": "length",
        "model_length": "length",
        "max_tokens": "length",
        "MAX_TOKENS": "length",
        "content_filter": "content_filter",
        "refusal": "content_filter",
    }
)
_BEGUN: Final = frozenset({ToolCallStatus.DONE, ToolCallStatus.FAILED})


class DisplayTime(Enum):
    """The time at which the text of a turn is shown, see the theory of operation."""

    LIVE = auto()
    COMMITTED = auto()
    END = auto()


@value
class TextItem:
    """Text of one turn of the model."""

    text: str


@value
class ReasoningItem:
    """Reasoning before a text, as far as it was streamed; a response has none."""

    text: str


@value
class ServerCallItem:
    """A call that ran here. `output` and `is_error` are None until it has ended.

    `arguments` is None while they are not known: events have them only with `telemetry.stream_tool_content`.
    """

    id: ToolCallId
    name: str
    arguments: Mapping[str, Any] | None = None
    output: str | None = None
    is_error: bool | None = None


@value
class ClientCallItem:
    """A call that the client has to run. `id` is `call_HEX_N`."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@value
class ApprovalItem:
    """A call that waits for a person: for an approval, for what became of it, or for a credential."""

    suspension_id: SuspensionId
    kind: SuspensionKind
    name: str
    arguments: Mapping[str, Any]


Item: TypeAlias = TextItem | ReasoningItem | ServerCallItem | ClientCallItem | ApprovalItem


@value
class Turn:
    """A whole turn. `usage` is that of the whole execution, `response` what it was made of."""

    request_id: RequestId
    items: Sequence[Item]
    finish: FinishReason
    usage: TokenUsage
    response: SystemResponse

    @property
    def texts(self) -> Sequence[str]:
        """The texts of the model's turns, in order."""
        return [item.text for item in self.items if isinstance(item, TextItem)]

    @property
    def client_calls(self) -> Sequence[ClientCallItem]:
        """The calls that the client has to run, in order."""
        return [item for item in self.items if isinstance(item, ClientCallItem)]


@value
class ItemStarted:
    """Begin of the item at that position; a text or reasoning is empty yet, a call may lack arguments and output."""

    position: int
    item: Item


@value
class TextAdded:
    """More text of the open text or reasoning at that position."""

    position: int
    text: str


@value
class TextRetracted:
    """Withdrawal of the text at that position, and of the reasoning before it; it does not end any more."""

    position: int


@value
class ItemEnded:
    """End of the item at that position, which is whole now."""

    position: int
    item: Item


@value
class TurnSuspended:
    """The execution waits for a person; the turn goes on with the answer."""

    turn: Turn


@value
class TurnEnded:
    """End of a turn that ended well. No change follows."""

    turn: Turn


@value
class TurnBroken:
    """End of a turn that did not end well. No change follows.

    `was_retracted` is True if the execution goes on, but a text was shown that does not count any more.
    """

    error: SystemError
    was_retracted: bool = False


TurnChange: TypeAlias = ItemStarted | TextAdded | TextRetracted | ItemEnded | TurnSuspended | TurnEnded | TurnBroken


def delivery_of(mode: Mode, request: SystemRequest, output: OutputContract) -> DisplayTime:
    """Return when the text of this request is shown unless its client asks otherwise.

    `mode` and `output` are those in force: of the request, or of its agent.
    """
    if mode is not Mode.CHAT or output.rules or output.semantic or request.on_limit == "salvage":
        return DisplayTime.END
    return DisplayTime.COMMITTED if request.background else DisplayTime.LIVE


def turn_of(response: SystemResponse) -> Turn:
    """Return the turn of a response that completed or is suspended."""
    return Turn(
        request_id=response.request_id,
        items=_items(response),
        finish=finish_of(response),
        usage=response.token_usage,
        response=response,
    )


def finish_of(response: SystemResponse) -> FinishReason:
    """Return the reason why the turn ended; a client call is a reason of its own."""
    if response.client_calls:
        return "tool_calls"
    reason = _FINISH_REASONS.get(response.metadata.finish_reason or "", "stop")
    return "stop" if reason == "tool_calls" else reason


def _items(response: SystemResponse) -> Sequence[Item]:
    items: list[Item] = []
    if response.mode is Mode.CHAT:
        items += _chat_items(response)
    elif response.content:
        items.append(TextItem(response.content))
    for number, call in enumerate(response.client_calls):
        items.append(ClientCallItem(client_call_id(response.request_id, number), call.name, call.arguments))
    if response.suspensions:
        items += [_approval(each) for each in response.suspensions if each.kind in DECISION_KINDS]
    return items


def _chat_items(response: SystemResponse) -> Iterator[Item]:
    """Yield the text of each turn of the model, and behind it the calls of that turn that ran here.

    The answer stands as `content` has it, also for those to whom the messages before it are redacted.
    """
    made = {call.id: call for call in reversed(response.tool_calls_made) if call.status in _BEGUN and not call.client}
    turns = [message for message in response.messages if message.role == "assistant"]
    for message in turns:
        is_answer = message is turns[-1] and not message.tool_calls
        text = (response.content or "") if is_answer else message.text
        if text:
            yield TextItem(text)
        for call in message.tool_calls or ():
            ran = made.get(call.id)
            if ran is not None:
                yield ServerCallItem(call.id, ran.name, ran.arguments, ran.result, ran.is_error)
    if not turns and response.content:
        yield TextItem(response.content)


def _approval(suspension: Suspension) -> ApprovalItem:
    arguments = suspension.value.get("arguments") if isinstance(suspension.value, dict) else None
    shown = arguments if isinstance(arguments, dict) else {}
    return ApprovalItem(suspension.suspension_id, suspension.kind, suspension.tool_id, shown)


class TurnReader:
    """Reader of one execution's events, from the first one on or from a later one.

    The text of a model's turn is one item, which ends when the next one starts. Calls that ran here start in the order
    in which the model asked for them, and end together, when their round is over. Texts of a chat follow each other;
    in other modes there is one, so that a second one retracts the first.
    """

    def __init__(
        self,
        mode: Mode,
        delivery: DisplayTime,
        *,
        is_whole: bool = True,
        ends_at_suspension: bool = False,
        shows_reasoning: bool = False,
        retracts: bool = False,
        shown_before: Sequence[Item] = (),
    ) -> None:
        """`is_whole` tells that no event is missing; else texts are shown at the end once one may have been missed.

        With `ends_at_suspension` a suspension ends the turn, else it is a change of its own. With `retracts` a text
        that was shown is withdrawn by a change of its own, else it breaks the turn. `shown_before` are the items that
        the client has from the time before a suspension; positions count on from them.
        """
        self.is_over = False
        self._is_chat = mode is Mode.CHAT
        self._delivery = delivery
        self._is_whole = is_whole
        self._ends_at_suspension = ends_at_suspension
        self._shows_reasoning = shows_reasoning
        self._has_begun = is_whole
        self._attempt: _Attempt | None = None
        self._round: Sequence[ToolCallId] = ()
        self._started: dict[ToolCallId, ServerCallItem] = {}
        """The calls of the round that have started."""
        self._retracts = retracts
        self._shown = _Shown(shown_before)

    def read(self, items: Sequence[StoredEvent | LiveDelta]) -> Sequence[TurnChange]:
        """Return what these events change, in order; nothing once the turn is over."""
        if not self._has_begun and items:
            self._has_begun = True
            if not (isinstance(items[0], StoredEvent) and items[0].sequence_number == 1):
                self._delivery = DisplayTime.END
        for item in items:
            if not self.is_over:
                self._take(item.event)
        return self._shown.take_changes()

    def _take(self, event: Event | LiveEvent) -> None:
        match event:
            case InferenceDelta():
                self._take_delta(event)
            case InferenceStart() if _is_top_level(event.segment):
                self._end_round()
            case InferenceEnd() if _is_top_level(event.segment):
                self._take_end(event)
            case InferenceRetracted() if self._attempt is not None and event.segment == self._attempt.segment:
                self._retract(self._attempt)
            case ToolStart() | ToolContent() if event.tool_call_id in self._round and self._is_chat:
                self._take_call(event)
            case ExecutionSuspended() if not self._ends_at_suspension:
                self._shown.add(TurnSuspended(turn_of(event.response)))
            case ExecutionCompleted() | ExecutionSuspended():
                self._end(event.response)
            case ExecutionFailed() | ExecutionCancelled():
                assert event.response.error is not None  # noqa: S101 - both have one
                self._break(event.response.error)
            case _:
                pass

    @property
    def _keeps_reasoning(self) -> bool:
        """True if the reasoning is shown at the end, too."""
        return self._shows_reasoning and self._is_chat and self._is_whole and self._delivery is DisplayTime.END

    def _take_delta(self, delta: InferenceDelta) -> None:
        attempt = self._attempt
        if attempt is None or attempt.segment != delta.segment:
            is_unused = self._delivery is DisplayTime.END and not self._keeps_reasoning
            if is_unused or not _is_top_level(delta.segment):
                return
            attempt = self._begin_attempt(delta)
        kind, text = (TextItem, delta.text) if delta.text is not None else (ReasoningItem, delta.reasoning)
        if not text or (kind is ReasoningItem and (not self._shows_reasoning or attempt.has_text)):
            return
        attempt.has_text = attempt.has_text or kind is TextItem
        if self._delivery is DisplayTime.LIVE or attempt.is_committed:
            self._show(attempt, kind, text)
        else:
            attempt.unshown.append((kind, text))

    def _begin_attempt(self, delta: InferenceDelta) -> "_Attempt":
        """Begin another attempt. If its begin is missing, texts are shown at the end from now on."""
        if delta.offset and not self._is_whole:
            self._delivery = DisplayTime.END
        self._attempt = _Attempt(delta.segment)
        return self._attempt

    def _take_end(self, end: InferenceEnd) -> None:
        if end.finish_reason not in _ANSWERED:
            return
        attempt = self._attempt
        if attempt is None or attempt.segment != end.segment:
            attempt = self._attempt = _Attempt(end.segment)
            if not self._is_whole:
                self._delivery = DisplayTime.END
        attempt.is_committed = True
        if self._keeps_reasoning:
            reasoning = "".join([text for kind, text in attempt.unshown if kind is ReasoningItem])
            self._shown.reasoned.append((reasoning, end.tool_call_ids))
        for kind, text in attempt.unshown:
            self._show(attempt, kind, text)
        attempt.unshown.clear()
        self._round, self._started = end.tool_call_ids, {}

    def _show(self, attempt: "_Attempt", kind: type[TextItem | ReasoningItem], text: str) -> None:
        if self._delivery is DisplayTime.END or self.is_over:
            return
        if kind is TextItem and not self._is_chat and self._shown.texts and not attempt.is_shown:
            if not self._retracts:
                self._break(_RETRACTED, was_retracted=True)
                return
            self._shown.retract_text()
        attempt.is_shown = attempt.is_shown or kind is TextItem
        self._shown.add_text(kind, text, attempt.segment)

    def _retract(self, attempt: "_Attempt") -> None:
        if attempt.is_shown and self._retracts:
            self._shown.retract_text()
        elif attempt.is_shown:
            self._break(_RETRACTED, was_retracted=True)
        self._attempt = None

    def _take_call(self, event: ToolStart | ToolContent) -> None:
        call = self._started.get(event.tool_call_id)
        if isinstance(event, ToolStart):
            if call is None:
                self._started[event.tool_call_id] = ServerCallItem(event.tool_call_id, event.tool_name)
        elif call is not None:
            known = {"arguments": event.arguments} if event.result is None else {"output": event.result}
            self._started[event.tool_call_id] = replace(call, **known)
        if self._delivery is not DisplayTime.END:
            for call_id in self._round:
                if call_id not in self._started:
                    return
                self._shown.start_call(self._started[call_id])

    def _end_round(self) -> None:
        """Show the calls of the round that have started but stand behind one that has not, and end all of them."""
        calls = [self._started[call_id] for call_id in self._round if call_id in self._started]
        if self._delivery is not DisplayTime.END:
            for call in calls:
                self._shown.start_call(call)
            for call in calls:
                self._shown.end_call(call)
        self._round, self._started = (), {}

    def _end(self, response: SystemResponse) -> None:
        """Show what was not shown yet, and end the turn."""
        turn = turn_of(response)
        whole = {item.id: item for item in turn.items if isinstance(item, ServerCallItem)}
        self._started = {call_id: whole.get(call_id, call) for call_id, call in self._started.items()}
        self._end_round()
        self._shown.add_missing(_with_reasoning(turn.items, self._shown.reasoned))
        self._shown.add(TurnEnded(turn))
        self.is_over = True

    def _break(self, error: SystemError, *, was_retracted: bool = False) -> None:
        self._shown.add(TurnBroken(error, was_retracted=was_retracted))
        self.is_over = True


def _with_reasoning(items: Sequence[Item], reasoned: Sequence[tuple[str, Sequence[ToolCallId]]]) -> Sequence[Item]:
    """Return the items with the reasoning of each inference before its own; that of a text which was given up has none.

    From the end on, so that positions before an insertion stay.
    """
    found = list(items)
    for number, (text, call_ids) in enumerate(reversed(reasoned)):
        at = _begin_of(found, call_ids, is_last=number == 0)
        if text and at is not None:
            found.insert(at, ReasoningItem(text))
    return found


def _begin_of(items: Sequence[Item], call_ids: Sequence[ToolCallId], *, is_last: bool) -> int | None:
    """Return the position of the first item of the inference that asked for these calls; None if there is none."""
    ran = (at for at, item in enumerate(items) if isinstance(item, ServerCallItem) and item.id in call_ids)
    at = next(ran, None)
    if at is None and is_last:
        left = (at for at, item in enumerate(items) if isinstance(item, ClientCallItem | ApprovalItem))
        at = next(left, len(items))
    return at - 1 if at and isinstance(items[at - 1], TextItem) else at


class _Attempt:
    """Attempt whose deltas are read: what waits for its commit, and whether any of its text was shown."""

    __slots__ = ("has_text", "is_committed", "is_shown", "segment", "unshown")

    def __init__(self, segment: str) -> None:
        self.segment = segment
        self.unshown: list[tuple[type[TextItem | ReasoningItem], str]] = []
        self.has_text = self.is_committed = self.is_shown = False


class _Shown:
    """Changes that were made, and the items that they add up to."""

    def __init__(self, before: Sequence[Item]) -> None:
        self.texts = sum(isinstance(item, TextItem) for item in before)
        """Texts of the model's turns."""
        self.reasoned: list[tuple[str, Sequence[ToolCallId]]] = []
        """The reasoning that is kept for the end: that of each answered inference, with the calls it asked for."""
        self._changes: list[TurnChange] = []
        self._position = len(before) - 1
        self._last_text = -1
        """The position of the last text."""
        self._kind: type[TextItem | ReasoningItem] | None = None
        """The kind of the text that is open at the last position; None if none is."""
        self._segment = ""
        self._pieces: list[str] = []
        self._calls: dict[ToolCallId, int] = {
            item.id: position for position, item in enumerate(before) if isinstance(item, ServerCallItem)
        }
        """The positions of the calls that were started."""

    def take_changes(self) -> Sequence[TurnChange]:
        changes, self._changes = self._changes, []
        return changes

    def add(self, change: TurnChange) -> None:
        self._changes.append(change)

    def add_text(self, kind: type[TextItem | ReasoningItem], text: str, segment: str) -> None:
        """Add to the open text if it is of that kind and segment, else start another one."""
        if self._kind is not kind or self._segment != segment:
            self.end_text()
            self._start(kind(""))
            self._kind, self._segment = kind, segment
            if kind is TextItem:
                self.texts, self._last_text = self.texts + 1, self._position
        self._pieces.append(text)
        self._changes.append(TextAdded(self._position, text))

    def end_text(self) -> None:
        if self._kind is not None:
            self._changes.append(ItemEnded(self._position, self._kind("".join(self._pieces))))
            self._pieces, self._kind = [], None

    def retract_text(self) -> None:
        """Withdraw the last text, whether it is open or has ended."""
        self._pieces, self._kind = [], None
        self.texts -= 1
        self._changes.append(TextRetracted(self._last_text))

    def start_call(self, call: ServerCallItem) -> None:
        """Start the call, once."""
        if call.id not in self._calls:
            self.end_text()
            self._start(call)
            self._calls[call.id] = self._position

    def end_call(self, call: ServerCallItem) -> None:
        self._changes.append(ItemEnded(self._calls[call.id], call))

    def add_missing(self, items: Sequence[Item]) -> None:
        """End the open text, and add the items that were not shown."""
        texts = 0
        for number, item in enumerate(items):
            match item:
                case TextItem():
                    texts += 1
                    if texts > self.texts:
                        self.add_text(TextItem, item.text, f"items/{number}")
                        self.texts = texts
                case ReasoningItem():
                    self.add_text(ReasoningItem, item.text, f"items/{number}")
                case ServerCallItem() if item.id in self._calls:
                    pass
                case _:
                    self.end_text()
                    self._start(item)
                    self._changes.append(ItemEnded(self._position, item))
        self.end_text()

    def _start(self, item: Item) -> None:
        self._position += 1
        self._changes.append(ItemStarted(self._position, item))


_ANSWERED: Final = frozenset({"stop", "tool", "length"})
_RETRACTED: Final = SystemError.of(
    InferenceFailure(Code.INFERENCE_MALFORMED_RESPONSE, "what was streamed was taken back; ask again")
)
_TOP_LEVEL = re.compile(r"\d+/\d+(#\d+)?")


def _is_top_level(segment: str) -> bool:
    """Return True for an attempt of the outermost conversation: those of agents and judges lie deeper."""
    return _TOP_LEVEL.fullmatch(segment) is not None
