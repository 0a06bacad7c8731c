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
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from tests.support import mcp_server
from tests.support.cli_checks import CHECKS
from tests.support.issuer import ec_key, key_set
from tests.support.otlp_receiver import otlp_receiver

pytestmark = pytest.mark.usefixtures("empty_directory")

_FILE = str(mcp_server.__file__)
MCP_SERVER = f"command = {json.dumps([sys.executable, _FILE, 'modern'])}\nread_paths = {json.dumps([_FILE])}\n"
_UNSPECIFIC = ("tool ", "engine ", "listener", "isolation ")
KEY = "ptk_abcd1234_" + "s" * 43
AUTH = """
[auth]
mode = "jwt"
issuer = "https://issuer.test"
audience = "portico"
jwks_url = "{url}/keys"
"""


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


def check(configuration: str, *options: str, file: Path = Path("portico.toml")) -> Result:
    server = "" if "[server]" in configuration else "[server]\nport = 0\n"
    file.write_text(f'[engines.rehearsal]\nmodel = "rehearsal://"\n{server}{configuration}')
    wiring = SimpleNamespace(open_service=open_service, checks=CHECKS)
    return CliRunner().invoke(command_line(), ["check", *options], obj=lambda: wiring, prog_name="portico")


def lines(result: Result) -> dict[str, str]:
    """Return status and detail of each subject but the built-in tools, the engine and the port."""
    found = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    return {subject: rest for subject, rest in found.items() if not subject.startswith(_UNSPECIFIC)}


def test_what_runs_is_ok_with_what_was_found() -> None:
    mcp = f"[tools.mcp.shop]\n{MCP_SERVER}[tools.mcp.few]\n{MCP_SERVER}allow = ['echo']\n"
    with serving(key_set(ec_key("one"), ec_key("two"))) as url, otlp_receiver() as receiver:
        traces = f'[telemetry]\notlp_endpoint = "{receiver.url}"\n'
        result = check(mcp + AUTH.format(url=url) + traces)
    assert lines(result) == {
        "configuration": "ok",
        "storage": "ok  no file var/portico.db yet; the service creates it",
        "mcp shop": "ok  11 tools",
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
    result = check(f"[tools.mcp.shop]\n{MCP_SERVER}{away}{agent}{policy}")
    assert [line for line in result.stdout.splitlines() if "warning" in line] == [
        "configuration  warning  policy.deny.0.tool: the MCP server shop lists no tool shop__writ",
        "configuration  warning  agents.a.tools.1: the MCP server shop lists no tool shop__ehco",
    ]


def test_offline_programs_are_started_and_nothing_that_needs_the_network_is_tried() -> None:
    servers = f'[tools.mcp.shop]\n{MCP_SERVER}[tools.mcp.closed]\nurl = "http://127.0.0.1:9/mcp"\n'
    agent = '[agents.a]\ndescription = "A."\ntools = ["closed__read"]\n'
    traces = '[telemetry]\notlp_endpoint = "http://127.0.0.1:9"\n'
    result = check(servers + agent + AUTH.format(url="http://127.0.0.1:9") + traces, "--offline")
    assert lines(result).keys() == {"configuration", "storage", "mcp shop"}
    assert "engine" not in result.stdout
    assert result.exit_code == 0


def test_each_level_is_tried_once_and_a_relative_path_of_bubblewrap_begins_at_the_configuration() -> None:
    folder = Path("conf")
    folder.mkdir()
    old = folder / "bwrap"
    old.write_text(f"#!/bin/sh\necho tried >> {folder.absolute()}/tries\necho bubblewrap 0.7.0\n")
    old.chmod(0o755)
    tool = '[tools.cli.a]\ndescription = "A."\ncommand = ["true"]\n[tools.sandbox]\nbubblewrap = "./bwrap"\n'
    result = check(tool, "--offline", "--config", "conf/portico.toml", file=folder / "portico.toml")
    assert "isolation bubblewrap  unavailable  version 0.8 or later is needed" in result.stdout.splitlines()
    assert (folder / "tries").read_text() == "tried\n"


def test_everything_else_is_tried_although_the_service_cannot_open() -> None:
    result = check('[agents.a]\ndescription = "A."\ntools = ["absent"]\n' + AUTH.format(url="http://127.0.0.1:9"))
    assert lines(result)["issuer"] == "unreachable  the issuer cannot be reached: ConnectError"
    assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]
    assert "agents.a.tools.0: must name a registered tool" in result.stderr


def test_a_port_that_another_program_has_is_named() -> None:
    with serving(b"{}") as url:
        port = url.rpartition(":")[2]
        result = check(f"[server]\nport = 0\nmetrics_port = {port}\n")
    found = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    expected = f"failed  server.metrics_port: cannot listen on 127.0.0.1 port {port}: address already in use"
    assert found["listener"] == "ok  127.0.0.1:0 is free"
    assert found["metrics"] == expected
    assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]


def test_json_has_one_object_a_line_with_every_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKED_KEY", KEY)
    result = check('[auth]\nmode = "keys"\nbootstrap_key_env = "CHECKED_KEY"\n', "--json", "--offline")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(each.keys() == {"subject", "status", "detail"} for each in found)
    assert [each["subject"] for each in found][:4] == ["configuration", "bootstrap key", "storage", "listener"]
    assert found[1]["detail"] == "abcd1234 (from a variable)"
    assert KEY not in result.output


def test_an_audit_log_is_tried_without_being_made() -> None:
    Path("folder").mkdir()
    good, bad = (check(f'[audit]\nfile = "{file}"\n', "--offline") for file in ("audit.jsonl", "folder"))
    assert lines(good)["audit"] == "ok  no file audit.jsonl yet; the service creates it"
    assert lines(bad)["audit"] == "failed  audit.file: cannot write folder: it is no file"
    assert (bad.exit_code, Path("audit.jsonl").exists()) == (EXIT_CODES[Category.CONFIGURATION], False)


def test_verify_prints_the_number_of_lines_or_names_the_first_that_does_not_fit() -> None:
    Path("empty.jsonl").touch()
    Path("bad.jsonl").write_text("{}\n")
    whole, broken = (
        CliRunner().invoke(command_line(), ["audit", "verify", name]) for name in ("empty.jsonl", "bad.jsonl")
    )
    assert (whole.exit_code, whole.stdout) == (0, "0 lines\n")
    assert (broken.exit_code, "bad.jsonl line 1: it is no line of an audit log" in broken.stderr) == (14, True)
