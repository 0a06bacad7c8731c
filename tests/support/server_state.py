"""States of a server that tests wait for."""

import anyio

from portico.bootstrap.service import Service
from tests.support.fake_service import FakeRunning, FakeService
from tests.support.http_server import RunningServer


async def first_execution(service: FakeService) -> FakeRunning:
    """Return the first execution, once it has started."""
    await service.facade.begun.wait()
    return service.facade.running[0]


async def wait_for_disconnect(served: RunningServer) -> None:
    """Return when the server has noticed that all clients have left."""
    while served.state.connections or served.state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
        await anyio.sleep(0.001)


async def wait_for_running(service: Service, count: int = 1) -> None:
    """Return when that many executions run."""
    while service.runner.in_flight != count:  # noqa: ASYNC110 - there is no event for it
        await anyio.sleep(0.1)


async def wait_for_idle(service: Service) -> None:
    """Return when no execution runs."""
    await wait_for_running(service, 0)


async def wait_for_state(served: RunningServer, request_id: str, state: str) -> None:
    """Return when the execution is in that state."""
    path = f"/v1/executions/{request_id}"
    while (await served.get(path)).json["state"] != state:  # noqa: ASYNC110 - there is no event for it
        await anyio.sleep(0.5)
