"""Reports of exceptions in other people's code.

They go to the log and are no events, since events are stored and shown to readers.
"""

from typing import Final

from portico.capabilities.context.redaction import Redactor
from portico.domain.contract.request import SystemRequest
from portico.domain.journal.events import CorrelationContext
from portico.domain.raised_exception import CodeKind, ExceptionReport, RaisedException
from portico.domain.value import replace, value
from portico.orchestration.execution.environment import Environment

MAX_TEXT: Final = 300
"""Characters of the text of an exception in the log."""


@value
class ExceptionReporter:
    """Reporter of the exceptions that a request meets; there is no `correlation` before its execution begins."""

    environment: Environment
    request: SystemRequest
    correlation: CorrelationContext | None = None

    def report(self, kind: CodeKind, name: str, error: BaseException | RaisedException) -> None:
        """Report an exception of the code of that name.

        Its text is redacted and then cut, and left out if nothing is stored of the request.
        """
        if self.environment.on_exception is None:
            return
        raised = RaisedException.of(error) if isinstance(error, BaseException) else error
        text = Redactor().text(raised.text)[:MAX_TEXT] if self.request.store else None
        report = ExceptionReport(kind, name, raised.type, text, raised.frames, self.request.request_id)
        span = self.correlation
        if span is not None:
            report = replace(report, request_id=span.request_id, trace_id=span.trace_id, span_id=span.span_id)
        self.environment.on_exception(report)
