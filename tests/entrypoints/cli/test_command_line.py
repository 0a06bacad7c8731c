"""The table of commands says what the functions say, `init` writes what `check` passes, and shells complete."""

import inspect
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from portico.entrypoints.cli.table import COMMANDS, Command
from portico.settings import load_settings
from tests.entrypoints.cli.test_commands import StagedService


def commands() -> Iterator[tuple[str, Command]]:
    for name, row in COMMANDS.items():
        if isinstance(row, Command):
            yield name, row
        else:
            yield from ((f"{name} {inner}", each) for inner, each in row.commands.items())


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(command_line(), list(arguments), prog_name="portico", env=variables)


@pytest.mark.parametrize(("name", "row"), list(commands()), ids=[name for name, _ in commands()])
def test_the_help_of_a_command_is_the_first_sentence_of_its_docstring(name: str, row: Command) -> None:
    doc = inspect.getdoc(getattr(import_module(row.module), row.function))
    assert doc is not None
    sentence = re.split(r"(?<=\.)\s", " ".join(doc.split("\n\n")[0].split()), maxsplit=1)[0]
    assert row.help == sentence
    shown = run(*name.split(), "--help")
    assert shown.exit_code == 0
    assert " ".join(sentence.split()) in " ".join(shown.stdout.split())


def test_a_command_that_is_not_there_is_wrong_usage_and_a_close_one_is_named() -> None:
    result = run("run")
    assert result.exit_code == 2
    assert "No such command 'run'. Did you mean 'runs'" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_of_a_group(shell: str) -> None:
    script = run("completion", shell)
    assert script.exit_code == 0
    assert "_PORTICO_COMPLETE" in script.stdout
    typed = {"COMP_WORDS": "portico runs ta", "COMP_CWORD": "2", "_TYPER_COMPLETE_ARGS": "portico runs ta"}
    answer = run(_PORTICO_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_FISH_ACTION="get-args", **typed)
    assert "tail" in answer.stdout
    assert "list" not in answer.stdout


@pytest.fixture
def _without_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith("PORTICO") or variable.endswith("_API_KEY"):
            monkeypatch.delenv(variable)


@pytest.mark.usefixtures("_without_keys")
def test_a_new_directory_passes_the_check_without_a_key() -> None:
    written = run("init", "new/agents")
    assert written.exit_code == 0
    assert written.stdout.split() == [f"new/agents/{name}" for name in ("portico.toml", "tools.py", ".gitignore")]
    os.chdir("new/agents")
    assert [*load_settings(local_model=lambda: None).engines] == ["rehearsal"]
    checked = StagedService().run("check", "--offline")
    assert (checked.exit_code, "failed" in checked.stdout) == (0, False)


@pytest.mark.usefixtures("_without_keys")
def test_a_new_configuration_has_an_engine_for_each_key_by_the_name_of_its_variable() -> None:
    keys = {"OPENAI_API_KEY": "sk-secret", "GEMINI_API_KEY": "g-secret"}
    assert run("init", **keys).exit_code == 0
    text = Path("portico.toml").read_text()
    assert "secret" not in text
    settings = load_settings(keys, local_model=lambda: None)
    assert [*settings.engines] == ["openai", "gemini"]


@pytest.mark.usefixtures("_without_keys")
def test_no_file_is_replaced_and_none_is_written_beside_it() -> None:
    Path("tools.py").write_text("mine")
    result = run("init")
    assert result.exit_code == 2
    assert "tools.py is there already" in result.stderr
    assert (Path("tools.py").read_text(), sorted(os.listdir())) == ("mine", ["tools.py"])
    Path("file").write_text("")
    assert run("init", "file/inside").exit_code == 2


def test_exit_codes_differ_from_those_of_usage() -> None:
    assert not {0, 1, 2, 3} & set(EXIT_CODES.values())
    assert set(EXIT_CODES) == set(Category)
