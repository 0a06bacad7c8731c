"""Levels of isolation in `GET /v1/tools` and `portico check`: as they are, and under a filter as Docker's.

It is started by `test_container.py`, and prints JSON.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
from typer.testing import CliRunner

from portico.bootstrap.service import open_service
from portico.entrypoints.cli.command_line import command_line
from tests.adversarial.in_container import refuse_as_docker
from tests.support.cli_checks import CHECKS
from tests.support.portico import portico

TOOLS = """
[engines.rehearsal]
model = "rehearsal://"

[tools.python]

[tools.cli.hello]
description = "Says hello."
command = ["/bin/echo", "hello"]
side_effects = "none"
"""
HELLO = {"description": "Says hello.", "command": ["/bin/echo", "hello"], "side_effects": "none"}
TABLES = {"python": {}, "cli": {"hello": HELLO, "strict": {**HELLO, "isolation": "bubblewrap"}}}


async def listed_tools() -> dict[str, tuple[str, str, bool, str]]:
    async with portico(tools=TABLES) as (served, _):
        tools = (await served.get("/v1/tools")).json["data"]
    return {
        each["name"]: (each["isolation"], each["network"], each["available"], each["reason"])
        for each in tools
        if each["name"] in {"hello", "strict", "run_python"}
    }


def checked_levels() -> list[str]:
    """Return the lines of `portico check` about levels."""
    wiring = SimpleNamespace(open_service=open_service, checks=CHECKS)
    checked = CliRunner().invoke(command_line(), ["check", "--offline"], obj=lambda: wiring)
    assert checked.exit_code == 0, checked.stdout
    return [line for line in checked.stdout.splitlines() if line.startswith("isolation")]


def shown() -> dict[str, Any]:
    return {"check": checked_levels(), "tools": anyio.run(listed_tools)}


def main(folder: Path) -> None:
    (folder / "portico.toml").write_text(TOOLS)
    os.chdir(folder)
    usual = shown()
    refuse_as_docker()
    json.dump({"usual": usual, "filtered": shown()}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
