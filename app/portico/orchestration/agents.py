"""The agent of a request: what the request is given by it, and the refusal of a request that would widen it."""

from collections.abc import Iterator

from portico.capabilities.prompting.template import fill_template
from portico.capabilities.tools.agents import AgentCatalogue
from portico.domain.access.principal import Permissions, Principal
from portico.domain.agents import ConfiguredAgent, RequestedAgent
from portico.domain.contract.request import Limits, OutputContract, SystemRequest
from portico.domain.failures import AccessFailure, Code, invalid_request
from portico.domain.ids import RequestId
from portico.domain.lifecycle import Mode
from portico.domain.tools import Caller, reference_of
from portico.orchestration.execution.branch_settings import merge_hints
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.pattern import FieldError

_NO_OUTPUT = OutputContract()
_NARROWED_HINTS = ("max_tokens", "timeout")
"""Hints that a request can only lower; it may replace the others."""


def caller_of(principal: Principal, request: SystemRequest) -> Caller:
    """Return for whom code of other people acts before there is an execution of the request."""
    return Caller(
        principal.tenant,
        principal.user,
        request.session_id,
        RequestId(request.request_id or ""),
        principal.key_id,
        request.agent,
        principal.channel,
        metadata=request.metadata,
    )


def with_agent(
    request: SystemRequest, name: str, environment: Environment, principal: Principal
) -> tuple[SystemRequest, RequestedAgent]:
    """Return the request with what the agent of that name gives it, and the agent.

    The prompt and the tools stay apart: a request's messages are the client's, and its tools are a limit at any depth.

    Raises: RequestFailure (REQUEST_INVALID) naming every field that would widen the agent, and for an unknown one;
    AccessFailure (ACCESS_DENIED).
    """
    agents, permissions = environment.agents, principal.permissions
    agent = agents.get(name)
    if agent is None:
        raise invalid_request(("agent", "must be a name from GET /v1/agents"))
    if not permissions.allows_agent(agent.name):
        permission = f"agent:{agent.name}"
        raise AccessFailure(Code.ACCESS_DENIED, "the caller may not use this agent", {"permission": permission})
    errors = [*_replaced(request, agent), *_raised(request, agent), *_other_tools(request, agent, agents)]
    if errors:
        raise invalid_request(*errors)
    output = agent.output if request.output == _NO_OUTPUT else request.output
    update = {
        "mode": Mode.STRUCTURED if _is_structured_chat(request, agent) else agent.mode,
        "model": request.model if agent.model is None else agent.model,
        "hints": merge_hints(agent.hints, request.hints),
        "limits": _narrowed(agent.limits, request.limits),
        "output": output,
    }
    prompt = agent.system_prompt
    if prompt is not None and agent.timezone is not None:
        prompt = fill_template(prompt, agent.timezone, environment.clock.now(), caller_of(principal, request))
    return request.model_copy(update=update), _requested(agent, prompt, permissions)


def _requested(agent: ConfiguredAgent, prompt: str | None, permissions: Permissions) -> RequestedAgent:
    tools = tuple(tool for tool in agent.tools if permissions.allows_tool(tool))
    left_out = tuple(f"tools.{reference_of(tool)}" for tool in agent.tools if tool not in tools)
    return RequestedAgent(prompt, tools, left_out, agent.skills, agent.webhooks)


def _replaced(request: SystemRequest, agent: ConfiguredAgent) -> Iterator[FieldError]:
    """Yield the fields that can only repeat the agent's."""
    is_other = "mode" in request.model_fields_set and request.mode is not agent.mode
    if is_other and not _is_structured_chat(request, agent):
        yield FieldError("mode", f"must be {agent.mode}, that of the agent, or absent")
    if agent.model is not None and request.model not in {None, agent.model}:
        yield FieldError("model", f"must be {agent.model}, that of the agent, or absent")
    if agent.output != _NO_OUTPUT and request.output not in (_NO_OUTPUT, agent.output):
        yield FieldError("output", "must be that of the agent, or absent")


def _is_structured_chat(request: SystemRequest, agent: ConfiguredAgent) -> bool:
    """Return True if the request brings the format in which an agent that chats has to answer."""
    has_format = request.output.schema_ is not None or request.output.grammar is not None
    return has_format and request.mode is Mode.STRUCTURED and agent.mode is Mode.CHAT


def _raised(request: SystemRequest, agent: ConfiguredAgent) -> Iterator[FieldError]:
    """Yield the limits that are above the agent's."""
    limits = [(f"limits.{name}", value, getattr(agent.limits, name)) for name, value in request.limits]
    limits += [(f"hints.{name}", getattr(request.hints, name), getattr(agent.hints, name)) for name in _NARROWED_HINTS]
    for field, value, most in limits:
        if value is not None and most is not None and value > most:
            yield FieldError(field, f"must be at most {most:g}, that of the agent")


def _other_tools(request: SystemRequest, agent: ConfiguredAgent, agents: AgentCatalogue) -> Iterator[FieldError]:
    reachable = agents.reachable(agent.tools)
    for index, tool in enumerate(request.tools or ()):
        if tool not in reachable:
            yield FieldError(f"tools.{index}", "must be a tool of the agent, or of an agent that it may call")


def _narrowed(limits: Limits, requested: Limits) -> Limits:
    return limits.model_copy(update={name: value for name, value in requested if value is not None})
