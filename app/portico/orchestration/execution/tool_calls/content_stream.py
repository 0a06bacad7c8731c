"""Live frames with the arguments and the result of tool calls; nothing of them is recorded."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import orjson
from pydantic import JsonValue

from portico.capabilities.guards.sensitive_text import beginning
from portico.domain.ids import ToolCallId
from portico.domain.journal.events import MAX_TOOL_CONTENT, CorrelationContext, ToolContent
from portico.orchestration.execution.execution import Execution

_CUT_MARK: Final = "\n[cut: the text was longer]"


class ContentStream:
    """Publisher of the arguments and the result of a call; without readers, or if that is switched off, of nothing."""

    def __init__(self, execution: Execution, correlation: CorrelationContext) -> None:
        environment, self._execution_id = execution.environment, execution.header.execution_id
        has_readers = environment.stream_tool_content and environment.event_feed.has_subscribers(self._execution_id)
        self._journal = environment.journal if has_readers else None
        self._correlation = correlation
        self._gate = execution.branches.input_gate

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


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TOOL_CONTENT else f"{beginning(text, MAX_TOOL_CONTENT)}{_CUT_MARK}"
