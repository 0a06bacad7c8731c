"""Replays of everything that a service has run, and how much that was."""

import re

import anyio

from portico.bootstrap.service import Service
from portico.domain.access.principal import LOCAL
from tests.support.http_server import RunningServer

WRITTEN_SECONDS = 20
POLL_SECONDS = 0.1
_EXECUTIONS = re.compile(r"^portico_executions_total\{(?:.*,)?state=\"(\w+)\".*\} (\d+)", re.MULTILINE)


async def assert_replays_are_identical(served: RunningServer, service: Service, *, turns: int) -> None:
    """Assert that so many executions were run, and that the replay of each is identical."""
    with anyio.fail_after(WRITTEN_SECONDS):
        while len(ran := (await served.get("/v1/executions")).json["data"]) < turns:  # noqa: ASYNC110 - no event
            await anyio.sleep(POLL_SECONDS)  # while time stands still nothing more is written
    assert len(ran) == turns
    for each in ran:
        assert (await service.facade.executions.replay(LOCAL, each["request_id"])).identical


async def executions_by_state(served: RunningServer) -> dict[str, int]:
    """Return the number of executions that have ended or are suspended, stored or not, by their state."""
    counted: dict[str, int] = {}
    for state, number in _EXECUTIONS.findall((await served.get("/metrics")).body.decode()):
        counted[state] = counted.get(state, 0) + int(number)
    return {state: number for state, number in counted.items() if number}
