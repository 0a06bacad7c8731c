"""`run_python` at each level that starts: what code gets, what it leaves, and what ends it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.adapters.tools.files.directories import FileDirectories, FileLimits
from portico.adapters.tools.programs.python_tool import PythonConfig, PythonTool
from portico.adapters.tools.sandbox.box import SEARCH_PATH, Box
from portico.adapters.tools.sandbox.levels import IsolatedProgram, Sandbox
from portico.bootstrap.service import open_service
from portico.capabilities.tools.definition import ToolArgumentError
from portico.domain.failures import ConfigurationFailure
from portico.domain.ids import IdempotencyKey, RequestId, SessionId, TenantId, ToolCallId, UserId
from portico.domain.tools import Caller, IsolationLevel, LevelState, SideEffects
from portico.ports.tool import ToolContext, ToolError
from portico.settings import load_settings
from tests.support.callers import callers
from tests.support.entropy import SeededEntropy
from tests.support.portico import chat
from tests.support.programs import LIMITS, WRITTEN_BYTES
from tests.support.sandbox import opened_sandbox, require_level
from tests.support.virtual_time import VirtualClock

CALLER = Caller(TenantId("red"), UserId("ada"), SessionId("s"), RequestId("r"))
QUOTA = FileLimits(file_bytes=1 << 20, bytes=1 << 20, entries=64)
ENFORCED = [IsolationLevel.BUBBLEWRAP, IsolationLevel.LANDLOCK]


def python(level: IsolationLevel, files: FileDirectories | None = None, *, network: bool = False) -> PythonTool:
    sandbox = opened_sandbox()
    require_level(sandbox, level)
    isolated = IsolatedProgram(sandbox, Box(network=network), WRITTEN_BYTES, level)
    limits = replace(LIMITS, file_bytes=64 << 20)
    return PythonTool(PythonConfig("python3", Path("/"), isolated, limits, {"PATH": SEARCH_PATH}, 10, files))


async def call(tool: PythonTool, code: str, caller: Caller = CALLER) -> str:
    key = IdempotencyKey(f"python-{abs(hash(code))}")
    context = ToolContext(ToolCallId("c"), 10, VirtualClock(), SeededEntropy(1), key, caller=caller)
    result: str = await tool.execute({"code": code}, context)
    return result


@pytest.mark.parametrize("level", ENFORCED)
async def test_code_reads_and_writes_the_files_of_its_caller_and_no_others(
    level: IsolationLevel, tmp_path: Path
) -> None:
    files = FileDirectories(tmp_path / "files", QUOTA, is_for_tenant=False)
    other = Caller(TenantId("red"), UserId("ada"), SessionId("other"), RequestId("r"))
    files.write(CALLER, "orders.csv", b"1,20\n2,22\n")
    files.write(other, "secret", b"hidden")
    tool = python(level, files)
    code = "rows = [int(line.split(',')[1]) for line in open('orders.csv')]\nopen('sum.txt', 'w').write(str(sum(rows)))"
    assert await call(tool, f"{code}\nprint(sum(rows))") == "42\n"
    assert files.read(CALLER, "sum.txt", 10) == b"42"
    secret = files.directory_of(other) / "secret"
    with pytest.raises(ToolError, match=r"(PermissionError|FileNotFoundError)"):
        await call(tool, f"print(open({str(secret)!r}).read())")
    with pytest.raises(ToolError, match=r"(PermissionError|FileNotFoundError)"):
        await call(tool, f"import os; os.symlink({str(secret)!r}, 'l'); print(open('l').read())")


@pytest.mark.parametrize("level", ENFORCED)
async def test_code_that_exceeds_the_quota_of_files_is_ended_and_the_next_is_refused(
    level: IsolationLevel, tmp_path: Path
) -> None:
    files = FileDirectories(tmp_path / "files", QUOTA, is_for_tenant=False)
    tool = python(level, files)
    with pytest.raises(ToolError, match=r"was ended: its files have more than 1048576 bytes"):
        await call(tool, "open('big', 'wb').write(b'x' * (2 << 20))")
    with pytest.raises(ToolError, match="quota is used up"):
        await call(tool, "print(1)")
    files.delete(CALLER, "big")
    with pytest.raises(ToolError, match=r"was ended: its files: there may be at most 64 files"):
        await call(tool, "[open(str(number), 'w').close() for number in range(65)]")


async def test_code_whose_session_is_deleted_meanwhile_is_ended(tmp_path: Path) -> None:
    files = FileDirectories(tmp_path / "files", QUOTA, is_for_tenant=False)
    tool = python(IsolationLevel.LANDLOCK, files)
    async with anyio.create_task_group() as group:
        group.start_soon(_discard_when_begun, files)
        with pytest.raises(ToolError, match="was ended: its directory was deleted"):
            await call(tool, "import time; open('begun', 'w'); time.sleep(9)")


async def _discard_when_begun(files: FileDirectories) -> None:
    while not (files.directory_of(CALLER) / "begun").exists():  # noqa: ASYNC110 - another process makes it
        await anyio.sleep(0.01)
    files.discard(CALLER)


@pytest.mark.parametrize("level", ENFORCED)
async def test_code_without_files_has_an_empty_home_and_its_failure_has_its_output(
    level: IsolationLevel,
) -> None:
    tool = python(level)
    assert await call(tool, "import os; print(os.listdir('.'), os.getcwd() == os.environ['HOME'])") == "[] True\n"
    with pytest.raises(ToolError, match=r"exited with 1; its output:\nbefore\n(.|\n)*ZeroDivisionError"):
        await call(tool, "print('before', flush=True)\n1 / 0")
    with pytest.raises(ToolError, match="exited with 3"):
        await call(tool, "raise SystemExit(3)")


@pytest.mark.parametrize("level", ENFORCED)
async def test_code_reaches_no_network(level: IsolationLevel) -> None:
    with pytest.raises(ToolError, match=r"(PermissionError|OSError|ConnectionRefused)"):
        await call(python(level), "import socket; socket.create_connection(('127.0.0.1', 1), 1)")


async def test_code_that_is_too_long_is_refused() -> None:
    tool = PythonTool(
        PythonConfig(
            "python3", Path("/"), IsolatedProgram(opened_sandbox(), Box(), 1), LIMITS, {"PATH": SEARCH_PATH}, 1
        )
    )
    for code, reason in (("#" * 65_537, "at most 65536 bytes"), ("'\udcff'", "valid Unicode")):
        with pytest.raises(ToolArgumentError, match=reason):
            await call(tool, code)


def test_it_never_runs_at_limits_and_says_why() -> None:
    none = {level: LevelState(reason="not here") for level in ENFORCED}
    isolated = IsolatedProgram(Sandbox("bwrap", none), Box(), 1)
    tool = PythonTool(PythonConfig("python3", Path("/"), isolated, LIMITS, {"PATH": SEARCH_PATH}, 1))
    status = tool.available()
    assert (status.available, status.reason) == (False, "code of models never runs at the level limits")


@pytest.mark.parametrize(
    ("has_files", "network", "effects", "repeatable"),
    [
        (False, False, SideEffects.NONE, True),
        (True, False, SideEffects.WRITE, True),
        (False, True, SideEffects.EXTERNAL, False),
        (True, True, SideEffects.EXTERNAL, False),
    ],
)
def test_its_effects_follow_from_its_files_and_its_network(
    has_files: bool, network: bool, effects: SideEffects, repeatable: bool, tmp_path: Path
) -> None:
    files = FileDirectories(tmp_path, QUOTA, is_for_tenant=False) if has_files else None
    isolated = IsolatedProgram(opened_sandbox(), Box(network=network), 1)
    info = PythonTool(PythonConfig("python3", Path("/"), isolated, LIMITS, {}, 1, files)).info()
    assert (info.side_effects, info.idempotent, info.repeatable) == (effects, False, repeatable)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('isolation = "limits"', "tools.python: must not run at the level limits"),
        ('working_dir = "/srv"', "tools.python: runs in the directory of the caller, so working_dir has no meaning"),
        ('read_paths = ["nowhere"]', "tools.python.read_paths.0: does not exist"),
        ('interpreter = "a\\u0000"', "tools.python.interpreter: must not contain NUL"),
        ("timeout = 0", "tools.python.timeout"),
    ],
)
async def test_a_table_that_cannot_hold_is_refused(table: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "portico.toml"
    file.write_text(f'[storage]\nurl = "sqlite:///{tmp_path}/var.db"\n[tools.python]\n{table}\n')
    with pytest.raises(ConfigurationFailure, match=message):
        async with open_service(load_settings({}, file, local_model=lambda: None)):
            pass


async def test_an_uploaded_table_is_added_up_by_code_and_the_result_is_fetched_without_asking_twice(
    tmp_path: Path,
) -> None:
    require_level(opened_sandbox(), IsolationLevel.LANDLOCK)
    tools: Mapping[str, Any] = {"files": {"root": str(tmp_path / "files")}, "python": {"isolation": "landlock"}}
    code = "print(sum(map(int,open('a.csv'))),file=open('sum.txt','w'))"
    async with callers(tmp_path, {"ada": ("red", "ada", None)}, tools=tools) as (by_name, _):
        ada = by_name["ada"]
        assert (await ada.send("PUT", "/v1/sessions/s/files/a.csv", b"20\n22\n")).status == 201
        for _ in range(2):
            answer = (await ada.execute(chat(f'Use run_python with code "{code}"', session_id="s"))).json
            assert [(each["name"], each["status"]) for each in answer["tool_calls_made"]] == [("run_python", "done")]
        assert (await ada.get("/v1/sessions/s/files/sum.txt")).body == b"42\n"
