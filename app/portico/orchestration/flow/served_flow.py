"""A flow as the service runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portico.domain.journal.events import CorrelationContext
from portico.orchestration.flow.context import Context
from portico.orchestration.flow.graph import FlowGraph


@dataclass(frozen=True, slots=True)
class ServedFlow:
    """A registered flow with the context of its functions. `on_error` takes the errors of its nodes to the log."""

    graph: FlowGraph[Any, Any]
    context: Context
    on_error: Callable[[CorrelationContext, str, Exception], None]
