"""A command loads the libraries that it uses, and no others: they cost memory and the time of its start."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_process import Process

LIBRARIES_OF_THE_SERVICE = {"aiohttp", "alembic", "fastapi", "httpx2", "numpy", "sqlalchemy", "uvicorn"}
NOT_CONFIGURED = {"alembic", "asyncpg", "dbos", "grpc", "httpx2", "jsonschema_rs", "mcp", "numpy", "rich", "structlog"}
"""Libraries that a service on SQLite needs for a feature only, or to migrate its database."""
LISTING = """
import atexit, pathlib, sys

listing = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: listing.write_text("\\n".join({name.partition(".")[0] for name in sys.modules})))
from portico.__main__ import portico
portico()
"""
"""Program that runs the command and lists at its end the packages that it has loaded, in the file named first."""
WITHOUT_GRPC = """
import sys

sys.modules["opentelemetry.exporter.otlp.proto.grpc"] = None
from portico.__main__ import portico
portico()
"""

WITHOUT_CODE = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_distributions(cls, context):
        return [] if context.name == "pydantic-monty" else PathFinder.find_distributions(context)

sys.meta_path = [Finder if each is PathFinder else each for each in sys.meta_path]
from portico.__main__ import portico
portico()
"""


def loaded_by(directory: Path, environ: dict[str, str], *arguments: str, code: int = 0) -> set[str]:
    command = [sys.executable, "-c", LISTING, str(directory / "listing"), *arguments]
    ended = subprocess.run(command, cwd=directory, env=environ, capture_output=True, timeout=60, check=False)
    assert ended.returncode == code
    return set((directory / "listing").read_text().split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["completion", "bash"]], ids=" ".join)
def test_a_description_of_the_command_loads_no_library_of_the_service(
    tmp_path: Path, environ: dict[str, str], arguments: list[str]
) -> None:
    loaded = loaded_by(tmp_path, environ, *arguments)
    assert {"portico", "typer"} <= loaded
    assert not loaded & {"pydantic", *LIBRARIES_OF_THE_SERVICE}


@pytest.mark.parametrize(
    "arguments",
    [["serve", "--help"], ["keys", "--help"], ["approvals", "list", "--help"], ["keys", "generate"]],
    ids=" ".join,
)
def test_a_command_that_needs_no_service_loads_no_library_of_it(
    tmp_path: Path, environ: dict[str, str], arguments: list[str]
) -> None:
    """Typer itself uses pydantic for the options of a command."""
    assert not loaded_by(tmp_path, environ, *arguments) & LIBRARIES_OF_THE_SERVICE


def test_a_client_of_a_server_loads_no_server_and_no_database(tmp_path: Path, environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for command in (("runs", "tail", "q"), ("execute", "Hello")):
        loaded = loaded_by(tmp_path, environ, *command, "--url", url, code=15)
        assert "httpx2" in loaded
        assert not loaded & {"fastapi", "sqlalchemy", "uvicorn"}


def test_a_service_on_sqlite_loads_nothing_that_is_not_configured(tmp_path: Path, environ: dict[str, str]) -> None:
    command = [sys.executable, "-c", LISTING, str(tmp_path / "listing"), "serve", "--port", "0"]
    for _ in ("makes the database", "finds it up to date"):
        process = Process(
            subprocess.Popen(
                command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        process.port = int(process.line().split(",")[0].rpartition(":")[2])
        status, _ = process.execute("Hello")
        process.signal(signal.SIGTERM)
        ended, errors = process.ended()
        process.close()
        assert (status, ended) == (200, 0), errors
        loaded = set((tmp_path / "listing").read_text().split())
        assert {"fastapi", "sqlalchemy"} <= loaded
        assert not loaded & NOT_CONFIGURED


def test_traces_over_grpc_without_their_packages_are_refused_before_the_port_is_opened(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    tmp_path.joinpath("portico.toml").write_text('[telemetry]\notlp_protocol = "grpc"\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = served_by(WITHOUT_GRPC, tmp_path, environ, taken.getsockname()[1])
    assert ended == (15, "", "CONFIG_INVALID: telemetry.otlp_protocol: install portico[otlp-grpc]\n")


def test_code_without_its_interpreter_is_refused_at_start(tmp_path: Path, environ: dict[str, str]) -> None:
    tmp_path.joinpath("portico.toml").write_text("[tools.code]\n")
    ended = served_by(WITHOUT_CODE, tmp_path, environ, 0)
    assert ended == (15, "", "CONFIG_INVALID: tools.code: install portico[code]\n")


def served_by(program: str, directory: Path, environ: dict[str, str], port: int) -> tuple[int, str, str]:
    """Return the exit code and both streams of a program that serves at that port."""
    command = [sys.executable, "-c", program, "serve", "--port", str(port)]
    ended = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stdout, ended.stderr
