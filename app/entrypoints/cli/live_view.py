"""An execution as a person watches it: one line an event, and tokens as they come."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from app.domain.contract.response import SystemResponse
from app.domain.journal import events
from app.domain.journal.events import InferenceDelta, LiveDelta, StoredEvent
from app.entrypoints.cli.exit_codes import printable


def _moved(event: events.LifecycleTransition) -> str:
    return f"{event.from_state or 'start'} → {event.to_state}  {event.reason}"


def _fell_back(event: events.FallbackTransition) -> str:
    provider = f"{event.provider}  " if event.provider else ""
    return f"{event.from_state} → {event.to_state}  {provider}{event.reason}"


def _stage_ended(event: events.StageEnd) -> str:
    return f"{event.stage}  {event.outcome}  {event.duration_ms:.1f} ms"


def _inference_began(event: events.InferenceStart) -> str:
    return f"{event.provider} {event.model}  {event.message_count} messages, {event.tool_defs_count} tools"


def _inference_ended(event: events.InferenceEnd) -> str:
    tokens = f"{event.tokens_in} tokens in, {event.tokens_out} out"
    return f"{event.finish_reason}  {tokens}, {event.tool_call_count} tool calls  {event.duration_ms:.1f} ms"


def _tool_ended(event: events.ToolEnd) -> str:
    return f"{event.tool_name}  {event.error_code or 'ok'}  {event.duration_ms:.1f} ms"


def _judged(event: events.ValidationEnd) -> str:
    return f"{'valid' if event.valid else 'not valid'}  {len(event.errors)} errors, {len(event.warnings)} warnings"


def _voted(event: events.VoteDecided) -> str:
    outcome = event.error_code or f"{event.votes} votes of {event.replicas}"
    return f"{outcome}{'  stopped early' if event.stopped_early else ''}"


def _step_ended(event: events.StepEnd) -> str:
    code = f"  {event.error_code}" if event.error_code else ""
    return f"{event.step_type}  {event.status}{code}  {event.duration_ms:.1f} ms"


def _ended(event: events.TerminalEvent) -> str:
    usage = event.response.token_usage
    return f"{event.response.state}  {usage.total_tokens} tokens{' (estimated)' if usage.estimated else ''}"


@dataclass(frozen=True, slots=True)
class _Look:
    style: str
    summary: Callable[[Any], str]


_LOOKS: Mapping[type[Any], _Look] = MappingProxyType(
    {
        events.LifecycleTransition: _Look("cyan", _moved),
        events.FallbackTransition: _Look("yellow", _fell_back),
        events.StageEnd: _Look("dim", _stage_ended),
        events.InferenceStart: _Look("blue", _inference_began),
        events.InferenceRetracted: _Look("yellow", lambda event: f"{event.segment}: what it said is void"),
        events.InferenceEnd: _Look("blue", _inference_ended),
        events.ToolStart: _Look("magenta", lambda event: f"{event.tool_name}"),
        events.ToolEnd: _Look("magenta", _tool_ended),
        events.ConstraintRepaired: _Look("yellow", lambda event: f"{len(event.repairs)} repairs"),
        events.ValidationEnd: _Look("cyan", _judged),
        events.PlanCreated: _Look("cyan", lambda event: f"{event.planner_id}  {len(event.steps)} steps"),
        events.VoteCast: _Look("cyan", lambda event: f"replica {event.replica}  {event.error_code or event.status}"),
        events.VoteDecided: _Look("cyan", _voted),
        events.StepStart: _Look("bold cyan", lambda event: f"{event.step_type}  attempt {event.attempt}"),
        events.StepEnd: _Look("bold cyan", _step_ended),
        events.ExecutionSuspended: _Look("yellow", lambda event: f"{len(event.suspensions)} open questions"),
        events.ExecutionResumed: _Look("yellow", lambda event: f"{event.tool_id} answered by {event.resumed_by}"),
        events.ExecutionCompleted: _Look("green", _ended),
        events.ExecutionFailed: _Look("red", _ended),
        events.ExecutionCancelled: _Look("red", _ended),
    }
)


@dataclass(slots=True)
class LiveView:
    """Writes events to `lines`, and tokens to `tokens` when there is one, each segment on lines of its own.

    `shown` is the text of the last segment, whole when nothing was missed.
    """

    lines: Console
    tokens: TextIO | None
    shown: str = ""
    _began: float | None = None
    _open: bool = field(default=False)

    def show(self, item: StoredEvent | LiveDelta) -> None:
        """Shows one event."""
        if isinstance(item.event, InferenceDelta):
            self._show_token(item.event)
            return
        self.end_line()
        look = _LOOKS[type(item.event)]
        self._began = item.at if self._began is None else self._began
        passed = f"{item.at - self._began:8.3f} s  "
        step = f"{item.correlation.step_name}: " if item.correlation.step_name else ""
        summary = printable(f"{step}{look.summary(item.event)}")
        self.lines.print(
            Text.assemble((passed, "dim"), (f"{item.event.type:<22}", look.style), summary), soft_wrap=True
        )

    def end_line(self) -> None:
        """Ends the line that tokens have begun."""
        if self._open and self.tokens is not None:
            self.tokens.write("\n")
            self.tokens.flush()
        self._open = False

    def _show_token(self, delta: InferenceDelta) -> None:
        if self.tokens is None or not delta.text:
            return
        self.shown = delta.text if delta.offset == 0 else self.shown + delta.text
        self.tokens.write(for_terminal(delta.text) if self.tokens.isatty() else delta.text)
        self.tokens.flush()
        self._open = True


def write_answer(response: SystemResponse, out: TextIO) -> None:
    """The answer's text on lines of its own."""
    text = response.content or ""
    out.write((for_terminal(text) if out.isatty() else text) + "\n")
    out.flush()


def for_terminal(text: str) -> str:
    """The text without what could steer a terminal; its lines and tabs stay."""
    return "".join(each if each in "\n\t" else printable(each) for each in text)
