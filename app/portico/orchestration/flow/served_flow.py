"""A flow as the service runs it."""

from collections.abc import Callable
from typing import Any

from portico.domain.journal.events import CorrelationContext
from portico.domain.value import value
from portico.orchestration.flow.context import Context
from portico.orchestration.flow.graph import FlowGraph


@value
class ServedFlow:
    """A registered flow with the context of its functions. `on_error` takes the errors of its nodes to the log."""

    graph: FlowGraph[Any, Any]
    context: Context
    on_error: Callable[[CorrelationContext, str, Exception], None]
