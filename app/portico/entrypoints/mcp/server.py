"""The MCP server: its handlers behind the SDK's, over any transport."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, Final

from mcp import types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from portico.domain.access.principal import Permission, Permissions, Principal
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.failures import AccessFailure, Code, Failure, RequestFailure
from portico.domain.value import value
from portico.entrypoints.mcp.calls import CallRules, McpCall, ToolResult
from portico.entrypoints.mcp.resources import list_executions, read_execution, templates
from portico.entrypoints.mcp.results import CallOutcome, for_person, refused, result_of
from portico.entrypoints.mcp.tools import (
    AGENT,
    CANCEL,
    EXECUTE,
    FLOW,
    GET_EXECUTION,
    MAX_CLIENT_NAME,
    RESUME,
    AgentArguments,
    ExecuteArguments,
    ExecutionArguments,
    FlowArguments,
    ResumeArguments,
    agent_request,
    agent_tool,
    execute_request,
    execute_tool,
    flow_request,
    flow_tool,
    public_name,
    read_arguments,
    request_id_of,
    strict_text,
    takes_object,
    tools_of_executions,
)
from portico.orchestration.channels import name_channel
from portico.orchestration.facade import CallOptions, Facade

Context = ServerRequestContext[Any, Any]
ANSWERED_BY_MODELS: Final = frozenset({SuspensionKind.QUESTION, SuspensionKind.FLOW})
"""Kinds of suspensions that a model may answer; a person decides about all others."""
_TTL_MS: Final = 60_000
_INSTRUCTIONS: Final = (
    "Agents and flows of Portico. A result whose state is SUSPENDED waits for a person: tell the user, and call "
    "get_execution later. Never try to approve a call yourself."
)


@value
class RequestCaller:
    """Sender of a request, and the options of what it starts."""

    principal: Principal
    options: CallOptions = CallOptions()


CallerOf = Callable[[Context], RequestCaller]


class PorticoServer:
    """Tools and resources of the facade. `caller_of` tells who sends a request."""

    def __init__(self, facade: Facade, expose: Sequence[str], rules: CallRules, caller_of: CallerOf) -> None:
        self._facade = facade
        self._expose = frozenset(expose)
        self._rules = rules
        self._caller_of = caller_of

    def build(self) -> Server[Any]:
        """Return the SDK's server with these handlers."""
        resources: dict[str, Any] = {}
        if "executions" in self._expose:
            resources = {
                "on_list_resources": self._list_resources,
                "on_list_resource_templates": self._list_templates,
                "on_read_resource": self._read_resource,
            }
        return Server(
            "portico",
            version=version("portico"),
            title="Portico",
            instructions=_INSTRUCTIONS,
            cache_hints={"tools/list": CacheHint(_TTL_MS, "private")},
            get_tool_input_schema=lambda _name: None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            **resources,
        )

    async def _list_tools(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        permissions = self._caller_of(context).principal.permissions
        return types.ListToolsResult(tools=self._tools(permissions))

    def _tools(self, permissions: Permissions) -> list[types.Tool]:
        """Return the tools that the caller may use, by name."""
        if not permissions.allows(Permission.SEND_MESSAGES):
            return []
        found = [execute_tool()] if EXECUTE in self._expose else []
        if "agents" in self._expose:
            found += [agent_tool(each) for each in self._facade.introspection.agents(permissions)]
        if "flows" in self._expose:
            found += [flow_tool(each) for each in self._facade.introspection.flows(permissions)]
        if self._expose & {EXECUTE, "agents", "flows"}:
            found += tools_of_executions()
        return sorted(found, key=lambda each: each.name)

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> ToolResult:
        caller = self._caller_of(context)
        if not self._offers(params.name):
            raise _unknown(params.name)
        try:
            strict_text(params.arguments or {}, self._rules.max_depth)
            match params.name:
                case "get_execution":
                    return await self._show(caller, params)
                case "cancel":
                    return await self._cancel(caller, params)
                case "resume":
                    return await self._resume(context, caller, params)
            request = self._request(context, caller.principal.permissions, params)
            call = self._call(context, caller)
            if params.request_state is not None:
                return await call.go_on(request, params)
            if params.input_responses:
                raise MCPError(types.INVALID_PARAMS, "inputResponses need the requestState that they answer")
            return await call.begin(request)
        except Failure as failure:
            return refused(name_channel(failure, caller.principal))

    def _offers(self, name: str) -> bool:
        if name in {GET_EXECUTION, CANCEL, RESUME}:
            return bool(self._expose & {EXECUTE, "agents", "flows"})
        if name == EXECUTE:
            return EXECUTE in self._expose
        return ("agents" in self._expose and name.startswith(AGENT)) or (
            "flows" in self._expose and name.startswith(FLOW)
        )

    def _request(
        self, context: Context, permissions: Permissions, params: types.CallToolRequestParams
    ) -> SystemRequest:
        """Return the request of a call. Raises: MCPError for an unknown tool; RequestFailure (REQUEST_INVALID)."""
        client, depth = _client_name(context), self._rules.max_depth
        if params.name == EXECUTE:
            return execute_request(read_arguments(ExecuteArguments, params.arguments, depth), client)
        for agent in self._facade.introspection.agents(permissions) if params.name.startswith(AGENT) else ():
            if public_name(AGENT, agent.name) == params.name:
                arguments = read_arguments(AgentArguments, params.arguments, depth)
                return agent_request(agent.name, arguments, client)
        for flow in self._facade.introspection.flows(permissions) if params.name.startswith(FLOW) else ():
            if public_name(FLOW, flow.name) == params.name:
                if takes_object(flow):
                    return flow_request(flow.name, params.arguments or {}, client)
                return flow_request(flow.name, read_arguments(FlowArguments, params.arguments, depth).input, client)
        raise _unknown(params.name)

    def _call(self, context: Context, caller: RequestCaller) -> McpCall:
        return McpCall(context, caller.principal, caller.options, facade=self._facade, rules=self._rules)

    async def _show(self, caller: RequestCaller, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = read_arguments(ExecutionArguments, params.arguments, self._rules.max_depth)
        view = await self._facade.executions.show(caller.principal, request_id_of(arguments))
        return result_of(CallOutcome.of_view(view))

    async def _cancel(self, caller: RequestCaller, params: types.CallToolRequestParams) -> types.CallToolResult:
        request_id = request_id_of(read_arguments(ExecutionArguments, params.arguments, self._rules.max_depth))
        await self._facade.executions.cancel(caller.principal, request_id)
        view = await self._facade.executions.show(caller.principal, request_id)
        return result_of(CallOutcome(view.request_id, view.state))

    async def _resume(self, context: Context, caller: RequestCaller, params: types.CallToolRequestParams) -> ToolResult:
        """Answer a question or a flow. A model never decides for a person, also with a key that may."""
        arguments = read_arguments(ResumeArguments, params.arguments, self._rules.max_depth)
        request_id = request_id_of(arguments)
        view = await self._facade.executions.show(caller.principal, request_id)
        suspension = _open_suspension(view.suspensions, arguments)
        if suspension.kind not in ANSWERED_BY_MODELS:
            return for_person(suspension)
        return await self._call(context, caller).resume(request_id, suspension, arguments.answer)

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        with_cursor = None if params is None else params.cursor
        try:
            return await list_executions(self._facade, self._caller_of(context).principal, with_cursor)
        except Failure as failure:
            raise _protocol_error(failure) from None

    async def _list_templates(
        self, _context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return templates()

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        try:
            return await read_execution(self._facade, self._caller_of(context).principal, str(params.uri))
        except Failure as failure:
            raise _protocol_error(failure) from None


def _open_suspension(suspensions: Sequence[Suspension], arguments: ResumeArguments) -> Suspension:
    for each in suspensions:
        if each.suspension_id == arguments.suspension_id:
            return each
    raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "the execution has no such open suspension")


def _client_name(context: Context) -> str:
    params = context.session.client_params
    return "unknown" if params is None else params.client_info.name[:MAX_CLIENT_NAME]


def _unknown(name: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"there is no tool {name[:MAX_CLIENT_NAME]!r}")


def _protocol_error(failure: Failure) -> MCPError:
    code = types.INVALID_REQUEST if isinstance(failure, RequestFailure | AccessFailure) else types.INTERNAL_ERROR
    return MCPError(code, f"{failure.code}: {failure.message}")
