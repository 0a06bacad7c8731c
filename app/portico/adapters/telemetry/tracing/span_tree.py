"""Span tree: the spans of one execution, built from the pairs of its events.

Theory of operation

1. Every event names its span in its correlation. A start event opens that span, an end event ends it; all others are
   events within it. The root ends with the terminal event, which also ends what a crash or a limit cut off.
2. The plan is bracketed by the states of the lifecycle, a pass by its first step and `pass.end`, a flow's node by its
   first event and `flow.step`. A replica begins with the first event of its span, and so does the vote around it, whose
   own event comes last; the run of an agent lies within the call that asked for it.
3. A crash leaves a start without an end. The next start of the same effect, or a retraction, ends the interrupted run,
   which gets an id of its own: the id that the events have belongs to the run that came to its end.
4. Events that a fork inherited happened in its origin and make no spans.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from portico.adapters.telemetry.tracing import attributes
from portico.adapters.telemetry.tracing.attributes import CallFacts, EngineFacts
from portico.adapters.telemetry.tracing.span_draft import OTHER_ERROR, Attributes, SpanDraft, SpanEvent, SpanKind
from portico.domain.contract.messages import ToolCall
from portico.domain.failures import Code
from portico.domain.fallback import Event as FsmEvent
from portico.domain.fallback import State as FsmState
from portico.domain.fingerprints import span_id
from portico.domain.ids import SpanId, ToolCallId
from portico.domain.journal import events
from portico.domain.journal.events import StoredEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import AttemptSucceeded, Outcome, ToolEnded
from portico.domain.journal.step_key import PLAN_KEY
from portico.domain.lifecycle import State

_SUCCESSES = frozenset({FsmEvent.START, FsmEvent.PROVIDER_SUCCESS})
_EFFECTS = frozenset({SpanKind.INFERENCE, SpanKind.TOOL, SpanKind.RETRIEVAL})


class SpanTree:
    """The spans of one execution. `outcomes` are those of its steps so far, by key, and `calls` its model calls."""

    def __init__(
        self,
        header: ExecutionHeader,
        engines: Mapping[str, EngineFacts],
        outcomes: Mapping[str, Outcome],
        calls: Mapping[str, CallFacts],
        *,
        capture_content: bool,
    ) -> None:
        self._header = header
        self._engines = engines
        self._outcomes = outcomes
        self._calls = calls
        self._capture_content = capture_content
        self._open: dict[SpanId, SpanDraft] = {}
        self._finished: list[SpanDraft] = []
        self._arguments: dict[ToolCallId, ToolCall] = {}
        self._interruptions = 0
        self._root: SpanDraft | None = None
        self._seen: set[SpanId] = {header.root_span_id, span_id(header.execution_id, PLAN_KEY)}
        """The spans so far; of a fork, whose other spans are those of its origin."""

    def add(self, item: StoredEvent) -> None:
        """Read the next event of the execution."""
        fork = self._header.fork
        if fork is not None and fork.inherits(item.anchor):
            return
        handler = _HANDLERS.get(type(item.event))
        if handler is None:
            self._add_event(self._span_of(item), item)
        else:
            handler(self, item, item.event)

    def take_finished(self) -> list[SpanDraft]:
        """Return the spans that have ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def _root_span(self, at: float) -> SpanDraft:
        if self._root is None:
            header = self._header
            found = attributes.execution_start(header, capture_content=self._capture_content)
            name = attributes.execution_name(header)
            root = SpanDraft(SpanKind.EXECUTION, name, header.root_span_id, header.parent_span_id, at, found)
            self._root = self._open[header.root_span_id] = root
        return self._root

    def _start(
        self, item: StoredEvent, kind: SpanKind, name: str, found: Attributes | None = None, at: float | None = None
    ) -> SpanDraft:
        """Open the span of the event below its parent; what is open under its id was interrupted."""
        correlation = item.correlation
        self._interrupt(correlation.span_id, item.at)
        parent = self._known_parent(correlation.parent_span_id, item)
        started_at = item.at if at is None else at
        span = SpanDraft(kind, name, correlation.span_id, parent, started_at, {} if found is None else found)
        self._open[correlation.span_id] = span
        if self._header.fork is not None:
            self._seen.add(correlation.span_id)
        return span

    def _known_parent(self, parent: SpanId | None, item: StoredEvent) -> SpanId:
        """Return the parent if it is a span of this execution; one that a fork inherited has none here."""
        root = self._root_span(item.at).span_id
        return root if parent is None or (self._header.fork is not None and parent not in self._seen) else parent

    def _span_of(self, item: StoredEvent) -> SpanDraft:
        """Return the open span of the event; one that nothing has opened begins with it."""
        correlation = item.correlation
        root = self._root_span(item.at)
        span = self._open.get(correlation.span_id)
        if span is not None:
            return span
        parent = self._open.get(correlation.parent_span_id) if correlation.parent_span_id is not None else None
        if parent is not None and parent.kind is SpanKind.TOOL:
            name, found = attributes.nested_agent(parent.name.partition(" ")[2])
            return self._start(item, SpanKind.AGENT, name, found, at=parent.started_at)
        if parent is not None and parent.kind is not SpanKind.VOTE and correlation.step_name is not None:
            return self._start(item, SpanKind.STEP, f"step {correlation.step_name}")
        if correlation.parent_span_id is None or (parent is not None and parent.kind is not SpanKind.VOTE):
            return root
        return self._start_replica(item, correlation.parent_span_id)

    def _start_replica(self, item: StoredEvent, vote: SpanId) -> SpanDraft:
        """Open the span of a replica, and of the vote that it takes part in."""
        if vote not in self._open:
            above = self._enclosing(item)
            self._open[vote] = SpanDraft(SpanKind.VOTE, "vote", vote, above, item.at)
        return self._start(item, SpanKind.REPLICA, "replica")

    def _enclosing(self, item: StoredEvent) -> SpanId:
        """Return the innermost open span that the place of the event lies in."""
        key, execution_id = item.anchor, self._header.execution_id
        while key:
            key = key.rpartition("/")[0]
            found = self._open.get(span_id(execution_id, key))
            if found is not None:
                return found.span_id
        return self._root_span(item.at).span_id

    def _add_event(self, span: SpanDraft, item: StoredEvent) -> None:
        event = item.event
        span.events.append(SpanEvent(f"portico.{event.type}", item.at, attributes.event_attributes(event)))

    def _end(self, span: SpanDraft, at: float, error: str | None = None) -> None:
        del self._open[span.span_id]
        span.end(at, error)
        self._finished.append(span)

    def _end_below(self, parent: SpanDraft, at: float, error: str | None) -> None:
        """End what is still open within a span that ends."""
        for span in [each for each in self._open.values() if each.parent_id == parent.span_id and each is not parent]:
            self._end_below(span, at, error)
            self._end(span, at, OTHER_ERROR if span.kind in _EFFECTS else error)

    def _interrupt(self, interrupted: SpanId, at: float) -> None:
        """End the span that is open under this id, as that of a run which a crash interrupted."""
        span = self._open.pop(interrupted, None)
        if span is None:
            return
        self._interruptions += 1
        span.span_id = span_id(self._header.execution_id, f"{interrupted}#{self._interruptions}")
        span.end(at, OTHER_ERROR)
        self._finished.append(span)

    def _on_transition(self, item: StoredEvent, event: events.LifecycleTransition) -> None:
        root = self._root_span(item.at)
        self._add_event(root, item)
        planning = span_id(self._header.execution_id, PLAN_KEY)
        if event.to_state is State.PLAN:
            found = attributes.plan_attributes()
            self._open[planning] = SpanDraft(SpanKind.PLAN, "plan", planning, root.span_id, item.at, found)
        elif event.from_state is State.PLAN and planning in self._open:
            error = event.reason.upper() if event.to_state in {State.ERROR, State.CANCELLED} else None
            span = self._open[planning]
            self._end_below(span, item.at, error)
            self._end(span, item.at, error)

    def _on_fallback(self, item: StoredEvent, event: events.FallbackTransition) -> None:
        """Show what a failure led to; an attempt that was chosen, or that answered, is a span itself."""
        span = self._span_of(item)
        if event.fsm_event not in _SUCCESSES or event.from_state is FsmState.RETRYING:
            self._add_event(span, item)

    def _on_stage_end(self, item: StoredEvent, _event: events.StageEnd) -> None:
        """Pass over a stage: its duration stands in the trace of the execution and in a histogram."""
        self._root_span(item.at)

    def _on_inference_start(self, item: StoredEvent, event: events.InferenceStart) -> None:
        span = self._start(
            item, SpanKind.INFERENCE, f"chat {event.model}", attributes.inference_start(event, self._engines)
        )
        replica = self._open.get(span.parent_id) if span.parent_id is not None else None
        if replica is not None and replica.kind is SpanKind.REPLICA and event.replica is not None:
            _name_replica(replica, event.replica)
        if self._root is not None:
            self._root.attributes.setdefault("gen_ai.request.model", event.model)

    def _on_inference_end(self, item: StoredEvent, event: events.InferenceEnd) -> None:
        span = self._open.get(item.correlation.span_id)
        if span is None:
            return
        outcome, call = self._outcomes.get(item.anchor), self._calls.get(event.segment)
        capture_content = self._capture_content
        if call is not None:
            span.attributes |= attributes.inference_call(call, span.started_at, capture_content=capture_content)
        span.attributes |= attributes.inference_end(event, outcome, capture_content=capture_content)
        if capture_content and isinstance(outcome, AttemptSucceeded):
            self._arguments |= {call.id: call for call in outcome.reply.tool_calls}
        if self._root is not None and span.parent_id == self._root.span_id:
            self._root.attributes["gen_ai.response.finish_reasons"] = [event.finish_reason]
        self._end(span, item.at, attributes.inference_error(event, outcome))

    def _on_retraction(self, item: StoredEvent, _event: events.InferenceRetracted) -> None:
        span = self._open.get(item.correlation.span_id)
        if span is not None and span.kind is SpanKind.INFERENCE:
            self._interrupt(span.span_id, item.at)
        else:
            self._add_event(self._span_of(item), item)

    def _on_tool_start(self, item: StoredEvent, event: events.ToolStart) -> None:
        found = attributes.tool_start(event, self._arguments.get(event.tool_call_id))
        self._start(item, SpanKind.TOOL, f"execute_tool {event.tool_name}", found)

    def _on_tool_end(self, item: StoredEvent, event: events.ToolEnd) -> None:
        span = self._open.get(item.correlation.span_id)
        if span is None:
            return
        outcome = self._outcomes.get(item.anchor)
        if event.error_code is Code.TOOL_NOT_FOUND:
            span.name = "execute_tool unknown"
            del span.attributes["gen_ai.tool.name"]
        if self._capture_content and isinstance(outcome, ToolEnded):
            span.attributes |= attributes.tool_result(outcome.content)
        self._end_below(span, item.at, event.error_code)
        self._end(span, item.at, event.error_code)

    def _on_retrieval_start(self, item: StoredEvent, event: events.RetrievalStart) -> None:
        self._start(item, SpanKind.RETRIEVAL, "retrieval memory", attributes.retrieval_attributes(event))

    def _on_retrieval_end(self, item: StoredEvent, event: events.RetrievalEnd) -> None:
        span = self._open.get(item.correlation.span_id)
        if span is not None:
            span.attributes["portico.retrieval.found"] = event.found
            self._end(span, item.at)

    def _on_step_start(self, item: StoredEvent, event: events.StepStart) -> None:
        if event.pass_number is not None:
            self._require_pass(item, event.pass_number)
        ended = None
        if event.attempt > 1:
            ended = next((each for each in self._finished if each.span_id == item.correlation.span_id), None)
        if ended is None:
            self._start(item, SpanKind.STEP, f"step {item.correlation.step_name}")
        else:
            self._finished.remove(ended)
            self._open[ended.span_id] = ended

    def _on_step_end(self, item: StoredEvent, event: events.StepEnd) -> None:
        span = self._open.get(item.correlation.span_id)
        if span is not None:
            span.attributes |= attributes.step_attributes(event)
            self._end(span, item.at, event.error_code)

    def _require_pass(self, item: StoredEvent, number: int) -> SpanDraft:
        """Return the span of that pass; it begins with the first of its events."""
        own = span_id(self._header.execution_id, f"pass/{number}")
        if own not in self._open:
            root = self._root_span(item.at).span_id
            found: Attributes = {"portico.pass": number}
            self._open[own] = SpanDraft(SpanKind.PLAN_PASS, f"pass {number}", own, root, item.at, found)
        return self._open[own]

    def _on_pass_end(self, item: StoredEvent, event: events.PassEnd) -> None:
        span = self._require_pass(item, event.pass_number)
        span.attributes |= attributes.pass_attributes(event)
        self._end_below(span, item.at, None)
        self._end(span, item.at)

    def _on_node_start(self, item: StoredEvent, event: events.NodeStart) -> None:
        if item.correlation.span_id not in self._open:
            self._start(item, SpanKind.STEP, f"step {event.node}")

    def _on_flow_step(self, item: StoredEvent, event: events.FlowStep) -> None:
        if event.outcome == "done":
            self._add_event(self._root_span(item.at), item)
            return
        span = self._open.get(item.correlation.span_id)
        if span is None:
            span = self._start(item, SpanKind.STEP, f"step {event.node}")
        if event.outcome == "continue":
            self._end_below(span, item.at, None)
            self._end(span, item.at)
        else:
            self._add_event(span, item)

    def _on_vote_cast(self, item: StoredEvent, event: events.VoteCast) -> None:
        span = self._open.get(item.correlation.span_id) or self._span_of(item)
        _name_replica(span, event.replica)
        self._add_event(span, item)
        self._end_below(span, item.at, event.error_code)
        self._end(span, item.at, event.error_code)

    def _on_vote_decided(self, item: StoredEvent, event: events.VoteDecided) -> None:
        span = self._open.get(item.correlation.span_id)
        if span is None:
            span = self._start(item, SpanKind.VOTE, "vote")
        span.parent_id = self._known_parent(item.correlation.parent_span_id, item)
        span.attributes |= attributes.vote_attributes(event)
        self._end_below(span, item.at, None)
        self._end(span, item.at, event.error_code)

    def _on_end(self, item: StoredEvent, event: events.TerminalEvent) -> None:
        root, error = self._root_span(item.at), event.response.error
        root.attributes |= attributes.execution_end(event)
        code = None if error is None else error.code
        self._end_below(root, item.at, code)
        for span in [each for each in self._open.values() if each is not root]:
            self._end(span, item.at, code)
        self._end(root, item.at, code)


def _name_replica(span: SpanDraft, replica: int) -> None:
    span.name = f"replica {replica}"
    span.attributes["portico.replica"] = replica


_HANDLERS: Mapping[type[Any], Callable[[SpanTree, StoredEvent, Any], None]] = MappingProxyType(
    {
        events.LifecycleTransition: SpanTree._on_transition,
        events.FallbackTransition: SpanTree._on_fallback,
        events.InferenceStart: SpanTree._on_inference_start,
        events.InferenceEnd: SpanTree._on_inference_end,
        events.InferenceRetracted: SpanTree._on_retraction,
        events.ToolStart: SpanTree._on_tool_start,
        events.ToolEnd: SpanTree._on_tool_end,
        events.RetrievalStart: SpanTree._on_retrieval_start,
        events.RetrievalEnd: SpanTree._on_retrieval_end,
        events.StepStart: SpanTree._on_step_start,
        events.StepEnd: SpanTree._on_step_end,
        events.PassEnd: SpanTree._on_pass_end,
        events.NodeStart: SpanTree._on_node_start,
        events.FlowStep: SpanTree._on_flow_step,
        events.VoteCast: SpanTree._on_vote_cast,
        events.VoteDecided: SpanTree._on_vote_decided,
        events.StageEnd: SpanTree._on_stage_end,
        events.ExecutionCompleted: SpanTree._on_end,
        events.ExecutionFailed: SpanTree._on_end,
        events.ExecutionCancelled: SpanTree._on_end,
    }
)
