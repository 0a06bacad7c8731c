"""Checks of a configuration: everything that it names is tried at the same time, and has one line."""

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import anyio
import typer
from anyio import to_thread
from rich.console import Console
from rich.text import Text

from portico.bootstrap.sandbox import network_warnings
from portico.bootstrap.service import Service
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Category, ConfigurationFailure, Failure
from portico.domain.tools import IsolationLevel, LevelState, ToolServerStatus
from portico.domain.value import value
from portico.entrypoints.cli.display.terminal import printable
from portico.entrypoints.cli.execution import settings_of_command
from portico.entrypoints.cli.health import is_portico
from portico.entrypoints.cli.server import bind_listener
from portico.entrypoints.cli.service_parts import Wiring
from portico.settings import Settings

ENGINE_SECONDS = 3.0
"""Time that an engine has to answer, after MCP servers had theirs: all checks together take at most ten seconds."""


@value
class CheckResult:
    """Result of the check of one subject; `category` is that of the failure, None if there is none."""

    subject: str
    status: str
    detail: str = ""
    category: Category | None = None


@value
class CheckOptions:
    """Options of the checks: offline nothing uses the network; the results are lines of text or of JSON."""

    is_offline: bool = False
    as_json: bool = False


async def run_checks(wiring: Wiring, settings: Settings, options: CheckOptions) -> list[Category]:
    """Print the result of every check, and return the categories of the failures.

    Raises: Failure, after all lines, if the service cannot be opened with this configuration.
    """
    checks = _Checks(wiring, settings, is_offline=options.is_offline)
    await checks.run()
    for result in checks.results():
        if options.as_json:
            _print_json(result)
        else:
            _print(result)
    if checks.refusal is not None:
        raise checks.refusal
    return [result.category for result in checks.results() if result.category is not None]


class _Checks:
    """All checks of one configuration, and their results in the order of the subjects."""

    def __init__(self, wiring: Wiring, settings: Settings, *, is_offline: bool) -> None:
        self.refusal: Failure | None = None
        """Failure to open the service."""
        self._wiring = wiring
        self._settings = settings
        self._is_offline = is_offline
        self._storage: list[CheckResult] = []
        self._listeners: list[CheckResult] = []
        self._service: list[CheckResult] = []
        self._network: list[CheckResult] = []
        self._engines: dict[str, CheckResult] = {}

    async def run(self) -> None:
        """Try everything at the same time."""
        settings, checks = self._settings, self._wiring.checks
        async with anyio.create_task_group() as group:
            group.start_soon(self._open_service)
            group.start_soon(self._try, self._storage, "storage", "failed", checks.storage)
            group.start_soon(self._try, self._listeners, "listener", "failed", _check_listener)
            if settings.server.metrics_port is not None:
                group.start_soon(self._try, self._listeners, "metrics", "failed", _check_metrics_listener)
            if settings.audit.file is not None:
                group.start_soon(self._try, self._storage, "audit", "failed", checks.audit)
            if settings.auth.mode == "jwt" and not self._is_offline:
                group.start_soon(self._try, self._network, "issuer", "unreachable", checks.issuer)
            if settings.telemetry.otlp_endpoint is not None and not self._is_offline:
                group.start_soon(self._try, self._network, "traces", "unreachable", checks.traces)

    def results(self) -> Sequence[CheckResult]:
        """Return the results of all checks that have run."""
        texts = (*self._settings.warnings, *network_warnings(self._settings))
        warnings = [CheckResult("configuration", "warning", text) for text in texts]
        network = sorted(self._network, key=lambda result: result.subject)
        listeners = sorted(self._listeners, key=lambda result: result.subject)
        configuration = [CheckResult("configuration", "ok"), *warnings, *_bootstrap_key(self._settings)]
        return [
            *configuration,
            *sorted(self._storage, key=_in_order),
            *listeners,
            *self._service,
            *self._engines.values(),
            *network,
        ]

    async def _try(
        self, results: list[CheckResult], subject: str, status: str, check: Callable[[Settings], Awaitable[str]]
    ) -> None:
        try:
            results.append(CheckResult(subject, "ok", await check(self._settings)))
        except Failure as failure:
            results.append(CheckResult(subject, status, failure.message, failure.category))

    async def _open_service(self) -> None:
        """Open the service, which reads grammars, prompts and skills, and look at what it found."""
        open_service = self._wiring.checks.open_offline if self._is_offline else self._wiring.open_service
        try:
            async with open_service(settings_of_command(self._settings)) as service:
                await self._look_at(service)
        except Failure as failure:
            self.refusal = failure

    async def _look_at(self, service: Service) -> None:
        introspection, settings = service.facade.introspection, self._settings
        if not self._is_offline:
            self._engines = {
                address: self._engine(address, "unreachable", f"no answer within {ENGINE_SECONDS:g} s")
                for name, engine in settings.engines.items()
                for address in ([f"{name}/{key}" for key in engine.deployments] or [name])
            }
        async with anyio.create_task_group() as group:
            for address in self._engines:
                group.start_soon(self._ping, service, address)
            found = self._service
            found += [CheckResult(subject, "ok", path) for subject, path in _directories(settings) if path is not None]
            found += [_level(level, state) for level, state in service.isolation.items()]
            servers = {server.name: server for server in introspection.tool_servers()}
            for name, server in servers.items():
                detail = server.detail or ("1 tool" if server.tools == 1 else f"{server.tools} tools")
                found.append(_available(f"mcp {name}", detail, is_ok=server.fault is None))
            for tool in await introspection.tools(LOCAL.permissions):
                if tool.name not in {f"mcp:{name}" for name in servers}:
                    found.append(_available(f"tool {tool.name}", tool.reason, is_ok=tool.available))
            found += _unlisted(settings, servers, {result.subject for result in found})
            for each in await introspection.step_types(LOCAL.permissions):
                if each.source == "modules":
                    found.append(_available(f"step type {each.name}", each.reason, is_ok=each.available))
            if settings.planner.name is not None:  # a service whose planner is not there does not open
                found.append(CheckResult(f"planner {settings.planner.name}", "ok"))

    async def _ping(self, service: Service, address: str) -> None:
        with anyio.move_on_after(ENGINE_SECONDS):
            ping = await service.facade.introspection.ping_engine(address)
            self._engines[address] = self._engine(address, "ok" if ping.ok else "unreachable", ping.detail)

    def _engine(self, address: str, status: str, detail: str) -> CheckResult:
        """Return the result of an engine or a deployment, with the model that it asks."""
        detail = ": ".join(filter(None, (self._settings.model_of(address), detail)))
        return CheckResult(f"engine {address}", status, detail, None if status == "ok" else Category.INFERENCE)


def _level(level: IsolationLevel, state: LevelState) -> CheckResult:
    """Return the result of a level of isolation, which is no failure: each tool says whether it needs the level."""
    status = "unavailable" if state.reason else "ok"
    return CheckResult(f"isolation {level}", status, state.reason or state.version)


def _unlisted(
    settings: Settings, servers: Mapping[str, ToolServerStatus], subjects: Collection[str]
) -> list[CheckResult]:
    """Return a warning for each name of a tool that begins like those of a server which does not list it."""
    warnings = []
    for key, name in settings.named_tools():
        server = servers.get(name.partition("__")[0])
        if server is not None and server.fault is None and not name.endswith("*") and f"tool {name}" not in subjects:
            warning = f"{key}: the MCP server {server.name} lists no tool {name}"
            warnings.append(CheckResult("configuration", "warning", warning))
    return warnings


def _available(subject: str, detail: str, *, is_ok: bool) -> CheckResult:
    status, category = ("ok", None) if is_ok else ("unavailable", Category.TOOL)
    return CheckResult(subject, status, detail, category)


def _directories(settings: Settings) -> tuple[tuple[str, str | None], ...]:
    """Return the configured directories whose files an open service has read."""
    return (
        ("grammars", settings.grammars.directory),
        ("prompts", settings.prompts.directory),
        ("skills", settings.skills.directory),
    )


async def _check_listener(settings: Settings) -> str:
    return await to_thread.run_sync(_listener_state, settings.server.host, settings.server.port, "server.port")


async def _check_metrics_listener(settings: Settings) -> str:
    server = settings.server
    return await to_thread.run_sync(
        _listener_state, server.metrics_host, server.metrics_port or 0, "server.metrics_port"
    )


def _listener_state(host: str, port: int, name: str) -> str:
    """Return that the port can be bound, or that a server of ours has it. Raises: ConfigurationFailure."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bind_listener(host, port, name=name).close()
    except ConfigurationFailure:
        if is_portico(host, port):
            return f"a server of ours has {address}"
        raise
    return f"{address} is free"


def _in_order(result: CheckResult) -> bool:
    """Put the database before the audit log, whichever answers first."""
    return result.subject == "audit"


def _bootstrap_key(settings: Settings) -> list[CheckResult]:
    """Return where the bootstrap key comes from; without a usable one there are no settings."""
    auth = settings.auth
    if auth.bootstrap_key_env is not None:
        return [CheckResult("bootstrap key", "ok", f"{auth.bootstrap_key_env.key_id} (from a variable)")]
    return [] if auth.bootstrap_key_file is None else [CheckResult("bootstrap key", "ok", auth.bootstrap_key_file)]


def _print_json(result: CheckResult) -> None:
    fields = {"subject": result.subject, "status": result.status, "detail": result.detail}
    typer.echo(json.dumps(fields, ensure_ascii=False))


def _print(result: CheckResult) -> None:
    style = {"ok": "green", "warning": "yellow"}.get(result.status, "bold red")
    line = Text.assemble(f"{printable(result.subject)}  ", (result.status, style))
    if result.detail:
        line.append(f"  {printable(result.detail)}")
    Console(highlight=False).print(line, soft_wrap=True)
