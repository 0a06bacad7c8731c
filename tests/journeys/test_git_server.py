"""Git in a box: `git clone` at the level `bubblewrap`, and the MCP server for git from PyPI, unmodified, over stdio.

`make clients` installs the server. Where it is not, its journey is skipped.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.domain.tools import IsolationLevel
from tests.support.portico import chat, portico
from tests.support.programs import Programs, run
from tests.support.sandbox import opened_sandbox, require_level

NO_PROGRAM = "no MCP server for git: make clients installs it"
GIT = shutil.which("git") or "git"
SERVER = Path(__file__).parents[2] / ".clients" / "git_server" / "bin" / "mcp-server-git"
IDENTITY = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@b.c",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@b.c",
}
pytestmark = pytest.mark.usefixtures("real_time")


def repository(path: Path, message: str) -> Path:
    """Return a repository with one commit."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(path), **IDENTITY}
    path.mkdir()
    (path / "note.txt").write_text(message)
    for words in (("init", "--quiet"), ("add", "note.txt"), ("commit", "--quiet", "-m", message)):
        subprocess.run([GIT, "-C", str(path), *words], env=environment, check=True)
    return path


async def test_a_local_repository_is_cloned_in_the_box(tmp_path: Path) -> None:
    require_level(opened_sandbox(), IsolationLevel.BUBBLEWRAP)
    repository(tmp_path / "origin", "the first note")
    programs = Programs(opened_sandbox(), IsolationLevel.BUBBLEWRAP, tmp_path)
    await run(programs("git", "clone", "--quiet", str(tmp_path / "origin"), str(tmp_path / "clone")))
    assert (tmp_path / "clone" / "note.txt").read_text() == "the first note"


@pytest.mark.skipif(not SERVER.exists(), reason=NO_PROGRAM)
@pytest.mark.parametrize("level", [IsolationLevel.BUBBLEWRAP, IsolationLevel.LANDLOCK])
async def test_the_git_server_reads_the_repository_of_its_box_and_no_other(
    level: IsolationLevel, tmp_path: Path
) -> None:
    require_level(opened_sandbox(), level)
    opened, closed = repository(tmp_path / "opened", "open-note"), repository(tmp_path / "closed", "canary-4711")
    table = {
        "command": [str(SERVER)],
        "isolation": level,
        "read_paths": [str(SERVER.parents[1]), str(opened)],
        "trusted": True,
        "timeout": 20,
    }
    async with portico(tools={"mcp": {"git": table}}) as (served, _):
        shown: dict[str, Any] = {}
        with anyio.fail_after(30):
            while "git__git_log" not in shown:
                shown = {each["name"]: each for each in (await served.get("/v1/tools")).json["data"]}
        assert shown["git__git_log"]["isolation"] == level
        texts = []
        for path in (opened, closed):
            [call] = (await served.post(chat(f'Use git__git_log with repo_path "{path}"'))).json["tool_calls_made"]
            texts.append(call["result"])
    assert "open-note" in texts[0]
    assert "canary" not in texts[1]
