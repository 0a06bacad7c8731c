"""Progress: results and conversation of a run so far; its ledger counts usage and calls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple, Protocol

from pydantic import JsonValue

from portico.capabilities.models.context_window import Window
from portico.domain.context.report import ContextTerms
from portico.domain.contract.final_answer import PhaseEInput
from portico.domain.contract.messages import Message
from portico.domain.contract.response import StepStatus
from portico.domain.failures import Code
from portico.domain.ids import SpanId
from portico.domain.journal.events import CorrelationContext, Event, StepEnd
from portico.domain.journal.outcomes import Candidate, InferenceSetup, Prepared
from portico.domain.journal.step_key import StepKey
from portico.domain.model_call import Reply
from portico.domain.pattern_result import PatternResult
from portico.domain.tools import OfferedTool, ToolDefinition
from portico.orchestration.execution.tool_call_state import ToolCallState
from portico.ports.model import ConfiguredEngine

NO_SETUP = InferenceSetup((), ())


class _LastReply(NamedTuple):
    """The last reply of a conversation, and the calls that it asks for; it `is_followed` once messages come after.

    `span` is that of the attempt that gave it, if it asks for calls.
    """

    reply: Reply
    calls: Sequence[ToolCallState]
    span: SpanId | None
    is_followed: bool = False


class Conversation:
    """The conversation of one branch with a model.

    `turn_start` is the index of the first message behind what the branch began with. The next inference is asked the
    `pending` messages, too, and if the last answer `was_rejected` it may ask another provider.
    """

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages = list(messages)
        self.sizes: list[int] = []
        """Estimated tokens of the first messages, without correction, as far as they were counted."""
        self.turn_start = 0
        self.inherited = 0
        """Number of the first messages that a fork has from its origin."""
        self.speaker: Candidate | None = None
        """Who gave the last answer."""
        self.was_rejected = False
        self.pending: Sequence[Message] = ()
        self.open_calls: Sequence[ToolCallState] = ()
        self.setup = NO_SETUP
        self.first_setup: FirstSetup | None = None
        """What PREPARE has found for the first inference of the conversation."""
        self.round_span: SpanId | None = None
        """Span of the attempt whose tool round ended last, until an inference follows it."""
        self._last: _LastReply | None = None

    @property
    def new_messages(self) -> list[Message]:
        """The tool rounds and the last answer that followed what the conversation began with."""
        rounds = [each for each in self.messages[self.turn_start :] if each.role == "tool" or each.tool_calls]
        return [*rounds, *self._last_answer()]

    @property
    def rounds_at_end(self) -> list[Message]:
        """The tool rounds that followed what the conversation began with, with a result for each call.

        It was ended before its last answer, if that is not a round.
        """
        behind = [*self.messages[self.turn_start :], *self._unfollowed(has_ended=True)]
        return [each for each in behind if each.role == "tool" or each.tool_calls]

    @property
    def transcript(self) -> list[Message]:
        """All messages, the last answer included."""
        return [*self.messages, *self._last_answer()]

    def messages_so_far(self, *, has_ended: bool) -> list[Message]:
        """Return all messages, each once, with the results of the last calls; once it `has_ended`, of all of them."""
        return [*self.messages, *self._unfollowed(has_ended=has_ended)]

    @property
    def last_text(self) -> str:
        """The text of the last answer; empty without one."""
        return "" if self._last is None else self._last.reply.text

    def inherit(self, messages: Sequence[Message], prepared: Sequence[Message]) -> None:
        """Note that a fork has those of these first messages from its origin that are of its inherited PREPARE."""
        shared = takewhile(lambda pair: pair[0] is pair[1], zip(messages, prepared, strict=False))
        self.inherited = len(list(shared))

    def extend(self, messages: Sequence[Message]) -> list[Message]:
        """Add the last answer, these messages and those that are pending; return what was added."""
        is_first = not self.messages
        added = [*messages] if is_first else [*self._last_answer(), *messages]
        if self._last is not None:
            self._last = self._last._replace(is_followed=True)
        if self.pending:
            added += self.pending
            self.pending = ()
        self.messages += added
        if is_first:
            self.turn_start = len(self.messages)
        return added

    def end_round(self, results: Sequence[Message]) -> None:
        """Add the last answer with the results of its calls, which no inference follows now."""
        self.extend(results)
        self._last = None

    def answer(
        self,
        reply: Reply,
        speaker: Candidate,
        setup: InferenceSetup,
        calls: Sequence[ToolCallState],
        span: SpanId | None,
    ) -> None:
        """Take a reply with the calls that it asks for, the span of its attempt, and the tools that it was offered."""
        self._last, self.speaker = _LastReply(reply, calls, span), speaker
        self.setup, self.open_calls = setup, calls

    def take_open_calls(self) -> Sequence[ToolCallState]:
        """Return the calls of the last reply, which are no longer open."""
        calls, self.open_calls = self.open_calls, ()
        self.round_span = None if self._last is None else self._last.span
        return calls

    def restarted(self) -> "Conversation":
        """Return an empty conversation with the same provider."""
        fresh = Conversation()
        fresh.speaker = self.speaker
        return fresh

    def copy(self) -> "Conversation":
        """Return the conversation as another branch continues it; open calls stay behind."""
        copied = Conversation(self.messages)
        copied.turn_start, copied.speaker = self.turn_start, self.speaker
        copied.inherited = self.inherited
        copied.was_rejected, copied.pending = self.was_rejected, self.pending
        copied._last = None if self._last is None else self._last._replace(calls=(), span=None)
        return copied

    def _last_answer(self) -> list[Message]:
        if self._last is None or self.speaker is None:
            return []
        return [self._last.reply.message(self.speaker.provider, self.speaker.account)]

    def _unfollowed(self, *, has_ended: bool) -> list[Message]:
        """Return the last answer, with the results of its calls, unless messages follow it already."""
        if self._last is None or self._last.is_followed:
            return []
        results = [state.message() for state in self._last.calls if has_ended or state.has_ended]
        return [*self._last_answer(), *results]


@dataclass(slots=True)
class StepProgress:
    """A plan step in progress. Its latest attempt started behind step `anchor`, at `started_at` in Unix seconds."""

    step_type: str
    correlation: CorrelationContext
    pass_number: int | None = None
    attempt: int = 0
    anchor: str = ""
    started_at: float = 0.0

    def end_event(self, status: StepStatus, *, at: float, code: Code | None) -> StepEnd:
        """Return the end of the latest attempt."""
        duration_ms = max(0.0, at - self.started_at) * 1000
        return StepEnd(self.step_type, self.attempt, status, duration_ms, code, self.pass_number)


class FirstSetup(NamedTuple):
    """Setup of the first inference as PREPARE has found it: what it is offered, and its size in the largest window.

    It holds for an inference of these `messages`, `models` and `names` of tools, as long as the step of PREPARE is not
    committed: then nothing was waited for either, so that nothing can have changed.
    """

    messages: list[Message]
    models: Sequence[str | None]
    engines: Sequence[ConfiguredEngine]
    names: Sequence[str]
    tools: tuple[OfferedTool, ...]
    definitions: list[ToolDefinition]
    window: Window
    terms: ContextTerms


class UnfinishedRound(Protocol):
    """A tool round that has started and not ended."""

    def kept_from_running(self) -> Iterable[tuple[StepKey, CorrelationContext, Sequence[Event]]]:
        """Return the start and the end of each call that the end of the execution kept from running, with its place."""
        ...


class UnfinishedCall(Protocol):
    """A call whose agent or code has started and not ended."""

    def cut_off(self, code: Code, at: float) -> tuple[str, CorrelationContext, Event]:
        """Return the end of the call, which did not come to its own end, with its place in the record."""
        ...


class RunProgress:
    """Progress of one run. The pattern and the driver write it, and the response is built from it.

    `partial_result` is shown if nothing better follows. `findings` returns what the pattern has found so far, by name,
    and `phase_e_input` the state of its passes, if it runs in passes.
    """

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.prepared: Prepared | None = None
        self.prepared_at = 0.0
        self.partial_result: PatternResult | None = None
        self.findings: Callable[[], Mapping[str, JsonValue]] | None = None
        self.phase_e_input: Callable[[], PhaseEInput] | None = None
        self.steps: list[StepProgress] = []
        """Plan steps that have started and not ended."""
        self.nested_calls: list[UnfinishedCall] = []
        """Calls whose agents or code have started and not ended."""
        self.rounds: list[UnfinishedRound] = []
        """Tool rounds that have started and not ended."""
        self.left_out: set[str] = set()
        """Tools of agents that were called which the principal may not use, as `tools.NAME`."""

    @property
    def prepared_messages(self) -> Sequence[Message]:
        """The messages with which the execution began; none before PREPARE."""
        return () if self.prepared is None else self.prepared.messages
