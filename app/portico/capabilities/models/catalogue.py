"""The catalogue of engines and routes: it resolves a request's `model` to engines."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeAlias

from portico.capabilities.models.deployments import DeployedEngine, endpoints
from portico.capabilities.models.lane import Lane
from portico.domain.access.principal import Permissions
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import invalid_request
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import ConfiguredEngine, Engine

DEFAULT_ROUTE = "default"
CauseNames: TypeAlias = Mapping[AttemptFailureReason, Sequence[str]]
"""Names of the engines that a route asks after a failure, by its cause."""
CauseEngines: TypeAlias = Mapping[AttemptFailureReason, Sequence[ConfiguredEngine]]
NO_CAUSES: Final[CauseEngines] = MappingProxyType({})


class EngineCatalogue:
    """Every configured engine by name, and the routes over them in order of failover.

    `rerouting` are the routes on which the next engine is asked after an answer was rejected. `by_cause` has the
    engines that a route asks after a failure for a cause; routes without any are absent.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine | DeployedEngine],
        routes: Mapping[str, Sequence[str]],
        *,
        rerouting: Collection[str] = (),
        by_cause: Mapping[str, CauseNames] = MappingProxyType({}),
    ) -> None:
        self.engines: Mapping[str, ConfiguredEngine] = engines
        self.endpoints: Mapping[str, Engine] = endpoints(engines)
        """What attempts are made on by address: an engine, or one of its deployments."""
        self.lanes = {address: Lane(each.profile.max_connections) for address, each in self.endpoints.items()}
        """The lane of the attempts at each address."""
        self._moving = frozenset(rerouting)
        self.routes = {name: tuple(engines[each] for each in members) for name, members in routes.items()}
        self.by_cause: Mapping[str, CauseEngines] = {
            route: {cause: tuple(engines[each] for each in members) for cause, members in causes.items()}
            for route, causes in by_cause.items()
            if causes
        }
        """The engines by cause of each route that has any."""
        self._routes_of: Mapping[str, Sequence[str]] = {
            name: [route for route in self.routes if engine in self.all_engines(route)]
            for name, engine in engines.items()
        }

    def resolve(self, model: str | None) -> tuple[ConfiguredEngine, ...]:
        """Return the engines of that route, or the one engine of that name; None is the default route.

        Raises: RequestFailure (REQUEST_INVALID) for a name that is neither.
        """
        name = model or DEFAULT_ROUTE
        if name in self.routes:
            return self.routes[name]
        if name in self.engines:
            return (self.engines[name],)
        raise invalid_request(("model", "must be a name from GET /v1/engines"))

    def name_of(self, model: str | None) -> str:
        """Return the name of that route or engine; None is the default route."""
        return model or DEFAULT_ROUTE

    def is_permitted(self, model: str | None, permissions: Permissions) -> bool:
        """Return True if the route or engine may be used; the permission for a route covers its engines."""
        name = self.name_of(model)
        return any(map(permissions.allows_model, (name, *self._routes_of.get(name, ()))))

    def routes_of(self, engine: str) -> Sequence[str]:
        """Return the routes that may ask the engine, for a cause too; none if it is no engine."""
        return self._routes_of.get(engine, ())

    def causes_of(self, model: str | None) -> CauseEngines:
        """Return the engines that the route asks after a failure, by cause; none for an engine."""
        return self.by_cause.get(model or DEFAULT_ROUTE, NO_CAUSES)

    def all_engines(self, model: str | None) -> tuple[ConfiguredEngine, ...]:
        """Return every engine that an inference may ask, with those by cause; one may be in several lists.

        Raises: RequestFailure, as `resolve`.
        """
        return (*self.resolve(model), *chain.from_iterable(self.causes_of(model).values()))

    def reroutes_rejected_answers(self, model: str | None) -> bool:
        """Return True if the next engine of that route is asked after an answer was rejected."""
        return (model or DEFAULT_ROUTE) in self._moving

    @property
    def names(self) -> Sequence[str]:
        """The names of all routes and engines."""
        return [*self.routes, *self.engines]

    def has(self, name: str) -> bool:
        """Return True if it is the name of a route or an engine."""
        return name in self.routes or name in self.engines

    def engines_for(self, models: Iterable[str | None]) -> tuple[ConfiguredEngine, ...]:
        """Return the engines of any of these models, each once. Raises: RequestFailure, as `resolve`."""
        return tuple(dict.fromkeys(chain.from_iterable(map(self.resolve, models))))

    def all_engines_for(self, models: Iterable[str | None]) -> tuple[ConfiguredEngine, ...]:
        """Return the same with the engines by cause. Raises: RequestFailure, as `resolve`."""
        return tuple(dict.fromkeys(chain.from_iterable(map(self.all_engines, models))))


def requested_models(request: SystemRequest) -> Sequence[str | None]:
    """Return the models that inferences of the request name: those of its replicas, and its own if a judge is asked."""
    replicas = request.redundancy.models if request.redundancy else None
    if not replicas:
        return (request.model,)
    return [*replicas, request.model] if request.output.semantic else replicas
