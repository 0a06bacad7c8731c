"""The catalogue of engines and routes: it resolves a request's `model` to engines."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from portico.capabilities.models.lane import Lane
from portico.domain.access.principal import Permissions
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import invalid_request
from portico.ports.model import Engine

DEFAULT_ROUTE = "default"


class EngineCatalogue:
    """Every configured engine by name, and the routes over them in order of failover.

    `rerouting` are the routes on which the next engine is asked after an answer was rejected.
    """

    def __init__(
        self, engines: Mapping[str, Engine], routes: Mapping[str, Sequence[str]], *, rerouting: Collection[str] = ()
    ) -> None:
        self.engines = engines
        self.lanes = {name: Lane(each.profile.max_connections) for name, each in engines.items()}
        """The lane of the attempts on each engine."""
        self._moving = frozenset(rerouting)
        self.routes = {name: tuple(engines[each] for each in members) for name, members in routes.items()}

    def resolve(self, model: str | None) -> tuple[Engine, ...]:
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
        routes = [route for route, engines in self.routes.items() if self.engines.get(name) in engines]
        return any(map(permissions.allows_model, (name, *routes)))

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

    def engines_for(self, models: Iterable[str | None]) -> tuple[Engine, ...]:
        """Return the engines of any of these models, each once. Raises: RequestFailure, as `resolve`."""
        return tuple(dict.fromkeys(chain.from_iterable(map(self.resolve, models))))


def requested_models(request: SystemRequest) -> Sequence[str | None]:
    """Return the models that inferences of the request name: those of its replicas, and its own if a judge is asked."""
    replicas = request.redundancy.models if request.redundancy else None
    if not replicas:
        return (request.model,)
    return [*replicas, request.model] if request.output.semantic else replicas
