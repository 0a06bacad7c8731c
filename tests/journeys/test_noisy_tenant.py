"""A tenant at a hundred times its load beside a tenant that sends a request now and then."""

from typing import Any

import anyio

from portico.bootstrap.service import Service, open_service
from portico.domain.access.principal import Principal
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import TenantId, UserId
from portico.orchestration.facade import ExecutionHandle
from portico.settings import Settings
from tests.support.harness import chat_request

SECONDS = 8
ENGINE_S = 1.0
CONNECTIONS = 8
REQUEST = f"[[slow:{ENGINE_S:g}]] Hello"


def principal(tenant: str) -> Principal:
    return Principal(TenantId(tenant), UserId("ada"))


async def latency(service: Service, caller: Principal, request: SystemRequest) -> float | None:
    """Return the seconds that the request took; None if it was refused by a limit."""
    began = anyio.current_time()
    try:
        handle = await service.facade.execute(request, caller)
    except RequestFailure as refusal:
        if refusal.code is not Code.REQUEST_RATE_LIMITED:
            raise
        return None
    assert isinstance(handle, ExecutionHandle)
    await handle.wait()
    return anyio.current_time() - began


async def load(service: Service, tenant: str, per_second: int, latencies: list[float | None]) -> None:
    """Send so many requests a second, and collect how long each took."""

    async def send() -> None:
        latencies.append(await latency(service, principal(tenant), chat_request(REQUEST)))

    async with anyio.create_task_group() as group:
        for _ in range(SECONDS * per_second):
            group.start_soon(send)
            await anyio.sleep(1 / per_second)


async def run(noise: int, **limits: Any) -> tuple[list[float], list[float | None]]:
    """Return the latencies of the quiet tenant, in order, and those of the noisy one."""
    engine = {"model": "rehearsal://", "max_connections": CONNECTIONS}
    tables = {"storage": {"url": "sqlite://"}, "engines": {"one": engine}, "tenants": {"noisy": limits}}
    quiet: list[float | None] = []
    noisy: list[float | None] = []
    async with open_service(Settings.model_validate(tables)) as service, anyio.create_task_group() as group:
        if noise:
            group.start_soon(load, service, "noisy", noise, noisy)
        group.start_soon(load, service, "quiet", 1, quiet)
    return sorted(each for each in quiet if each is not None), noisy


async def test_a_tenant_at_a_hundred_times_the_load_does_not_slow_another_one_down() -> None:
    alone, _ = await run(0)
    beside, noisy = await run(100, concurrency=CONNECTIONS - 2)
    assert len(alone) == len(beside) == SECONDS
    assert beside[-1] <= 1.5 * alone[-1]
    assert noisy.count(None) > 0.9 * len(noisy)
    assert len(noisy) - noisy.count(None) >= (SECONDS - 1) * (CONNECTIONS - 2)


async def test_without_limits_it_does() -> None:
    """Show that the limit is what protects the quiet tenant."""
    beside, noisy = await run(100)
    assert beside[-1] > 3 * ENGINE_S
    assert noisy.count(None) == 0
