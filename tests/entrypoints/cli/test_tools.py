"""`portico tools`: the list of the configured tools, and a call of one without a server."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from portico.bootstrap.service import open_service
from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES, SUSPENDED
from tests.support import mcp_server

CONFIGURATION = f"""
[tools]
modules = ["tests.support.shop_tools"]

[tools.cli.absent]
description = "A program that is not there"
command = ["no-such-program"]
parameters = {{ type = "object", properties = {{}} }}
side_effects = "read"

[tools.mcp.files]
command = {json.dumps([sys.executable, mcp_server.__file__, "modern"])}
read_paths = {json.dumps([mcp_server.__file__])}
trusted = true

[policy]
deny = [{{ tool = "count_words" }}]
"""
FAILED = EXIT_CODES[Category.TOOL]


@pytest.fixture(autouse=True)
def _configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith("PORTICO") or variable.endswith("_API_KEY"):
            monkeypatch.delenv(variable)
    Path("portico.toml").write_text(CONFIGURATION)


def run(*arguments: str) -> Result:
    wiring = SimpleNamespace(open_service=open_service)
    return CliRunner().invoke(command_line(), ["tools", *arguments], obj=lambda: wiring, prog_name="portico")


def test_every_tool_is_listed_with_its_source_its_safety_and_its_reason() -> None:
    table = run("list")
    assert table.exit_code == 0
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in table.stdout.splitlines()}
    assert rows["name"] == "source safety available reason"
    assert rows["calculate"] == "built-in none, idempotent yes"
    assert rows["write_note"] == "modules write, at most once yes"
    assert rows["refund"] == "modules external, at most once, approval yes"
    assert rows["absent"] == "cli read no no-such-program is not installed"
    assert rows["files__echo"] == "mcp read, idempotent yes"
    shown = {each["name"]: each for each in map(json.loads, run("list", "--json").stdout.splitlines())}
    assert list(shown) == list(rows)[1:]
    assert shown["absent"]["reason"] == "no-such-program is not installed"
    assert not list(Path().glob("**/*.db"))


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("count_words", "--args", '{"text": "one two"}'), "2\n"),
        (("files__echo", "--args", '{"text": "hello"}'), "hello\n"),
        (("refund", "--args", '{"amount": 2}', "--yes"), "refunded 2\n"),
    ],
)
def test_a_call_prints_its_result_without_regard_to_policy(arguments: tuple[str, ...], printed: str) -> None:
    result = run("call", *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (0, printed, "")


@pytest.mark.parametrize("name", ["refund", "write_note"])
def test_a_tool_that_acts_needs_yes(name: str) -> None:
    result = run("call", name, "--args", '{"amount": 2}' if name == "refund" else '{"text": "a"}')
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--yes" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("count_words",), "TOOL_EXECUTION_FAILED: The arguments were refused: text: is required."),
        (("refund", "--args", '{"amount": "all"}'), "TOOL_EXECUTION_FAILED: The arguments were refused: amount"),
        (("files__refuse", "--yes"), "TOOL_EXECUTION_FAILED: The tool failed"),
        (("absent",), "TOOL_UNAVAILABLE: The tool cannot run right now: no-such-program is not installed."),
        (("unheard\x1b[2J",), "TOOL_NOT_FOUND: there is no tool 'unheard\\x1b[2J'"),
    ],
)
def test_a_call_that_fails_ends_with_the_code_of_a_tool(arguments: tuple[str, ...], code: str) -> None:
    result = run("call", *arguments)
    assert (result.exit_code, result.stdout) == (FAILED, "")
    assert result.stderr.startswith(code)


def test_what_a_tool_raises_is_shown_with_its_traceback() -> None:
    Path("portico.toml").write_text('[tools]\nmodules = ["tests.support.broken_modules"]\n')
    result = run("call", "look_up", "--args", '{"order": "7"}')
    assert (result.exit_code, result.stdout) == (FAILED, "")
    lines = result.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert any("broken_modules.py" in line and "in look_up" in line for line in lines)
    assert lines[-2].startswith("KeyError: 'amount-canary ")
    assert lines[-1] == "TOOL_EXECUTION_FAILED: The tool failed: KeyError"
    refused = run("call", "look_up", "--args", '{"order": "path"}')
    assert refused.stderr == "TOOL_EXECUTION_FAILED: The tool failed: amount-canary\n"


def test_a_question_of_a_tool_is_shown_and_left_open() -> None:
    result = run("call", "ask_person", "--args", '{"question": "May I?"}')
    assert (result.exit_code, result.stdout, result.stderr) == (SUSPENDED, "", "suspended: ask_person: May I?\n")


@pytest.mark.parametrize("arguments", ["[]", "{", '{"text": NaN}', '{"text": "a", "text": "b"}'])
def test_arguments_that_are_no_json_object_are_wrong_usage(arguments: str) -> None:
    result = run("call", "count_words", "--args", arguments)
    assert (result.exit_code, result.stdout) == (2, "")
