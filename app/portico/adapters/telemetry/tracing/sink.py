"""Span sink: builds the spans of executions from what is recorded, and queues them for export.

Theory of operation

1. A sampled execution has a span tree that reads its events as they are published. An execution that is not sampled has
   none, only its events are listed, until its end shows whether it is kept as one that failed or failed over.
2. Spans are queued when the execution rests: at a suspension those that have ended, at its end all others. So a replica
   that crashes has queued nothing of what came after the last rest, and the next owner, which reads the whole history,
   queues exactly that: every span is built once.
3. Nothing is stored for it: the ids of spans follow from the record, and whether to record them stands in the header.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from portico.adapters.telemetry.tracing.attributes import CallFacts, EngineFacts
from portico.adapters.telemetry.tracing.span_draft import SpanDraft
from portico.adapters.telemetry.tracing.span_tree import SpanTree
from portico.domain.contract.request import ExecutionHints
from portico.domain.failures import Code
from portico.domain.fallback import State as FsmState
from portico.domain.ids import ExecutionId
from portico.domain.journal.events import (
    RESTING_EVENTS,
    STORED_EVENT_TYPES,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    FallbackTransition,
    LiveDelta,
    StoredEvent,
)
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import Outcome, RecordedStep
from portico.domain.value import replace, value
from portico.ports.journal import ExecutionHistory

Export = Callable[[ExecutionHeader, Sequence[SpanDraft]], None]


@value
class SpanConfig:
    """Configuration of spans: the executions that are kept though they are not sampled, and what spans show."""

    engines: Mapping[str, EngineFacts]
    sample_errors: bool
    capture_content: bool


@dataclass(slots=True)
class _Run:
    """An execution that runs here. `tree` is that of a sampled one; all others have their `events` instead."""

    header: ExecutionHeader
    outcomes: dict[str, Outcome]
    tree: SpanTree | None = None
    events: list[StoredEvent | LiveDelta] = field(default_factory=list)
    calls: dict[str, CallFacts] = field(default_factory=dict)
    last_event: int = 0


class SpanSink:
    """Implementation of the `EventSink`, `StreamSink`, `JournalObserver` and `ModelCallObserver` ports."""

    def __init__(self, config: SpanConfig, export: Export) -> None:
        self.wanted = STORED_EVENT_TYPES
        self._config = config
        self._export = export
        self._runs: dict[ExecutionId, _Run] = {}

    def opened(self, history: ExecutionHistory) -> None:
        header = history.header
        if not header.sampled and not self._config.sample_errors:
            return
        run = _Run(header, {key: step.outcome for key, step in history.steps.items()})
        self._runs[header.execution_id] = run
        if not header.sampled:
            run.events += history.events
            return
        run.tree = self._tree(run)
        if history.events:
            run.last_event = history.events[-1].sequence_number
        for item in history.events:
            run.tree.add(item)
            if type(item.event) is ExecutionSuspended:
                run.tree.take_finished()  # the replica that suspended it has queued them

    def recorded(self, execution_id: ExecutionId, step: RecordedStep) -> None:
        run = self._runs.get(execution_id)
        if run is not None:
            run.outcomes[step.key] = step.outcome

    def called(self, execution_id: ExecutionId, segment: str, hints: ExecutionHints, *, is_streamed: bool) -> None:
        run = self._runs.get(execution_id)
        if run is not None:
            run.calls[segment] = CallFacts(hints, is_streamed)

    def closed(self, execution_id: ExecutionId) -> None:
        self._runs.pop(execution_id, None)

    def publish(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        run = self._runs.get(execution_id)
        if run is None:
            return
        if run.tree is None:
            run.events += items
        else:
            self._grow(run, run.tree, items)
        if type(items[-1].event) in RESTING_EVENTS:
            self._rest(run)

    def streamed(self, execution_id: ExecutionId, segment: str, first_at: float | None, count: int) -> None:
        run = self._runs.get(execution_id)
        call = None if run is None else run.calls.get(segment)
        if run is not None and call is not None:
            run.calls[segment] = replace(call, first_chunk_at=first_at)

    def _grow(self, run: _Run, tree: SpanTree, items: Sequence[StoredEvent | LiveDelta]) -> None:
        """Read these items, each event once."""
        for item in items:
            if isinstance(item, StoredEvent) and item.sequence_number > run.last_event:
                run.last_event = item.sequence_number
                tree.add(item)

    def _rest(self, run: _Run) -> None:
        """Queue the spans that have ended; of an execution that is not sampled, all of them if it is kept."""
        tree = run.tree
        if tree is None:
            if not _is_kept(run.events):
                return
            tree = self._tree(run)
            self._grow(run, tree, run.events)
        finished = tree.take_finished()
        if finished:
            self._export(run.header, finished)

    def _tree(self, run: _Run) -> SpanTree:
        config = self._config
        return SpanTree(run.header, config.engines, run.outcomes, run.calls, capture_content=config.capture_content)


def _is_kept(events: Sequence[StoredEvent | LiveDelta]) -> bool:
    """Return True for an execution that ended with a failure or at its deadline, or failed over."""
    last = events[-1].event
    if not isinstance(last, ExecutionCompleted | ExecutionFailed | ExecutionCancelled):
        return False
    error = last.response.error
    if error is not None and error.code != Code.CANCELLED_SIGNAL:
        return True
    return last.response.metadata.fallback_attempts > 0 and any(_is_failover(item) for item in events)


def _is_failover(item: StoredEvent | LiveDelta) -> bool:
    """Return True for a transition that leaves a provider for another one."""
    event = item.event
    return (
        type(event) is FallbackTransition
        and event.to_state is FsmState.SELECTING
        and event.from_state is not FsmState.IDLE
    )
