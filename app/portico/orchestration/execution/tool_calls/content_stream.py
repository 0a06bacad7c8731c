"""Live frames with the arguments, the progress and the result of tool calls; nothing of them is recorded."""

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Final

import orjson
from pydantic import JsonValue

from portico.capabilities.guards.sensitive_text import beginning
from portico.domain.contract.messages import ToolCall
from portico.domain.ids import ToolCallId
from portico.domain.journal.events import MAX_TOOL_CONTENT, CorrelationContext, ToolContent, ToolProgress
from portico.orchestration.execution.execution import Execution

PROGRESS_INTERVAL_S: Final = 0.2
"""Seconds between two reports of the progress of a call."""
MAX_PROGRESS_MESSAGE: Final = 500
"""Characters of the message of a report."""
_CUT_MARK: Final = "\n[cut: the text was longer]"


class ContentStream:
    """Publisher of the arguments and the result of a call; without readers, or if that is switched off, of nothing."""

    def __init__(self, execution: Execution, correlation: CorrelationContext) -> None:
        environment, self._execution_id = execution.environment, execution.header.execution_id
        self._branches, feed = execution.branches, environment.event_feed
        self.has_readers = environment.stream_tool_content and feed.has_subscribers(self._execution_id)
        """True if what is shown is published."""
        self._journal = environment.journal if self.has_readers else None
        self._correlation = correlation
        self._gate = execution.branches.input_gate
        self.shows_progress = environment.stream_tool_content
        """True if it is shown how far the call is."""
        self.pending: ToolProgress | None = None
        """The last progress, while it waits for its turn."""
        self._clock = environment.clock
        self._reported_at = -inf
        self.has_reported = self.is_over = False
        """Whether the call has said how far it is, and whether nothing that it says counts any more."""

    def show(
        self,
        call_id: ToolCallId,
        *,
        arguments: Mapping[str, JsonValue] | None = None,
        result: str | None = None,
        client: bool = False,
    ) -> None:
        """Publish the arguments, or else the result; what is too long is cut, and marked.

        It is held back until the judges have passed the input. Of some calls the `client` runs the tool.
        """
        if self._journal is None:
            return
        shown: JsonValue = None
        if arguments is not None:
            text = orjson.dumps(arguments).decode()
            shown = dict(arguments) if len(text) <= MAX_TOOL_CONTENT else _cut(text)
        content = ToolContent(call_id, shown, None if result is None else _cut(result), client)
        publish = partial(self._journal.publish_delta, self._execution_id, self._correlation, content)
        if self._gate is None:
            publish()
        else:
            self._gate.hold(publish)

    def end_progress(self) -> None:
        """Publish the last progress if it still waits."""
        pending, self.pending = self.pending, None
        if pending is not None:
            self._publish(pending)
        self._branches.progress = None

    def report(self, call: ToolCall, progress: float, message: str) -> None:
        """Publish how far the call is, unless the last time was a moment ago."""
        if self.is_over:
            return
        self.has_reported = True
        self.pending = ToolProgress(call.name, call.id, progress, message[:MAX_PROGRESS_MESSAGE])
        now = self._clock.monotonic()
        if now - self._reported_at >= PROGRESS_INTERVAL_S:
            pending, self.pending, self._reported_at = self.pending, None, now
            self._publish(pending)

    def _publish(self, event: ToolProgress) -> None:
        if self._gate is None:
            self._show_progress(event)
        else:
            self._gate.hold(partial(self._show_progress, event))

    def _show_progress(self, event: ToolProgress) -> None:
        """Show the progress in the view of the execution while the call runs, and to its readers."""
        if not self.is_over:
            self._branches.progress = event
        if self._journal is not None:
            self._journal.publish_delta(self._execution_id, self._correlation, event)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TOOL_CONTENT else f"{beginning(text, MAX_TOOL_CONTENT)}{_CUT_MARK}"
