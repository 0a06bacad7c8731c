"""Processes of `portico` for the tests of the command line."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli_process import Process
from tests.support.forked_portico import ForkedPortico

ROOT = Path(__file__).parents[3]


@pytest.fixture
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty directory, with no variable that Portico or an engine reads."""
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith("PORTICO") or variable.endswith("_API_KEY"):
            monkeypatch.delenv(variable)


@pytest.fixture
def environ() -> dict[str, str]:
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith("PORTICO") and name != "OPENAI_API_KEY"
    }
    return ours | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def start(tmp_path: Path, environ: dict[str, str]) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def begin(*arguments: str, **variables: str) -> Process:
        started.append(Process(ForkedPortico(*arguments, directory=tmp_path, environ=environ | variables)))
        return started[-1]

    yield begin
    for process in started:
        process.close()
