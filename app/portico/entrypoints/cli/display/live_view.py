"""Live view of an execution: one line per event, and tokens as they arrive."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TextIO

import orjson
from rich.console import Console
from rich.text import Text

from portico.domain.contract.response import SystemResponse
from portico.domain.journal import events
from portico.domain.journal.events import InferenceDelta, LiveDelta, StoredEvent, ToolContent, ToolProgress
from portico.domain.value import value
from portico.entrypoints.cli.display.terminal import printable

_SHOWN_CHARACTERS = 200


def _transition(event: events.LifecycleTransition) -> str:
    return f"{event.from_state or 'start'} → {event.to_state}  {event.reason}"


def _fallback(event: events.FallbackTransition) -> str:
    provider = f"{event.provider}  " if event.provider else ""
    return f"{event.from_state} → {event.to_state}  {provider}{event.reason}"


def _stage(event: events.StageEnd) -> str:
    return f"{event.stage}  {event.outcome}  {event.duration_ms:.1f} ms"


def _context(event: events.ContextAssembled) -> str:
    cut = f", {event.cut.messages} messages cut" if event.cut.messages else ""
    redacted = f", {sum(event.redacted.values())} values redacted" if event.redacted else ""
    return f"{event.terms.used} of {event.terms.limit} tokens{cut}{redacted}"


def _inference_start(event: events.InferenceStart) -> str:
    return f"{event.provider} {event.model}  {event.message_count} messages, {event.tool_defs_count} tools"


def _inference_end(event: events.InferenceEnd) -> str:
    tokens = f"{event.tokens_in} tokens in, {event.tokens_out} out"
    return f"{event.finish_reason}  {tokens}, {event.tool_call_count} tool calls  {event.duration_ms:.1f} ms"


def _tool(event: events.ToolEnd) -> str:
    return f"{event.tool_name}  {event.error_code or 'ok'}  {event.duration_ms:.1f} ms"


def _validation(event: events.ValidationEnd) -> str:
    return f"{'valid' if event.valid else 'not valid'}  {len(event.errors)} errors, {len(event.warnings)} warnings"


def _ballot(event: events.VoteCast) -> str:
    return f"replica {event.replica}  {event.error_code or event.status}"


def _guard(event: events.GuardEnd) -> str:
    return f"{event.guard}  {f'tripped: {event.action}' if event.tripped else 'passed'}"


def _vote(event: events.VoteDecided) -> str:
    outcome = event.error_code or f"{event.votes} votes of {event.replicas}"
    return f"{outcome}{'  stopped early' if event.stopped_early else ''}"


def _step(event: events.StepEnd) -> str:
    code = f"  {event.error_code}" if event.error_code else ""
    return f"{event.step_type}  {event.status}{code}  {event.duration_ms:.1f} ms"


def _pass(event: events.PassEnd) -> str:
    verdict = "converged" if event.converged else f"not converged: {', '.join(event.reasons)}"
    scores = [f"{name} {score:.2f}" for name, score in _scores(event) if score is not None]
    return "  ".join([f"{event.pass_number}", verdict, *scores, f"passes left {event.ttl_remaining}"])


def _scores(event: events.PassEnd) -> list[tuple[str, float | None]]:
    return [("completeness", event.completeness), ("coherence", event.coherence)]


def _retrieval(event: events.RetrievalEnd) -> str:
    legs = f"lexical {event.lexical}, vector {event.vector}"
    return f"{event.found} of {event.top_k} chunks  {legs}  {event.duration_ms:.1f} ms"


def _resumed(event: events.ExecutionResumed) -> str:
    return f"{event.tool_id} answered by {event.resumed_by}" if event.resumed_by else f"{event.tool_id} expired"


def _terminal(event: events.TerminalEvent) -> str:
    usage = event.response.token_usage
    return f"{event.response.state}  {usage.total_tokens} tokens{' (estimated)' if usage.estimated else ''}"


@value
class _EventStyle:
    style: str
    summary: Callable[[Any], str]


_STYLES: Mapping[type[Any], _EventStyle] = MappingProxyType(
    {
        events.LifecycleTransition: _EventStyle("cyan", _transition),
        events.FallbackTransition: _EventStyle("yellow", _fallback),
        events.StageEnd: _EventStyle("dim", _stage),
        events.ContextAssembled: _EventStyle("dim", _context),
        events.GuardEnd: _EventStyle("yellow", _guard),
        events.InferenceStart: _EventStyle("blue", _inference_start),
        events.InferenceRetracted: _EventStyle("yellow", lambda event: f"{event.segment}: its text is void"),
        events.InferenceEnd: _EventStyle("blue", _inference_end),
        events.ToolStart: _EventStyle("magenta", lambda event: f"{event.tool_name}"),
        events.ToolEnd: _EventStyle("magenta", _tool),
        events.ConstraintRepaired: _EventStyle("yellow", lambda event: f"{len(event.repairs)} repairs"),
        events.ValidationEnd: _EventStyle("cyan", _validation),
        events.PlanCreated: _EventStyle("cyan", lambda event: f"{event.planner_id}  {len(event.steps)} steps"),
        events.VoteCast: _EventStyle("cyan", _ballot),
        events.VoteDecided: _EventStyle("cyan", _vote),
        events.StepStart: _EventStyle("bold cyan", lambda event: f"{event.step_type}  attempt {event.attempt}"),
        events.StepEnd: _EventStyle("bold cyan", _step),
        events.PassEnd: _EventStyle("bold cyan", _pass),
        events.NodeStart: _EventStyle("bold cyan", lambda event: "runs"),
        events.FlowStep: _EventStyle("bold cyan", lambda event: f"{event.node}  {event.outcome}"),
        events.RetrievalStart: _EventStyle("blue", lambda event: f"up to {event.top_k} chunks"),
        events.RetrievalEnd: _EventStyle("blue", _retrieval),
        events.ExecutionSuspended: _EventStyle("yellow", lambda event: f"{len(event.suspensions)} open suspensions"),
        events.ExecutionResumed: _EventStyle("yellow", _resumed),
        events.ApprovalGiven: _EventStyle(
            "yellow", lambda event: f"approved by {event.user}  {event.given} of {event.needed}"
        ),
        events.ExecutionCompleted: _EventStyle("green", _terminal),
        events.ExecutionFailed: _EventStyle("red", _terminal),
        events.ExecutionCancelled: _EventStyle("red", _terminal),
    }
)


@dataclass(slots=True)
class LiveView:
    """A view that writes events to `lines` and tokens to `tokens`, if given, each segment on lines of its own.

    `shown` is the text of the last segment, which is complete unless deltas were missed.
    """

    lines: Console
    tokens: TextIO | None
    shown: str = ""
    _started_at: float | None = None
    _in_line: bool = field(default=False)

    def show(self, item: StoredEvent | LiveDelta) -> None:
        """Show one event."""
        if isinstance(item.event, InferenceDelta):
            self._show_token(item.event)
            return
        if isinstance(item.event, ToolContent):
            self._show_content(item, item.event)
            return
        if isinstance(item.event, ToolProgress):
            percent = f"{item.event.progress:.0%} {item.event.message}".rstrip()
            self._show_text(item, f"{item.event.tool_name}: {percent}")
            return
        self.end_line()
        shown_as = _STYLES[type(item.event)]
        self._started_at = item.at if self._started_at is None else self._started_at
        elapsed = f"{item.at - self._started_at:8.3f} s  "
        step = f"{item.correlation.step_name}: " if item.correlation.step_name else ""
        summary = printable(f"{step}{shown_as.summary(item.event)}")
        self.lines.print(
            Text.assemble((elapsed, "dim"), (f"{item.event.type:<22}", shown_as.style), summary), soft_wrap=True
        )

    def end_line(self) -> None:
        """End a line of tokens."""
        if self._in_line and self.tokens is not None:
            self.tokens.write("\n")
            self.tokens.flush()
        self._in_line = False

    def close(self) -> None:
        """Show what stands below all events; nothing here."""

    def _show_content(self, item: StoredEvent | LiveDelta, content: ToolContent) -> None:
        """Show what a tool was given or what it returned, on one line."""
        arguments = orjson.dumps(content.arguments).decode() if content.result is None else None
        self._show_text(item, f"← {content.result}" if arguments is None else f"→ {arguments}")

    def _show_text(self, item: StoredEvent | LiveDelta, whole: str) -> None:
        """Show a text of a tool on one line."""
        self.end_line()
        text = printable(whole).replace("\n", " ")
        elapsed = f"{item.at - (item.at if self._started_at is None else self._started_at):8.3f} s  "
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        self.lines.print(Text.assemble((elapsed, "dim"), (f"{item.event.type:<22}", "magenta"), shown), soft_wrap=True)

    def _show_token(self, delta: InferenceDelta) -> None:
        if self.tokens is None or not delta.text:
            return
        self.shown = delta.text if delta.offset == 0 else self.shown + delta.text
        self.tokens.write(for_terminal(delta.text) if self.tokens.isatty() else delta.text)
        self.tokens.flush()
        self._in_line = True


def write_answer(response: SystemResponse, out: TextIO) -> None:
    """Write the text of the answer on lines of its own."""
    write_text(response.content or "", out)


def write_text(text: str, out: TextIO) -> None:
    """Write the text on lines of its own, without control characters if a terminal shows it."""
    out.write((for_terminal(text) if out.isatty() else text) + "\n")
    out.flush()


def for_terminal(text: str) -> str:
    """Return the text with control characters escaped, except for newlines and tabs."""
    return "".join(each if each in "\n\t" else printable(each) for each in text)
