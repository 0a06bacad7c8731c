"""Validation workers end with the service, however it ends."""

import signal
from collections.abc import Callable

import pytest

from tests.support.cli_process import Process, serving
from tests.support.hostile_schemas import HOSTILE
from tests.support.processes import children_of, ending

TREE = {"type": "array", "items": {"$ref": "#"}}


def quote(schema: object) -> dict[str, object]:
    message = {"role": "user", "content": "Go on"}
    return {"messages": [message], "mode": "structured", "output": {"schema": schema}}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_idle_worker_ends_with_the_service(start: Callable[..., Process], number: signal.Signals) -> None:
    with serving(start) as portico:
        assert children_of(portico.pid) == []
        assert portico.ask("POST", "/v1/quote", quote(TREE))[0] == 200
        [worker] = children_of(portico.pid)
        with ending(worker):
            portico.signal(number)


def test_a_worker_that_computes_ends_soon_after_a_service_that_was_killed(start: Callable[..., Process]) -> None:
    with serving(start) as portico:
        assert portico.ask("POST", "/v1/quote", quote(TREE))[0] == 200
        [worker] = children_of(portico.pid)
        connection = portico.send("POST", "/v1/quote", quote(HOSTILE["anyOf twice, 300 times"][0]))
        with ending(worker):
            portico.signal(signal.SIGKILL)
        connection.close()
