"""Command `portico prompts`: the list, a text, and what is refused at start."""

import os
from pathlib import Path

import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portico.bootstrap.keys import open_keys
from portico.bootstrap.service import open_history_reader, open_service
from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.registry import default_registry
from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from portico.entrypoints.cli.service_parts import Wiring
from tests.support.cli_checks import CHECKS

SYSTEM = PromptId.SUPERVISOR_REPAIR_SYSTEM


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of texts of the configuration in the current directory."""
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith("PORTICO") or variable.endswith("_API_KEY"):
            monkeypatch.delenv(variable)
    Path("portico.toml").write_text('[prompts]\ndirectory = "texts"\n')
    Path("texts").mkdir()
    return Path("texts")


def run(*arguments: str) -> Result:
    wiring = Wiring(
        create_app=lambda _: FastAPI(),
        protocol=HttpToolsProtocol,
        open_service=open_service,
        open_history_reader=open_history_reader,
        checks=CHECKS,
        open_keys=open_keys,
    )
    return CliRunner().invoke(command_line(), list(arguments), obj=lambda: wiring, prog_name="portico")


def test_every_prompt_is_listed_and_changed_ones_are_marked(texts: Path) -> None:
    (texts / f"{SYSTEM}.txt").write_text("Be careful.")
    lines = run("prompts").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(PromptId)
    assert [line for line in lines if "changed" in line] == [f"{SYSTEM}  changed"]
    assert run("prompts", SYSTEM).stdout == "Be careful.\n"


def test_a_printed_text_can_be_written_to_its_file(texts: Path) -> None:
    printed = run("prompts", PromptId.ANSWER_JUDGEMENT_USER).stdout
    assert printed == default_registry().definition(PromptId.ANSWER_JUDGEMENT_USER).template + "\n"
    (texts / "ANSWER_JUDGEMENT_USER.txt").write_text(printed)
    assert "changed" not in run("prompts").stdout


def test_an_unknown_prompt_is_named() -> None:
    result = run("prompts", "NO_PROMPT")
    assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]
    assert "there is no prompt 'NO_PROMPT'" in result.stderr


@pytest.mark.parametrize("command", ["check", "execute hello", "prompts"])
def test_an_unusable_text_ends_each_command_with_its_file(texts: Path, command: str) -> None:
    (texts / f"{SYSTEM}.txt").write_text("{nothing}")
    result = run(*command.split())
    assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]
    assert f"CONFIG_INVALID: prompts.directory: {SYSTEM}.txt: {SYSTEM} has no nothing to fill in" in result.stderr
