"""Waiting for the server to get somewhere."""

import anyio

from app.bootstrap.service import Service
from tests.support.fake_service import FakeRunning, FakeService
from tests.support.http_server import RunningServer


async def started(service: FakeService) -> FakeRunning:
    """The first execution, once it has begun."""
    await service.facade.begun.wait()
    return service.facade.running[0]


async def gone(served: RunningServer) -> None:
    """Returns when the server has noticed that nobody is connected and has finished with it."""
    while served.state.connections or served.state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
        await anyio.sleep(0.001)


async def running(service: Service, count: int = 1) -> None:
    """Returns when that many executions run."""
    while service.runner.in_flight != count:  # noqa: ASYNC110 - there is no event for it
        await anyio.sleep(0.1)


async def idle(service: Service) -> None:
    """Returns when no execution runs."""
    await running(service, 0)
