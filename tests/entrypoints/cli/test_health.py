"""`portico health`: one question to the server of this machine, without importing the service."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from portico.entrypoints.cli.server import bind_listener
from tests.support.cli_process import Process, serving


def test_a_server_that_answers_is_healthy_wherever_its_address_stands(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    with serving(start, PORTICO__SERVER__ALLOWED_HOSTS='["api.example.org"]') as portico:
        (tmp_path / "portico.toml").write_text(f'[server]\nport = {portico.port}\nhost = "127.0.0.1"\n')
        (tmp_path / "other.toml").write_text("[server]\nport = 1\n")
        by_file = start("health")
        by_url = start("health", "--url", f"http://127.0.0.1:{portico.port}/")
        by_variable = start("health", PORTICO_CONFIG="other.toml", PORTICO__SERVER__PORT=str(portico.port))
        assert [each.ended() for each in (by_file, by_url, by_variable)] == [(0, "")] * 3
        check = start("check", "--offline")
        assert f"listener  ok  a server of ours has 127.0.0.1:{portico.port}\n" in [check.line() for _ in range(3)]
        portico.signal(signal.SIGTERM)
        assert portico.ended()[0] == 0


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ((), {}, "http://127.0.0.1:{port}: no answer: Connection refused\n"),
        (("--url", "localhost"), {}, "localhost: must be an http or https URL\n"),
        ((), {"PORTICO_CONFIG": "none.toml"}, "portico health: [Errno 2] No such file or directory: 'none.toml'\n"),
        ((), {"PORTICO_CONFIG": "bad.toml"}, "portico health: Expected '=' after a key"),
    ],
)
def test_anything_else_is_one_line_and_exit_code_one(
    start: Callable[..., Process],
    tmp_path: Path,
    arguments: tuple[str, ...],
    variables: dict[str, str],
    message: str,
) -> None:
    (tmp_path / "bad.toml").write_text("port")
    with bind_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        code, stderr = start("health", *arguments, PORTICO__SERVER__PORT=str(port), **variables).ended()
    assert code == 1
    assert stderr.startswith(message.format(port=port))
    assert stderr.count("\n") == 1


def test_it_imports_neither_the_service_nor_any_library() -> None:
    program = (
        "import sys; sys.argv = ['portico', 'health', '--url', 'http://127.0.0.1:1']\n"
        "try:\n    import portico.__main__ as m; m.portico()\nexcept SystemExit: pass\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'anyio', 'fastapi', 'httpx', 'pydantic', 'rich', 'sqlalchemy', 'starlette', 'typer', 'uvicorn'}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.split() == []


def test_its_options_are_explained(start: Callable[..., Process]) -> None:
    process = start("health", "--help")
    assert "--url" in "".join(iter(process.line, ""))
    assert process.ended()[0] == 0
