"""Names of models: what the `model` of a request names here, and the list of those that a caller may use.

A name is an alias of `[ingress.models]`, or an agent, a route, an engine, `agent:NAME` or `flow:NAME`. An agent takes
precedence over a route of its name. Among aliases the exact name comes first, then the longest that ends with `*`.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

from portico.domain.access.principal import Permissions
from portico.domain.failures import AccessFailure, Code
from portico.domain.value import value
from portico.entrypoints.http.client_apis.errors import MODEL_NOT_FOUND, ErrorShape, not_found
from portico.orchestration.facade import ServedAgent, ServedModels

AGENT: Final = "agent:"
FLOW: Final = "flow:"


class TargetKind(Enum):
    """Kind of what a model's name names."""

    AGENT = auto()
    MODEL = auto()
    FLOW = auto()


@value
class Target:
    """The meaning of a model's name: an agent, a route or engine, or a flow."""

    kind: TargetKind
    name: str


@value
class ModelNames:
    """The names that the model of a request may have, as one caller sees them.

    `aliases` are those of the configuration. A name that is not there is refused as one that the caller may not use,
    unless it may use every model, so that a refusal does not show what exists.
    """

    aliases: Mapping[str, str]
    served: ServedModels
    permissions: Permissions

    def resolve(self, model: str) -> Target:
        """Return what the name names. Raises: RequestFailure (404, `model_not_found`); AccessFailure."""
        target = self._find(self.aliased(model))
        if target is not None:
            return target
        if not self.permissions.allows_model(model):
            message = "the caller may not use this model"
            raise AccessFailure(Code.ACCESS_DENIED, message, {"permission": f"model:{model}"})
        raise not_found("model", "must be a name from GET /v1/models", MODEL_NOT_FOUND)

    def agent(self, target: Target) -> ServedAgent | None:
        """Return the agent that the target is; None for any other."""
        return self.served.agents[target.name] if target.kind is TargetKind.AGENT else None

    def passes_option(self, target: Target, option: str) -> bool:
        """Return True if an engine behind the target passes on this key of `hints.options`."""
        agent = self.agent(target)
        name = target.name if agent is None else agent.model or self.served.default_route
        return option in self.served.options.get(name, ())

    def aliased(self, model: str) -> str:
        """Return what the name is an alias of; the name itself if it is none."""
        if not self.aliases or model in self.aliases:
            return self.aliases.get(model, model)
        matching = [key for key in self.aliases if key.endswith("*") and model.startswith(key[:-1])]
        return self.aliases[max(matching, key=len)] if matching else model

    def _find(self, name: str) -> Target | None:
        served = self.served
        agent, flow = name.removeprefix(AGENT), name.removeprefix(FLOW)
        if name in served.agents:
            return Target(TargetKind.AGENT, name)
        if name in served.options:
            return Target(TargetKind.MODEL, name)
        if agent != name and agent in served.agents:
            return Target(TargetKind.AGENT, agent)
        return Target(TargetKind.FLOW, flow) if flow != name and flow in served.flows else None


def listed_models(aliases: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return the names of `GET /v1/models`, sorted: these, and the exact aliases of any of them."""
    permitted = {*names, *(f"{AGENT}{name}" for name in names)}
    exact = [alias for alias, name in aliases.items() if not alias.endswith("*") and name in permitted]
    return sorted({*names, *exact})


def model_object(name: str, shape: ErrorShape) -> Mapping[str, Any]:
    """Return a model as the clients of OpenAI or Anthropic read it; nothing here knows when a name was made."""
    if shape is ErrorShape.ANTHROPIC:
        return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "portico"}


def model_list(names: Sequence[str], shape: ErrorShape) -> Mapping[str, Any]:
    """Return all models on one page."""
    data = [model_object(name, shape) for name in names]
    if shape is ErrorShape.ANTHROPIC:
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return {"data": data, "has_more": False, **ends}
    return {"object": "list", "data": data}
