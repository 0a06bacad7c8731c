"""A flow as the service runs it."""

from typing import Any

from portico.domain.value import value
from portico.orchestration.flow.context import Context
from portico.orchestration.flow.graph import FlowGraph


@value
class ServedFlow:
    """A registered flow with the context of its functions."""

    graph: FlowGraph[Any, Any]
    context: Context
