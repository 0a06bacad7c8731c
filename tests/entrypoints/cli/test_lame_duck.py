"""Stop of `portico serve` in three phases: a lame duck, a closed port, the drain."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection

from portico.entrypoints.cli.server import bind_listener
from tests.support.cli_process import MAX_SECONDS, Process, serving

LAME_DUCK = {"PORTICO__SERVER__LAME_DUCK_SECONDS": "1"}
SLOW = {"messages": [{"role": "user", "content": "[[slow:2.5]] Hello"}]}
QUICK = {"messages": [{"role": "user", "content": "Hello"}]}


@contextmanager
def connected(portico: Process) -> Iterator[HTTPConnection]:
    connection = HTTPConnection("127.0.0.1", portico.port, timeout=MAX_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def state_of(connection: HTTPConnection, method: str, path: str, body: object = None) -> tuple[int, object, str | None]:
    """Return the status, the JSON and the Connection header of an answer."""
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read()), answer.headers["Connection"]


def wait_until_not_ready(portico: Process) -> tuple[int, str]:
    while (answer := portico.ask("GET", "/readyz"))[0] == 200:
        pass
    return answer


def wait_until_refused(portico: Process) -> None:
    """Ask until the port is closed; a connection that the system has taken by then is reset."""
    with suppress(ConnectionRefusedError, ConnectionResetError):
        while portico.ask("GET", "/livez")[0] == 200:
            pass


def test_a_lame_duck_accepts_work_on_old_and_new_connections_and_closes_each(start: Callable[..., Process]) -> None:
    with serving(start, **LAME_DUCK) as portico, connected(portico) as old, connected(portico) as new:
        assert state_of(old, "GET", "/livez")[2] is None
        portico.signal(signal.SIGTERM)
        assert wait_until_not_ready(portico) == (503, '{"ready":false,"reason":"draining"}')
        for connection in (old, new):
            status, answer, header = state_of(connection, "POST", "/v1/execute", QUICK)
            assert (status, answer["state"], header) == (200, "COMPLETE", "close")
        assert portico.ended()[0] == 0


def test_then_the_port_is_closed_while_running_work_ends_and_metrics_are_read(start: Callable[..., Process]) -> None:
    with bind_listener("127.0.0.1", 0) as free:
        metrics_port = free.getsockname()[1]
    with (
        serving(start, **LAME_DUCK, PORTICO__SERVER__METRICS_PORT=str(metrics_port)) as portico,
        connected(portico) as running,
    ):
        running.request("POST", "/v1/execute", json.dumps(SLOW), {"Content-Type": "application/json"})
        main_port, portico.port = portico.port, metrics_port
        portico.wait_for_in_flight(1)
        portico.port = main_port
        portico.signal(signal.SIGTERM)
        wait_until_refused(portico)
        portico.port = metrics_port
        assert "portico_executions_in_flight 1" in portico.ask("GET", "/metrics")[1]
        answer = running.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert json.loads(answer.read())["state"] == "COMPLETE"
        assert portico.ended()[0] == 0


def test_an_interrupt_has_no_lame_duck(start: Callable[..., Process]) -> None:
    with serving(start, PORTICO__SERVER__LAME_DUCK_SECONDS="300") as portico:
        portico.signal(signal.SIGINT)
        assert portico.ended()[0] == 0


def test_a_second_signal_ends_a_lame_duck_at_once(start: Callable[..., Process]) -> None:
    with serving(start, PORTICO__SERVER__LAME_DUCK_SECONDS="300") as portico:
        portico.signal(signal.SIGTERM)
        wait_until_not_ready(portico)
        portico.signal(signal.SIGTERM)
        assert portico.ended()[0] == 128 + signal.SIGTERM
