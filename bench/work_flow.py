"""Flow of work nodes, which a service registers."""

from typing import Any

from pydantic import BaseModel, create_model

from portico.orchestration.flow import Context, FlowGraph, flow

WORK_NODES = 20


class End(BaseModel):
    """The output of all flows here."""

    number: int = 0


def chain(length: int) -> FlowGraph[Any, End]:
    """Return a flow of so many work nodes, one behind the other."""
    models = [create_model(f"State{number}", number=(int, 0)) for number in range(length)]
    builder: Any = FlowGraph.builder(models[0], End)
    targets: list[type[BaseModel]] = [*models[1:], End]
    for source, target in zip(models, targets, strict=True):
        builder = builder.work(increment(source, target))
    graph: FlowGraph[Any, End] = builder.build()
    return graph


@flow("work")
def work() -> FlowGraph[Any, End]:
    """Return the flow that the service runs."""
    return chain(WORK_NODES)


def increment(source: type[BaseModel], target: type[BaseModel]) -> Any:
    """Return an async function from one model to the other."""

    async def increment(value: Any, context: Context) -> Any:
        return target(number=value.number + 1)

    increment.__annotations__ = {"value": source, "context": Context, "return": target}
    return increment
