"""Command `portico flow`: run, graph and check."""

import os
from pathlib import Path

import anyio
import orjson
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portico.bootstrap.keys import open_keys
from portico.bootstrap.service import open_history_reader, open_service
from portico.domain.lifecycle import State
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.execution import run_once
from portico.entrypoints.cli.output import OutputOptions
from portico.entrypoints.cli.request import parse_request
from portico.entrypoints.cli.service_parts import Wiring
from portico.settings import Settings
from tests.entrypoints.cli.test_suspension_prompt import answering
from tests.support.cli_checks import CHECKS
from tests.support.portico import portico

EXAMPLES = {"flows": {"modules": ["tests.support.example_flows"]}}
CONFIGURATION = """
[flows]
modules = ["tests.support.example_flows"]
"""
CHANGED = """
from pydantic import BaseModel

from portico import Context, FlowGraph, flow


class Invoice(BaseModel):
    number: int


class Payment(BaseModel):
    receipt: str


async def pay(invoice: Invoice, context: Context) -> Payment:
    return Payment(receipt="")


@flow("approval")
def approval() -> FlowGraph[Invoice, Payment]:
    return FlowGraph.builder(Invoice, Payment).work(pay).build()
"""


@pytest.fixture(autouse=True)
def _in_a_directory_with_flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith("PORTICO") or variable.endswith("_API_KEY"):
            monkeypatch.delenv(variable)
    Path("portico.toml").write_text(CONFIGURATION)


def run(*arguments: str, given: str | None = None) -> Result:
    wiring = Wiring(
        create_app=lambda _: FastAPI(),
        protocol=HttpToolsProtocol,
        open_service=open_service,
        open_history_reader=open_history_reader,
        checks=CHECKS,
        open_keys=open_keys,
    )
    return CliRunner().invoke(
        command_line(), ["flow", *arguments], obj=lambda: wiring, prog_name="portico", input=given
    )


def test_a_flow_runs_with_live_output() -> None:
    Path("input.json").write_text('{"text": "some words"}')
    result = run("run", "split-and-merge", "--input", "input.json")
    assert (result.exit_code, result.stdout) == (0, '{"longest":"words","letters":9}\n')
    assert "Left: runs" in result.stderr
    assert "Longest+Letters  continue" in result.stderr


def test_a_flow_that_waits_without_a_terminal_exits_with_3() -> None:
    result = run("run", "approval", "--input", "-", given='{"number": "7", "amount": 500}')
    assert result.exit_code == 3
    assert "suspended: Invoice: Pay this invoice?" in result.stderr


def test_what_a_flow_does_not_take_is_refused_in_one_line() -> None:
    result = run("run", "linear", "--input", "-", given='{"txt": 1}')
    assert (result.exit_code, result.stdout) == (17, "")
    assert result.stderr == "REQUEST_INVALID: flow.input.text: is required\n"
    result = run("run", "nothing", "--input", "-", given="{}")
    assert result.exit_code == 15
    assert result.stderr.startswith("CONFIG_FLOW_INVALID: flow.name: ")


async def test_an_answer_that_does_not_fit_is_asked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    ask, questions = answering("yes", '{"by": 7}', '{"by": "ada"}')
    request = parse_request({"mode": "flow", "flow": {"name": "approval", "input": {"number": "7", "amount": 500}}})
    output = OutputOptions(stream=False, as_json=False, ask=ask)
    response = await run_once(open_service, Settings.model_validate(EXAMPLES), request, output)
    shown = capsys.readouterr()
    assert (response.state, shown.out) == (State.COMPLETE, '{"receipt":"paid, approved by ada"}\n')
    assert questions == ["Invoice: Pay this invoice? [JSON]"] * 3
    assert shown.err.count("REQUEST_INVALID: payload") == 2


def test_the_graph_of_a_flow_is_printed() -> None:
    result = run("graph", "debate")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "flowchart TD")
    result = run("graph", "nothing")
    assert (result.exit_code, result.stdout) == (15, "")
    assert "there is no flow nothing; there are: approval, debate" in result.stderr


async def suspend() -> None:
    """Leave a suspended execution in the database of the configuration."""
    body = {"mode": "flow", "request_id": "q", "flow": {"name": "approval", "input": {"number": "7", "amount": 500}}}
    async with portico(storage={"url": "sqlite:///portico.db"}, **EXAMPLES) as (served, _):
        assert (await served.post(orjson.dumps(body))).status == 202


def test_a_check_says_which_suspended_flows_would_not_resume() -> None:
    anyio.run(suspend)
    storage = '[storage]\nurl = "sqlite:///portico.db"\n'
    Path("portico.toml").write_text(storage + CONFIGURATION)
    Path("changed_approval.py").write_text(CHANGED)

    unchanged = run("check")
    assert (unchanged.exit_code, unchanged.stdout) == (0, "q  approval  resumes\n")
    Path("portico.toml").write_text(storage + '[flows]\nmodules = ["changed_approval"]\n')
    changed = run("check")
    assert (changed.exit_code, changed.stdout) == (
        19,
        "q  approval  does not resume  the graph of the flow has changed\n",
    )
    Path("portico.toml").write_text(storage)
    missing = run("check")
    assert (missing.exit_code, missing.stdout) == (19, "q  approval  does not resume  the flow is not registered\n")
