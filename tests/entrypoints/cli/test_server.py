"""`portico` as a process of its own, from its first line to its exit."""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from portico.entrypoints.cli.server import bind_listener
from tests.support.cli_process import Process, serving
from tests.support.stores import set_schema_id


@contextmanager
def asking(call: Callable[[], tuple[int, str]]) -> Iterator["Future[tuple[int, str]]"]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


def test_serve_prints_its_address_its_access_and_the_rehearsal_engine(start: Callable[..., Process]) -> None:
    with serving(start) as portico:
        assert 'auth.mode is "none": only this machine has access' in portico.line()
        assert "rehearsal" in portico.line()
        assert portico.ask("GET", "/readyz")[0] == 200
        status, body = portico.execute("hello")
        assert (status, json.loads(body)["state"]) == (200, "COMPLETE")
        portico.signal(signal.SIGTERM)
        assert portico.ended()[0] == 0


@pytest.mark.parametrize(
    ("configuration", "line"),
    [
        ("", "engine anthropic: claude-haiku-4-5 (from ANTHROPIC_API_KEY)\n"),
        ('[engines.own]\nmodel = "openai://gpt-4.1"\n', "engine own: gpt-4.1 (from portico.toml)\n"),
    ],
)
def test_serve_names_the_model_of_each_engine_and_where_it_comes_from(
    start: Callable[..., Process], tmp_path: Path, configuration: str, line: str
) -> None:
    (tmp_path / "portico.toml").write_text(configuration)
    with serving(start, ANTHROPIC_API_KEY="x") as portico:
        portico.line()
        assert portico.line() == line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_work_ends_within_the_grace_period_while_new_work_is_refused(
    start: Callable[..., Process], number: signal.Signals
) -> None:
    with serving(start) as portico, asking(lambda: portico.execute("hello [[slow:1]]")) as running:
        portico.wait_for_in_flight(1)
        portico.signal(number)
        while portico.ask("GET", "/readyz")[0] != 503:
            pass
        assert portico.ask("GET", "/livez")[0] == 200
        refused = portico.execute("too late")
        assert (refused[0], json.loads(refused[1])["code"]) == (503, "REQUEST_SHUTTING_DOWN")
        status, body = running.result()
        assert (status, json.loads(body)["state"]) == (200, "COMPLETE")
        assert portico.ended()[0] == 0


def test_a_stream_ends_with_its_terminal_event(start: Callable[..., Process]) -> None:
    with (
        serving(start) as portico,
        asking(lambda: portico.execute("hello [[slow:1]]", Accept="text/event-stream")) as running,
    ):
        portico.wait_for_in_flight(1)
        portico.signal(signal.SIGTERM)
        status, body = running.result()
        assert status == 200
        assert "event: execution.completed" in body.rstrip().rpartition("\n\n")[2]
        assert portico.ended()[0] == 0


def test_work_beyond_the_grace_period_is_cancelled(start: Callable[..., Process]) -> None:
    with (
        serving(start, PORTICO__SERVER__DRAIN_SECONDS="0.5") as portico,
        asking(lambda: portico.execute("hello [[slow:60]]")) as running,
    ):
        portico.wait_for_in_flight(1)
        portico.signal(signal.SIGTERM)
        status, body = running.result()
        assert (status, json.loads(body)["error"]["code"]) == (409, "CANCELLED_SIGNAL")
        assert portico.ended()[0] == 0


def test_a_second_signal_ends_it_at_once(start: Callable[..., Process]) -> None:
    def unanswered() -> tuple[int, str]:
        with pytest.raises(OSError):
            portico.execute("hello [[slow:60]]")
        return 0, ""

    with serving(start) as portico, asking(unanswered) as running:
        portico.wait_for_in_flight(1)
        portico.signal(signal.SIGTERM)
        while portico.ask("GET", "/readyz")[0] == 200:
            pass
        portico.signal(signal.SIGTERM)
        assert portico.ended()[0] == 128 + signal.SIGTERM
        running.result()


def test_without_free_file_descriptors_a_client_waits_and_is_served_later(
    start: Callable[..., Process],
) -> None:
    with serving(start) as portico, ExitStack() as idle:
        assert portico.execute("hello")[0] == 200
        portico.limit_files(40)
        for _ in range(60):
            idle.enter_context(socket.create_connection(("127.0.0.1", portico.port)))
        with asking(lambda: portico.execute("hello")) as waiting:
            portico.wait_for_error("out of system resource")
            assert not waiting.done()
            idle.close()
            assert waiting.result()[0] == 200
        portico.signal(signal.SIGTERM)
        assert portico.ended()[0] == 0


def test_a_failure_while_the_service_opens_is_one_line(start: Callable[..., Process], tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text('[engines.a]\nmodel = "scripted:///nowhere/replies.json"\n')
    code, stderr = start("serve", "--port", "0").ended()
    assert code == 15
    assert len(stderr.splitlines()) == 1
    assert stderr.startswith("CONFIG_INVALID: ")


def test_a_database_of_an_unreleased_version_ends_the_start_before_the_port_is_opened(
    start: Callable[..., Process], empty_database_url: str
) -> None:
    url = {"PORTICO__STORAGE__URL": empty_database_url}
    with serving(start, **url) as first:
        first.signal(signal.SIGTERM)
        assert first.ended()[0] == 0
    set_schema_id(empty_database_url, "0010")
    process = start("serve", "--port", "0", **url)
    assert process.line() == ""
    message = "CONFIG_INVALID: storage.url: the database was made by an unreleased version; use a new one\n"
    assert process.ended() == (15, message)


def test_replay_reads_the_store_of_a_running_server(start: Callable[..., Process]) -> None:
    with serving(start) as portico:
        status, body = portico.execute("Please calculate 17*3", **{"Idempotency-Key": "k"})
        assert status == 200
        replay = start("replay", json.loads(body)["request_id"], "--json", "--fail-on-difference")
        assert json.loads(replay.line())["identical"] is True
        assert replay.ended() == (0, "")
        assert portico.execute("Please calculate 17*3", **{"Idempotency-Key": "k"}) == (status, body)


def test_execute_runs_a_request_without_a_server(start: Callable[..., Process]) -> None:
    process = start("execute", "hello", "--json")
    answer = json.loads("".join(iter(process.line, "")))
    assert (answer["state"], answer["metadata"]["provider"]) == ("COMPLETE", "rehearsal")
    code, stderr = process.ended()
    assert code == 0
    assert "execution.completed" in stderr


def test_ctrl_c_cancels_the_execution_of_execute(start: Callable[..., Process]) -> None:
    process = start("execute", "hello [[slow:60]]", "--stream", "--json")
    process.wait_for_error("inference.start")
    process.signal(signal.SIGINT)
    answer = json.loads("".join(iter(process.line, "")))
    assert answer["error"]["code"] == "CANCELLED_SIGNAL"
    assert process.ended()[0] == 16


def test_check_reaches_the_rehearsal_engine(start: Callable[..., Process]) -> None:
    process = start("check")
    assert process.line() == "configuration  ok\n"
    assert process.line().startswith("storage  ok  no file var/portico.db yet")
    assert process.line().startswith("listener  ok  127.0.0.1:8080 is free")
    assert {process.line().split()[2] for _ in range(4)} == {"ok"}
    assert process.line().startswith("engine rehearsal  ok  ")
    assert process.ended()[0] == 0


def test_openapi_does_not_depend_on_the_configuration(start: Callable[..., Process], tmp_path: Path) -> None:
    first = start("openapi")
    (tmp_path / "portico.toml").write_text("[server]\nport = 1\n")
    second = start("openapi", PORTICO__LIMITS__TOOL_ROUNDS="1")
    described = "".join(iter(first.line, ""))
    assert described == "".join(iter(second.line, ""))
    assert "/v1/execute" in json.loads(described)["paths"]


def test_the_listener_is_an_explicit_tcp_socket_so_that_asyncio_sets_nodelay() -> None:
    with bind_listener("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_variable_that_is_spelt_wrongly_is_one_log_line(start: Callable[..., Process]) -> None:
    with serving(start, PORTICO_SERVER_PORT="tcp://10.0.0.1:80") as portico:
        portico.signal(signal.SIGTERM)
        code, logged = portico.ended()
    assert code == 0
    assert logged.count("the variable PORTICO_SERVER_PORT is ignored; PORTICO__SERVER__PORT sets server.port") == 1


def test_metrics_have_a_listener_of_their_own(start: Callable[..., Process]) -> None:
    with bind_listener("127.0.0.1", 0) as free:
        metrics_port = free.getsockname()[1]
    with serving(start, PORTICO__SERVER__METRICS_PORT=str(metrics_port)) as process:
        assert (process.ask("GET", "/metrics")[0], process.ask("GET", "/readyz")[0]) == (404, 200)
        process.port = metrics_port
        assert (process.ask("GET", "/metrics")[0], process.ask("GET", "/readyz")[0]) == (200, 404)
        assert process.execute("Hello")[0] == 404


def test_a_port_of_the_metrics_that_is_taken_is_named(start: Callable[..., Process]) -> None:
    with bind_listener("127.0.0.1", 0) as taken:
        taken.listen()
        variables = {"PORTICO__SERVER__METRICS_PORT": str(taken.getsockname()[1])}
        code, stderr = start("serve", "--port", "0", **variables).ended()
    assert code == 15
    assert "server.metrics_port: cannot listen" in stderr
