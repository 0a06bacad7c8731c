"""`portico check` with real servers: everything that is configured is tried, and what is down is named."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from portico.bootstrap.service import open_service
from portico.domain.failures import Category
from portico.entrypoints.cli.commands import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from tests.support import mcp_server
from tests.support.cli_checks import CHECKS
from tests.support.issuer import ec_key, key_set
from tests.support.otlp_receiver import otlp_receiver

MCP_SERVER = json.dumps([sys.executable, mcp_server.__file__, "modern"])
AUTH = """
[auth]
mode = "jwt"
issuer = "https://issuer.test"
audience = "portico"
jwks_url = "{url}/keys"
"""


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith("PORTICO") or variable.endswith("_API_KEY"):
            monkeypatch.delenv(variable)


@contextmanager
def serving(answer: bytes) -> Iterator[str]:
    """Yield the URL of a server that has this answer for every GET."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def check(configuration: str, *options: str) -> Result:
    Path("portico.toml").write_text(f'[engines.rehearsal]\nmodel = "rehearsal://"\n{configuration}')
    wiring = SimpleNamespace(open_service=open_service, checks=CHECKS)
    return CliRunner().invoke(command_line(), ["check", *options], obj=lambda: wiring, prog_name="portico")


def lines(result: Result) -> dict[str, str]:
    """Return status and detail of each subject but the built-in tools and the engine."""
    found = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    return {subject: rest for subject, rest in found.items() if not subject.startswith(("tool ", "engine "))}


def test_what_runs_is_ok_with_what_was_found() -> None:
    mcp = f"[tools.mcp.shop]\ncommand = {MCP_SERVER}\n[tools.mcp.few]\ncommand = {MCP_SERVER}\nallow = ['echo']\n"
    with serving(key_set(ec_key("one"), ec_key("two"))) as url, otlp_receiver() as receiver:
        traces = f'[telemetry]\notlp_endpoint = "{receiver.url}"\n'
        result = check(mcp + AUTH.format(url=url) + traces)
    assert lines(result) == {
        "configuration": "ok",
        "storage": "ok  no file var/portico.db yet; the service creates it",
        "mcp shop": "ok  10 tools",
        "mcp few": "ok  1 tool",
        "issuer": "ok  2 keys",
        "traces": "ok  an empty export was taken",
    }
    assert (result.exit_code, os.listdir()) == (0, ["portico.toml"])


def test_what_is_down_is_named_with_the_reason_and_the_first_one_decides_the_exit_code() -> None:
    Path("file").write_text("x")
    result = check(
        '[tools.mcp.away]\ncommand = ["/no/such/server"]\n[tools.mcp.closed]\nurl = "http://127.0.0.1:9/mcp"\n'
        + AUTH.format(url="http://127.0.0.1:9")
        + '[telemetry]\notlp_endpoint = "http://127.0.0.1:9"\n'
        + '[storage]\nurl = "sqlite:///file/portico.db"\n'
    )
    assert lines(result) == {
        "configuration": "ok",
        "storage": "failed  storage.url: cannot write file/portico.db: not a directory",
        "mcp away": "unavailable  not started: No such file or directory (/no/such/server)",
        "mcp closed": "unavailable  no answer: ConnectError (http://127.0.0.1:9/mcp)",
        "issuer": "unreachable  the issuer cannot be reached: ConnectError",
        "traces": "unreachable  http://127.0.0.1:9 does not take spans",
    }
    assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]


def test_the_model_that_an_engine_asks_is_named_beside_what_it_answers() -> None:
    result = check('[engines.own]\nmodel = "openai://gpt-4.1"\nbase_url = "http://127.0.0.1:9/v1"\n')
    assert "engine rehearsal  ok  rehearsal (from portico.toml): " in result.stdout
    assert "engine own  unreachable  gpt-4.1 (from portico.toml): " in result.stdout
    assert result.exit_code == EXIT_CODES[Category.INFERENCE]


def test_a_name_that_its_mcp_server_does_not_list_is_a_warning() -> None:
    agent = '[agents.a]\ndescription = "A."\ntools = ["shop__echo", "shop__ehco"]\n'
    policy = '[policy]\ndeny = [{ tool = "shop__writ" }, { tool = "shop__*" }, { tool = "away__x" }]\n'
    away = '[tools.mcp.away]\ncommand = ["/no/such/server"]\n'
    result = check(f"[tools.mcp.shop]\ncommand = {MCP_SERVER}\n{away}{agent}{policy}")
    assert [line for line in result.stdout.splitlines() if "warning" in line] == [
        "configuration  warning  policy.deny.0.tool: the MCP server shop lists no tool shop__writ",
        "configuration  warning  agents.a.tools.1: the MCP server shop lists no tool shop__ehco",
    ]


def test_offline_programs_are_started_and_nothing_that_needs_the_network_is_tried() -> None:
    servers = f'[tools.mcp.shop]\ncommand = {MCP_SERVER}\n[tools.mcp.closed]\nurl = "http://127.0.0.1:9/mcp"\n'
    agent = '[agents.a]\ndescription = "A."\ntools = ["closed__read"]\n'
    traces = '[telemetry]\notlp_endpoint = "http://127.0.0.1:9"\n'
    result = check(servers + agent + AUTH.format(url="http://127.0.0.1:9") + traces, "--offline")
    assert lines(result).keys() == {"configuration", "storage", "mcp shop"}
    assert "engine" not in result.stdout
    assert result.exit_code == 0


def test_everything_else_is_tried_although_the_service_cannot_open() -> None:
    result = check('[agents.a]\ndescription = "A."\ntools = ["absent"]\n' + AUTH.format(url="http://127.0.0.1:9"))
    assert lines(result)["issuer"] == "unreachable  the issuer cannot be reached: ConnectError"
    assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]
    assert "agents.a.tools.0: must name a registered tool" in result.stderr
