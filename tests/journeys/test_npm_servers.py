"""An MCP server from npm, unmodified, in a box: it reads what the box opens to it, and nothing else.

`make clients` installs it. Where it is not, these journeys are skipped.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.domain.tools import IsolationLevel
from tests.support.portico import chat, portico
from tests.support.sandbox import opened_sandbox, require_level

SERVERS = Path(__file__).parents[2] / ".clients" / "mcp_servers"
PROGRAM = SERVERS / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.skipif(NODE is None or not PROGRAM.exists(), reason="no Node packages: make clients installs them"),
    pytest.mark.usefixtures("real_time"),
]


def table(level: IsolationLevel, opened: Path, *allowed: Path) -> Mapping[str, Any]:
    """Return the table of the server, which itself would read all that is `allowed`."""
    return {
        "command": [str(NODE), str(PROGRAM), *map(str, allowed)],
        "isolation": level,
        "read_paths": [str(SERVERS), str(opened)],
        "trusted": True,
        "timeout": 20,
    }


@pytest.mark.parametrize("level", [IsolationLevel.BUBBLEWRAP, IsolationLevel.LANDLOCK])
async def test_the_file_server_reads_what_its_box_opens_and_nothing_else(level: IsolationLevel, tmp_path: Path) -> None:
    require_level(opened_sandbox(), level)
    opened, closed = tmp_path / "opened", tmp_path / "closed"
    for folder, text in ((opened, "it may read this"), (closed, "canary-4711")):
        folder.mkdir()
        (folder / "note.txt").write_text(text)
    tools = {"mcp": {"files": table(level, opened, tmp_path)}}
    async with portico(tools=tools) as (served, _):
        shown: dict[str, Any] = {}
        with anyio.fail_after(30):
            while "files__read_text_file" not in shown:
                shown = {each["name"]: each for each in (await served.get("/v1/tools")).json["data"]}
        assert shown["files__read_text_file"]["isolation"] == level
        texts = []
        for folder in (opened, closed):
            asked = f'Use files__read_text_file with path "{folder / "note.txt"}"'
            [call] = (await served.post(chat(asked))).json["tool_calls_made"]
            texts.append(call["result"])
        assert "it may read this" in texts[0]
        assert "canary" not in texts[1]
