"""The table `[ingress]` of the configuration: the APIs of OpenAI's and Anthropic's clients."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from portico.settings.values import Natural, Table, closest_name

ModelAlias = Annotated[str, StringConstraints(pattern=r"^([!-)+-~]{1,256}\*?|\*)$")]
ModelTarget = Annotated[str, StringConstraints(pattern=r"^((agent|flow):)?[a-zA-Z0-9_.-]{1,128}$")]
AGENT: Final = "agent:"
FLOW: Final = "flow:"


class IngressSettings(Table):
    """Client APIs."""

    approval_wait: Annotated[float, Field(ge=0, le=600)] = Field(
        60, description="Seconds that a request waits for the answer of a person before it is refused"
    )
    waiting: Natural = Field(
        200, description="Requests that may wait for a person at the same time; of one user at most a tenth"
    )
    models: Mapping[ModelAlias, ModelTarget] = Field(
        default_factory=dict,
        description="Names of models by alias: of an agent, a route, an engine, `agent:NAME` or `flow:NAME`. An alias "
        "that ends with `*` is for all names that begin like it",
    )


def unknown_flows(ingress: IngressSettings, flows: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the key and the error of each alias whose flow is not there, once the modules are imported."""
    for alias, target in ingress.models.items():
        if target.startswith(FLOW) and target.removeprefix(FLOW) not in flows:
            yield f"ingress.models.{alias}", "must name a flow that exists"


def shadowed_models(agents: Collection[str], models: Collection[str]) -> Iterator[str]:
    """Yield a warning for each route or engine that client APIs do not reach, since an agent has its name."""
    for name in sorted({*agents} & {*models}):
        yield f"agents.{name}: the client APIs run the agent for the model {name}, not the route or engine of that name"


def ingress_errors(
    ingress: IngressSettings, agents: Collection[str], models: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the key and the error of each alias whose agent, route or engine is not there."""
    known = [*agents, *models, *(AGENT + name for name in agents)]
    for alias, target in ingress.models.items():
        if not target.startswith(FLOW) and target not in known:
            yield f"ingress.models.{alias}", f"must name one that exists; did you mean {closest_name(target, known)}?"
