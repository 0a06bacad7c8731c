"""HTTP server: the listener, and a shutdown that loses no running work.

Theory of operation

1. The port is bound before the service is opened, and accepts connections once the service is open.
2. With `lame_duck_seconds` the first SIGTERM makes the service a lame duck: it says that it is not ready, still accepts
   work, and closes each connection after its response. Meanwhile gateways find other replicas. Then the listener is
   closed, so that a gateway that has found none may send a refused connection elsewhere.
3. Then comes the drain, at once without `lame_duck_seconds` and on SIGINT. During the drain connections are served as
   before: clients learn that the service is not ready, that new work is refused, and how running work ends.
4. Then uvicorn closes all listeners and waits for the remaining connections. Those that do not end are closed, which
   ends their requests as if the client had left: a request that uvicorn cancels would be an error in the log. The
   service closes last. All of it takes at most `lame_duck_seconds` + `drain_seconds` + 2.
5. A second signal ends the process at once.
6. SIGHUP reads the directory of skills again, if there is one; without one it ends the process, as is usual.
7. The process raises its limit of open files to the maximum. Connections get at most half of the files, so that each
   can have one upstream; requests on further connections are refused.

The application's lifespan is entered here, because uvicorn prints a traceback for a failure at start.
"""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import FrameType, MappingProxyType
from typing import Final

import anyio
import typer
import uvicorn
from anyio.abc import TaskStatus
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portico.bootstrap.service import Service
from portico.domain.failures import Code, ConfigurationFailure
from portico.entrypoints.cli.service_parts import Wiring
from portico.settings import ServerSettings, Settings

KEEP_ALIVE_SECONDS = 75
"""Longer than the idle timeout of common load balancers, so that the balancer closes idle connections."""
_CLOSING_SECONDS = 1.7
_CUT_SECONDS = 0.7
"""Time after the drain in which connections may end; uvicorn cancels requests 0.4 seconds later."""
_CLOSE: Final = (b"connection", b"close")
_MAX_FILES = 65_536
_RESERVED_FILES = 32
_ACCESS: Mapping[str, str] = MappingProxyType(
    {
        "none": "only this machine has access, without restrictions.",
        "keys": "every request needs a key; `portico keys create` makes one.",
        "jwt": "every request needs a token of the issuer, or a key; `portico keys create` makes one.",
    }
)


def run_server(wiring: Wiring, settings: Settings) -> None:
    """Serve until a signal. Raises: ConfigurationFailure, StorageFailure."""
    listener = bind_listener(settings.server.host, settings.server.port)
    address, number = listener.getsockname()[:2]
    announce = partial(_announce, settings, f"[{address}]:{number}" if ":" in address else f"{address}:{number}")
    listeners = [listener, *_metrics_listeners(settings)]
    application = wiring.create_app(settings)
    anyio.run(partial(serve, application, listeners, settings.server, protocol=wiring.protocol, announce=announce))


def _metrics_listeners(settings: Settings) -> list[socket.socket]:
    """Return the listener of the metrics, if they have one of their own. Raises: ConfigurationFailure."""
    host, port = settings.server.metrics_host, settings.server.metrics_port
    return [] if port is None else [bind_listener(host, port, name="server.metrics_port")]


def _announce(settings: Settings, address: str) -> None:
    url = typer.style(f"http://{address}", bold=True)
    console = "its console at /console and " if settings.console.enabled else ""
    typer.echo(f"Portico listens on {url}, with {console}its API description at /docs.")
    typer.echo(f'auth.mode is "{settings.auth.mode}": {_ACCESS[settings.auth.mode]}')
    for name in () if settings.is_rehearsal else settings.engines:
        typer.echo(f"engine {name}: {settings.model_of(name)}")
    if settings.is_rehearsal:
        typer.echo("No engine is configured: the built-in rehearsal engine answers. It is not a model.")


def bind_listener(host: str, port: int, *, name: str = "server.port") -> socket.socket:
    """Return the bound listener. Raises: ConfigurationFailure (CONFIG_INVALID), naming the setting of the port.

    Its protocol is given explicitly, because asyncio sets TCP_NODELAY only on connections of explicit TCP sockets.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = (error.strerror or "").lower()
        raise ConfigurationFailure(
            Code.CONFIG_INVALID, f"{name}: cannot listen on {host} port {port}: {reason}"
        ) from None
    return listener


async def serve(
    application: Starlette,
    listeners: Sequence[socket.socket],
    settings: ServerSettings,
    *,
    protocol: type[asyncio.Protocol],
    announce: Callable[[], None],
) -> None:
    """Serve until a signal, then drain. `announce` is called once connections are accepted."""
    config = uvicorn.Config(
        application,
        loop="asyncio",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_connection_limit(settings.max_in_flight),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    async with application.router.lifespan_context(application):
        service: Service = application.state.service
        server = _Server(config, service, settings, announce=announce)
        reload = service.skill_reload
        async with anyio.create_task_group() as group:
            if reload is not None:
                await group.start(_reload_on_hangup, reload.run)
            await server.serve(sockets=[*listeners])
            group.cancel_scope.cancel()


async def _reload_on_hangup(reload: Callable[[], Awaitable[None]], *, task_status: TaskStatus[None]) -> None:
    """Reload on every SIGHUP until cancelled; one that comes during a reload leads to another one."""
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            await reload()


def _connection_limit(max_in_flight: int) -> int:
    """Return the limit of open connections: two per execution, if there are enough files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, min(2 * max_in_flight, (files - _RESERVED_FILES) // 2))


class _Server(uvicorn.Server):
    """uvicorn with the shutdown that the head of this file describes."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        settings: ServerSettings,
        *,
        announce: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._service = service
        self._settings = settings
        self._announce = announce
        self._loop = asyncio.get_running_loop()
        self._stop_requested = asyncio.Event()
        self._signal: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def main_loop(self) -> None:
        """Run uvicorn's loop, which polls for the end ten times a second, and leave it without delay."""
        async with anyio.create_task_group() as ticking:
            ticking.start_soon(super().main_loop)
            await self._stop_requested.wait()
            if self._signal == signal.SIGTERM and self._settings.lame_duck_seconds > 0:
                await self._be_lame_duck()
            ticking.cancel_scope.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop.call_later(self._settings.drain_seconds + _CLOSING_SECONDS, self._stop_waiting)
        await self._service.drain()
        cut_timer = self._loop.call_later(_CUT_SECONDS, self._cut)
        await super().shutdown(sockets)
        cut_timer.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            os._exit(128 + sig)
        self._signal = sig
        self._loop.call_soon_threadsafe(self._stop_requested.set)

    async def _be_lame_duck(self) -> None:
        """Accept work for `lame_duck_seconds`, close each connection after its response, then close the listener.

        The listener of the metrics stays open.
        """
        self._service.leave()
        self.config.encoded_headers.append(_CLOSE)
        self.server_state.default_headers = [*self.server_state.default_headers, _CLOSE]
        for connection in [*self.server_state.connections]:
            if isinstance(connection, HttpToolsProtocol) and connection.cycle is not None:
                connection.cycle.keep_alive = False
        await asyncio.sleep(self._settings.lame_duck_seconds)
        self.servers[0].close()

    def _cut(self) -> None:
        """Close the connections that are left."""
        connections = [*self.server_state.connections]
        if connections:
            self._service.logs.log_cut_connections(len(connections))
        for connection in connections:
            connection.transport.abort()

    def _stop_waiting(self) -> None:
        self.force_exit = True
