"""Rights: the refusal of a request or a command that its principal may not make."""

from collections.abc import Iterator

from portico.capabilities.models.catalogue import EngineCatalogue
from portico.domain.access.principal import Permission, Permissions, tool_permission
from portico.domain.contract.request import NamedTool, SystemRequest
from portico.domain.failures import AccessFailure, Code
from portico.orchestration.admission_checks import tools_of_steps
from portico.orchestration.execution.pattern import Pattern


def require(permissions: Permissions, permission: Permission, purpose: str) -> None:
    """Raise AccessFailure (ACCESS_DENIED) naming the permission if it is missing."""
    if not permissions.allows(permission):
        raise denied(permission, purpose)


def require_models_and_tools(
    request: SystemRequest, permissions: Permissions, catalogue: EngineCatalogue, pattern: Pattern | None
) -> None:
    """Raise AccessFailure (ACCESS_DENIED) for a model that the request may ask, or a tool that it names.

    A name is refused before it is looked up, so that a refusal does not show whether it exists.
    """
    for model in dict.fromkeys(_models(request, pattern)):
        if not catalogue.is_permitted(model, permissions):
            raise denied(f"model:{catalogue.name_of(model)}", "use this model")
    for agent in () if pattern is None else pattern.own_agents(request):
        if not permissions.allows_agent(agent):
            raise denied(f"agent:{agent}", "use this agent")
    for tool in dict.fromkeys(_tools(request)):
        if not permissions.allows_tool(tool):
            raise denied(tool_permission(tool), "use this tool")


def denied(permission: str, purpose: str) -> AccessFailure:
    """Return the refusal of what needs this permission."""
    return AccessFailure(Code.ACCESS_DENIED, f"the caller may not {purpose}", {"permission": permission})


def _models(request: SystemRequest, pattern: Pattern | None) -> Iterator[str | None]:
    """Yield the routes and engines of the request: its own, those of its replicas, and those of its pattern."""
    if pattern is None or request.model is not None:
        yield request.model
    if request.redundancy is not None:
        yield from request.redundancy.models or ()
    if pattern is not None:
        yield from pattern.models(request)


def _tools(request: SystemRequest) -> Iterator[str]:
    """Yield the tools that the request names."""
    yield from request.tools or ()
    choice = request.hints.tool_choice
    if isinstance(choice, NamedTool) and not request.has_client_tool(choice.name):
        yield choice.name
    if request.plan is not None:
        yield from tools_of_steps(request.plan)
