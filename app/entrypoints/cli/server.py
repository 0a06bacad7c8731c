"""Serving HTTP: the listener, and an end that loses nobody.

Theory of operation

1. The port is taken before anything is opened, and listens once the service is open.
2. The first SIGTERM or SIGINT begins the drain at once. Until that is over connections are served as before: they learn
   that the service is not ready, that new work is refused, and how the work that runs ends.
3. Then uvicorn closes the listener and waits for what is still connected; the service closes last. All of it takes at
   most `drain_seconds` + 2: whoever has not gone shortly before that is not waited for.
4. A second signal ends the process on the spot.
5. The process takes as many files as it may open, and lets connections have half of them at most, so that each can
   have one upstream; what comes beyond is answered, but refused.

The application's lifespan is entered here, not by uvicorn, which makes a traceback of a failure at start.
"""

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from types import FrameType

import anyio
import uvicorn
from starlette.applications import Starlette

from app.domain.failures import Code, ConfigurationFailure
from app.settings import ServerSettings

KEEP_ALIVE_SECONDS = 75
"""Longer than the idle timeout of common load balancers, so that the one who closes is not us."""
_LAST_SECONDS = 1.7
_MOST_FILES = 65_536
_OWN_FILES = 32


def bind_listener(settings: ServerSettings) -> socket.socket:
    """The bound listener. Raises: ConfigurationFailure (CONFIG_INVALID) when it cannot be had.

    It names its protocol, because asyncio sets TCP_NODELAY on connections of sockets that say they are TCP only.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        why = (error.strerror or "").lower()
        raise ConfigurationFailure(
            Code.CONFIG_INVALID, f"server.port: cannot listen on {settings.host} port {settings.port}: {why}"
        ) from None
    return listener


async def serve(
    application: Starlette,
    listener: socket.socket,
    settings: ServerSettings,
    *,
    protocol: type[asyncio.Protocol],
    announce: Callable[[], None],
) -> None:
    """Serves until a signal, then drains. `announce` is called once connections are accepted."""
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
        limit_concurrency=_connections(settings.max_in_flight),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    async with application.router.lifespan_context(application):
        server = _Server(config, drain=application.state.service.drain, grace=settings.drain_seconds, announce=announce)
        await server.serve(sockets=[listener])


def _connections(max_in_flight: int) -> int:
    """How many may be open: one for each execution and as many that wait, if there are files enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, min(2 * max_in_flight, (files - _OWN_FILES) // 2))


class _Server(uvicorn.Server):
    """uvicorn, ending as the head of this file says."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        drain: Callable[[], Awaitable[None]],
        grace: float,
        announce: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._grace = grace
        self._announce = announce
        self._loop = asyncio.get_running_loop()
        self._asked_to_end = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def main_loop(self) -> None:
        """uvicorn's, which looks ten times a second whether it should end, left without delay."""
        async with anyio.create_task_group() as ticking:
            ticking.start_soon(super().main_loop)
            await self._asked_to_end.wait()
            ticking.cancel_scope.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop.call_later(self._grace + _LAST_SECONDS, self._stop_waiting)
        await self._drain()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._asked_to_end.set)

    def _stop_waiting(self) -> None:
        self.force_exit = True
