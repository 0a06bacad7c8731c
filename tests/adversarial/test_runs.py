"""Runs that use more than they may, and what they leave behind: each is ended, with everything that it started."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from portico.domain.tools import IsolationLevel
from portico.ports.tool import ToolError
from tests.support.processes import programs_below
from tests.support.programs import LIMITS, Programs, run
from tests.support.sandbox import opened_sandbox, require_level

pytestmark = pytest.mark.usefixtures("real_time")
MIB = 1 << 20
MANY_PROCESSES = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        kept = bytearray(40 << 20)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
UNLINKED = """
import os
file = open('big', 'w+b', 0)
os.unlink('big')
while True:
    file.write(bytes(1 << 20))
    file.seek(0)
    os.fsync(file.fileno())
"""
MAPPED = """
import mmap, os
file = open('big', 'w+b')
file.truncate(1 << 20)
memory = mmap.mmap(file.fileno(), 1 << 20)
while True:
    for page in range(0, 1 << 20, 4096):
        memory[page] = (memory[page] + 1) % 256
    memory.flush()
"""
EMPTY_FILES = """
for number in range(10**6):
    open(f'{number}', 'w').close()
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        name = 'portico-daemon-' + os.environ['PORTICO_TOOL_CALL']
        os.execve('/bin/sh', ['sh', '-c', f': {name}; echo > started; while true; do sleep 0.05; done'], {})
    os._exit(0)
os.wait()
while not os.path.exists('started'):
    time.sleep(0.01)
print('started')
"""


@pytest.fixture(params=list(IsolationLevel))
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Programs:
    require_level(opened_sandbox(), request.param)
    return Programs(opened_sandbox(), request.param, tmp_path)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (MANY_PROCESSES, f"its processes used more than {160 * MIB} bytes of memory"),
        (UNLINKED, f"it wrote more than {32 * MIB} bytes to disk"),
        (MAPPED, f"it wrote more than {32 * MIB} bytes to disk"),
        (EMPTY_FILES, "it made more than 10000 files and directories"),
    ],
    ids=["memory of many processes", "a file without a name", "mapped memory", "empty files"],
)
async def test_a_run_that_uses_more_than_it_may_is_ended(code: str, reason: str, program: Programs) -> None:
    tool = program.python(code, limits=replace(LIMITS, memory=160 * MIB, cpu_seconds=30))
    with pytest.raises(ToolError) as ended:
        await run(tool)
    assert str(ended.value).removeprefix("the program was ended: ") == reason


async def test_a_home_has_at_most_64_mib_at_each_level(program: Programs) -> None:
    code = "import os, time\nos.chdir(os.environ['HOME'])\nfor number in range(80):\n"
    code += "    with open(str(number), 'wb') as file:\n        file.write(bytes(1 << 20))\ntime.sleep(9)"
    tool = program.python(code, isolated=replace(program.isolated, written_bytes=256 * MIB))
    with pytest.raises(ToolError, match=rf"its home has more than {64 * MIB} bytes|No space left on device"):
        await run(tool)


async def test_no_variable_of_a_program_acts_on_what_makes_its_box(program: Programs) -> None:
    outside = program.directory.parent / f"{program.directory.name}-outside"
    outside.mkdir()
    for name in ("setpriv", "prlimit", "bwrap"):
        planted = program.directory / name
        planted.write_text(f"#!/bin/sh\n: > {outside}/{name}\n")
        planted.chmod(0o755)
    loader = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{outside}/loaded"}
    is_enforced = program.level is not IsolationLevel.LIMITS
    environment = {"PATH": str(program.directory), "A": "b\nc=d", **(loader if is_enforced else {})}
    output = await run(program("/bin/sh", "-c", 'echo "$PATH" "$A"', environment=environment))
    assert f"{program.directory} b\nc=d\n" in output
    assert os.listdir(outside) == []


async def test_a_daemon_with_an_empty_environment_ends_with_the_run(program: Programs) -> None:
    assert await run(program.python(DAEMON)) == "started\n"
    assert commands(lambda command: "portico-daemon-run-of-a-test" in command) == []


async def test_an_orphan_that_no_run_claims_ends_with_the_last_run_that_was_there(tmp_path: Path) -> None:
    program = Programs(opened_sandbox(), IsolationLevel.LIMITS, tmp_path)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with anyio.create_task_group() as group:
        group.start_soon(run, program("cat", str(gate)), "another-run")
        await until(lambda: bool(commands(lambda command: str(gate) in command)))
        assert await run(program.python(DAEMON)) == "started\n"
        assert commands(lambda command: "portico-daemon-run-of-a-test" in command)
        gate.write_text("")
    assert commands(lambda command: "portico-daemon-run-of-a-test" in command) == []


@pytest.mark.parametrize("level", [IsolationLevel.BUBBLEWRAP, IsolationLevel.LANDLOCK])
async def test_nothing_outlives_a_service_that_is_killed(level: IsolationLevel, tmp_path: Path) -> None:
    require_level(opened_sandbox(), level)
    service = await anyio.open_process(
        [sys.executable, "-m", "tests.adversarial.service_of_daemons", level, str(tmp_path)], stdout=-1
    )
    assert service.stdout is not None
    try:
        assert await service.stdout.receive() == b"running\n"
        name = f"portico-daemon-{service.pid}-"
        assert len(commands(lambda command: name in command)) >= 20
        [worker] = programs_below(service.pid, "/monty")
    finally:
        service.send_signal(signal.SIGKILL)
        await service.wait()
    await until(lambda: commands(lambda command: name in command) == [] and not Path("/proc", str(worker)).exists())


def commands(matches: Callable[[str], bool]) -> list[str]:
    """Return the command lines that match, of processes that have not ended."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path("/proc", name, "cmdline").read_text()
        except OSError:
            continue
        if command and matches(command) and int(name) != os.getpid():
            found.append(command)
    return found


async def until(holds: Callable[[], bool]) -> None:
    """Wait, for at most 2 s, until the condition holds."""
    with anyio.fail_after(2):
        while not holds():  # noqa: ASYNC110 - what another process does sets no event
            await anyio.sleep(0.02)
