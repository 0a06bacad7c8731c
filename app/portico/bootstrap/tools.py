"""Tools of the configuration: their sources in the order in which they are offered."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from portico.adapters.telemetry.logs import LogSink
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.adapters.tools.caller_values import HeaderTemplates
from portico.adapters.tools.mcp.server_config import McpCredential, McpServerConfig
from portico.adapters.tools.threads import DaemonThreads
from portico.bootstrap.credentials import NO_SERVICE_CREDENTIALS, ServiceCredentials
from portico.bootstrap.files import open_files
from portico.bootstrap.flows import LoadedFlow, tools_of_flows
from portico.bootstrap.modules import load_tools
from portico.bootstrap.tool_facts import facts_of
from portico.capabilities.tools.availability import AvailabilityProbes
from portico.capabilities.tools.credentials import CredentialSource
from portico.capabilities.tools.executor import ToolExecutor
from portico.capabilities.tools.policy import NO_POLICY, ToolPolicy
from portico.capabilities.tools.registry import MODULES, ToolList, ToolRegistry
from portico.capabilities.tools.step_function import StepFunction
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.tools import IsolationLevel, LevelState
from portico.domain.value import value
from portico.ports.runtime import Clock, Entropy
from portico.ports.tool import Tool, ToolSource
from portico.settings import Settings
from portico.settings.tables.tool_sources import (
    HttpToolSettings,
    McpServerSettings,
)
from portico.settings.values import closest_name

if TYPE_CHECKING:
    import httpx2

    from portico.adapters.tools.code.interpreter import MontyInterpreter
    from portico.adapters.tools.files.directories import FileDirectories
    from portico.adapters.tools.http_api.http_tool import HttpTool
    from portico.adapters.tools.mcp.source import McpSource
    from portico.adapters.tools.sandbox.levels import IsolatedProgram, Sandbox

SANDBOX = "sandbox"
"""Name of the source of the tools for files, requests and code, whose results are untrusted."""
_PROBES_AT_ONCE = 32


@value
class ToolParts:
    """The sources of configured tools, and what they use: the box of programs, the MCP servers, the files, and the
    credentials of the service itself.

    `code` is the interpreter of code that calls tools.
    """

    sources: Sequence[ToolSource] = ()
    sandbox: "Sandbox | None" = None
    files: "FileDirectories | None" = None
    mcp: "McpSource | None" = None
    code: "MontyInterpreter | None" = None
    credentials: ServiceCredentials = NO_SERVICE_CREDENTIALS

    @property
    def levels(self) -> Mapping[IsolationLevel, LevelState]:
        """The levels of isolation that need something of the system; empty if no tool needs one."""
        return {} if self.sandbox is None else self.sandbox.states


def open_tools(
    settings: Settings,
    logs: LogSink,
    clock: Clock,
    flows: Mapping[str, LoadedFlow],
    *,
    reaches_servers: bool = True,
) -> ToolParts:
    """Return the tools of the configuration and of flows, without MCP servers behind a URL unless it `reaches_servers`.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a source that cannot be used.
    """
    sandbox, files, credentials = _sandbox(settings), open_files(settings), ServiceCredentials.of(settings, clock)
    mcp = open_mcp(settings, logs, sandbox, credentials, reaches_servers=reaches_servers)
    sources = tool_sources(settings, tools_of_flows(flows), sandbox, mcp)
    own = _files_and_requests(settings, files)
    if sandbox is None:
        return ToolParts([ToolList(SANDBOX, own), *sources], None, files, mcp, None, credentials)
    from portico.bootstrap.boxed_tools import code_interpreter, code_tools  # noqa: PLC0415 - see above

    own += code_tools(settings, sandbox, files)
    code = code_interpreter(settings, sandbox)
    return ToolParts([ToolList(SANDBOX, own), *sources], sandbox, files, mcp, code, credentials)


def _sandbox(settings: Settings) -> "Sandbox | None":
    """Return the levels of isolation that start here; None, and nothing is loaded or tried, if there is no box."""
    if not settings.tools.has_boxes:
        return None
    from portico.bootstrap.sandbox import open_sandbox  # noqa: PLC0415 - loads the boxes

    return open_sandbox(settings)


def _files_and_requests(settings: Settings, files: "FileDirectories | None") -> list[Tool]:
    """Return the tools of the source `sandbox` that need no box, those whose tables the configuration has."""
    tools: list[Tool] = []
    if files is not None:
        from portico.adapters.tools.files.file_tools import FileTools  # noqa: PLC0415 - only with files

        tools += FileTools(files).tools()
    table = settings.tools.http_get
    if table is not None:
        from portico.adapters.http.exchange import http_client  # noqa: PLC0415 - loads the HTTP client
        from portico.adapters.tools.http_api.http_get import HttpGet  # noqa: PLC0415 - see above

        tools.append(HttpGet(table.hosts, table.max_bytes, table.timeout, http_client()))
    return tools


def open_registry(
    sources: Sequence[ToolSource],
    clock: Clock,
    threads: DaemonThreads,
    policy: ToolPolicy = NO_POLICY,
    step_functions: Sequence[StepFunction] = (),
) -> ToolRegistry:
    """Return the registry of the built-in tools, of these sources, and of the functions of step types.

    Raises: ConfigurationFailure (CONFIG_INVALID) for two tools of one name, and for a tool that cannot be used.
    """
    probes = AvailabilityProbes(clock, DaemonThreads(_PROBES_AT_ONCE))
    return ToolRegistry(
        *BUILTIN_TOOLS, sources=sources, probes=probes, threads=threads, policy=policy, step_functions=step_functions
    )


def check_tool_names(settings: Settings, tools: ToolRegistry) -> None:
    """Raise ConfigurationFailure (CONFIG_INVALID) for a rule or a tenant that names a tool which is not there.

    A tool that declares a credential which is not there is refused, too.

    What tools an MCP server has only its list knows, so a name that begins with its own is taken as it stands.
    """
    for key, name in settings.named_tools():
        is_exact = not name.endswith("*") and name.partition("__")[0] not in settings.tools.mcp
        if is_exact and name not in tools:
            closest = closest_name(name, tools)
            raise ConfigurationFailure(
                Code.CONFIG_INVALID, f"{key}: must name a registered tool; did you mean {closest}?"
            )

    for name in tools:
        tool = tools.get(name)
        for each in () if tool is None else tool.info().credentials:
            if each not in settings.credentials:
                known = ", ".join(sorted(settings.credentials)) or "none"
                message = f"credentials.{each}: the tool {name} declares this credential; there is {known}"
                raise ConfigurationFailure(Code.CONFIG_INVALID, message)


def tool_sources(
    settings: Settings, flow_tools: Collection[Tool], sandbox: "Sandbox | None", mcp: ToolSource | None = None
) -> list[ToolSource]:
    """Return the sources after the built-in tools, in the order in which they are offered: a line for each.

    `flow_tools` are those that agents of flows hold, `mcp` are those of MCP servers. Programs run in the `sandbox`.
    Raises: ConfigurationFailure (CONFIG_INVALID) for a source that cannot be used.
    """
    modules = load_tools(settings.tools.modules, settings.directory)
    known = {id(tool) for tool in (*BUILTIN_TOOLS, *modules)}
    programs: Sequence[Tool] = ()
    if sandbox is not None:
        from portico.bootstrap.boxed_tools import program_tools  # noqa: PLC0415 - loads the boxes

        programs = program_tools(settings, sandbox)
    return [
        ToolList(MODULES, modules),
        ToolList("flows", [tool for tool in flow_tools if id(tool) not in known]),
        ToolList("cli", programs),
        ToolList("http", _http_tools(settings.tools.http)),
        *([] if mcp is None else [mcp]),
    ]


def open_mcp(
    settings: Settings,
    logs: LogSink,
    sandbox: "Sandbox | None",
    credentials: ServiceCredentials,
    *,
    reaches_servers: bool = True,
) -> "McpSource | None":
    """Return the MCP servers of the configuration, without those behind a URL unless it `reaches_servers`.

    The protocol's library is loaded only for them.
    """
    tables = {name: table for name, table in settings.tools.mcp.items() if reaches_servers or table.url is None}
    if not tables:
        return None
    from portico.adapters.tools.mcp.source import McpSource  # noqa: PLC0415 - see above

    return McpSource([_mcp_server(name, table, settings, sandbox, credentials) for name, table in tables.items()], logs)


def _mcp_server(
    name: str,
    table: McpServerSettings,
    settings: Settings,
    sandbox: "Sandbox | None",
    credentials: ServiceCredentials,
) -> McpServerConfig:
    headers = _no_headers if table.headers_file is None else table.headers_file.read
    return McpServerConfig(
        name=name,
        command=table.command,
        url=table.url,
        base=table.directory(settings.directory) or settings.directory.absolute(),
        environment=table.environment(settings.child_environment),
        isolated=None if sandbox is None else _box_of_server(name, table, settings, sandbox),
        headers=headers,
        secrets=tuple(filter(None, (*table.secrets().values(), *headers().values()))),
        trusted=table.trusted,
        allow=None if table.allow is None else frozenset(table.allow),
        timeout=table.timeout,
        pass_caller=table.pass_caller,
        credential=None if table.credential is None else _mcp_credential(table.credential, settings, credentials),
    )


def _box_of_server(
    name: str, table: McpServerSettings, settings: Settings, sandbox: "Sandbox"
) -> "IsolatedProgram | None":
    """Return the box of a server that is started; None of one that runs."""
    from portico.bootstrap.sandbox import isolated  # noqa: PLC0415 - loads the boxes

    return isolated(f"tools.mcp.{name}", table, settings, sandbox) if table.command else None


def _mcp_credential(name: str, settings: Settings, credentials: ServiceCredentials) -> McpCredential:
    read, credential = credentials.secrets.get(name), settings.credentials[name].credential(name)
    return McpCredential(credential, credentials.tokens.get(name), (lambda: None) if read is None else read)


def _http_tools(tables: Mapping[str, HttpToolSettings]) -> list["HttpTool"]:
    """Return the HTTP APIs as tools; only then is the HTTP client loaded."""
    if not tables:
        return []
    from portico.adapters.http.exchange import http_client  # noqa: PLC0415 - see above

    client = http_client()
    return [_http_tool(name, table, client) for name, table in tables.items()]


def _http_tool(name: str, table: HttpToolSettings, client: "httpx2.AsyncClient") -> "HttpTool":
    """Return an HTTP API as a tool. Raises: ConfigurationFailure (CONFIG_INVALID) if no call could fill its URL."""
    from portico.adapters.tools.http_api.http_tool import HttpTool, HttpToolConfig  # noqa: PLC0415 - see above

    config = HttpToolConfig(
        facts=facts_of(name, table),
        method=table.method,
        url=table.url,
        max_bytes=table.max_bytes,
        headers=_no_headers if table.headers_file is None else table.headers_file.read,
        select=table.selected,
        allow_private=table.allow_private,
        caller_headers=table.headers,
        credential=table.credential,
    )
    try:
        HeaderTemplates(table.headers)
    except ValueError as error:
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"tools.http.{name}.headers: {error}") from None
    try:
        return HttpTool(config, client)
    except ValueError as error:
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"tools.http.{name}.url: {error}") from None


def _no_headers() -> Mapping[str, str]:
    return {}


def tool_executor(
    settings: Settings, registry: ToolRegistry, clock: Clock, entropy: Entropy, credentials: CredentialSource | None
) -> ToolExecutor:
    """Return the executor of all calls of registered tools, which may have these credentials."""
    return ToolExecutor(
        registry,
        clock,
        entropy,
        settings.limits.tool_result_bytes,
        shows_exceptions=settings.tools.show_exceptions,
        credentials=credentials,
    )
