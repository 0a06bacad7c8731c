"""Registration of flows: a function that returns a graph, under a name."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from portico.domain.value import replace, value
from portico.orchestration.flow.graph import FlowGraph

Input = TypeVar("Input", bound=BaseModel)
Output = TypeVar("Output", bound=BaseModel)


@value
class FlowDefinition(Generic[Input, Output]):
    """A flow that modules of the configuration register. Calling it returns its graph.

    `provide` are dependencies that its functions find in their context.
    """

    name: str
    build: Callable[[], FlowGraph[Input, Output]]
    provide: tuple[object, ...] = ()

    def __call__(self) -> FlowGraph[Input, Output]:
        """Return the graph. Raises: what the function raises, such as Invalid."""
        return replace(self.build(), name=self.name)


def flow(
    name: str, *, provide: Sequence[object] = ()
) -> Callable[[Callable[[], FlowGraph[Any, Any]]], FlowDefinition[Any, Any]]:
    """Return a decorator that registers the graph that a function returns."""

    def decorate(build: Callable[[], FlowGraph[Any, Any]]) -> FlowDefinition[Any, Any]:
        return FlowDefinition(name, build, tuple(provide))

    return decorate
