"""Programs as tools: containment, limits, and that nothing is left of a run."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.adapters.tools.external_tool import ExternalToolFacts
from portico.adapters.tools.programs.process import SEARCH_PATH, ProcessLimits
from portico.adapters.tools.programs.process_table import MARK, processes_of
from portico.adapters.tools.programs.program_tool import ProgramConfig, ProgramTool
from portico.domain.ids import IdempotencyKey, ToolCallId
from portico.domain.tools import SideEffects
from portico.ports.tool import ToolContext, ToolError
from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock

pytestmark = pytest.mark.usefixtures("real_time")
LIMITS = ProcessLimits(output=4096, memory=1 << 30, processes=32, open_files=64, file_bytes=1 << 20, cpu_seconds=5)
ONE_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
RUN = IdempotencyKey("run-of-a-test")


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail if a process of the run is there after the test."""
    yield
    assert [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _has_mark(pid)] == []


def _has_mark(pid: str) -> bool:
    with suppress(OSError):
        return f"{MARK}={RUN}".encode() in Path("/proc", pid, "environ").read_bytes()
    return False


def program(working_directory: Path, *command: str, **changes: Any) -> ProgramTool:
    config = ProgramConfig(
        facts=ExternalToolFacts("program", "A program.", ONE_TEXT, SideEffects.READ, idempotent=True, timeout=10),
        command=command,
        directory=working_directory,
        limits=LIMITS,
        environment={"PATH": SEARCH_PATH},
    )
    return ProgramTool(replace(config, **changes))


def python(working_directory: Path, code: str, **changes: Any) -> ProgramTool:
    return program(working_directory, sys.executable, "-I", "-S", "-c", code, **changes)


async def run(tool: ProgramTool, **arguments: Any) -> str:
    context = ToolContext(ToolCallId("call_1"), 10, VirtualClock(), SeededEntropy(1), RUN)
    return await tool.execute(arguments, context)


async def test_an_argument_reaches_the_program_as_it_is(tmp_path: Path) -> None:
    tool = program(tmp_path, "printf", "%s", "--", "{text}")
    hostile = "; rm -rf / $(id) `id` | & > < * ~ \n \" ' -- --help"
    assert await run(tool, text=hostile) == f"--{hostile}"


async def test_the_environment_is_clean_and_the_directory_is_the_configured_one(tmp_path: Path) -> None:
    text = await run(program(tmp_path, "env"))
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert names == {"PATH", MARK}
    assert await run(program(tmp_path, "pwd")) == f"{tmp_path}\n"


async def test_the_program_has_no_input_and_no_open_files_of_the_service(tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        listed = await run(python(tmp_path, "import os; print(os.listdir('/proc/self/fd'), input is not None)"))
        assert str(secret.fileno()) not in listed
    assert await run(program(tmp_path, "cat")) == ""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; print('why'); sys.exit(3)", "the program exited with 3; its output:\nwhy\n"),
        ("import sys; sys.exit(3)", "the program exited with 3"),
        ("import os; os.kill(os.getpid(), 9)", "the program was ended by signal 9"),
    ],
)
async def test_a_failure_says_how_the_program_ended(code: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as failed:
        await run(python(tmp_path, code))
    assert str(failed.value) == message


async def test_other_exit_codes_may_be_accepted(tmp_path: Path) -> None:
    tool = program(tmp_path, "grep", "--regexp={text}", "--", "/dev/null", ok_exit_codes=frozenset({0, 1}))
    assert await run(tool, text="x") == ""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = bytearray(2 << 30)", "MemoryError"),
        ("x = [open('/dev/null') for _ in range(100)]", "Too many open files"),
        ("open('big', 'wb').write(b'x' * (2 << 20))", "File too large|signal 25"),
        ("while True: pass", "signal 9"),
    ],
)
async def test_memory_files_and_cpu_time_are_limited(code: str, message: str, tmp_path: Path) -> None:
    tool = python(tmp_path, code, limits=replace(LIMITS, cpu_seconds=1))
    with pytest.raises(ToolError, match=message):
        await run(tool)


async def test_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    text = await run(python(tmp_path, "print('begin'); print('x' * 100_000); print('end')"))
    assert text.startswith("begin\n")
    assert text.endswith("x\nend\n")
    assert "[95915 bytes left out]" in text


@pytest.mark.usefixtures("nothing_left")
async def test_endless_output_ends_the_program(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"^the program was ended: it wrote more than 67108864 bytes$"):
        await run(program(tmp_path, "yes"))


@pytest.mark.usefixtures("nothing_left")
async def test_a_program_that_ignores_sigterm_is_killed_soon_after_its_time(tmp_path: Path) -> None:
    tool = python(tmp_path, "import signal\nsignal.signal(15, signal.SIG_IGN)\nwhile True: signal.pause()")
    began = anyio.current_time()
    with anyio.move_on_after(0.5) as limit:
        await run(tool)
    assert limit.cancelled_caught
    assert anyio.current_time() - began < 2


FORK_AND = (
    "import os, time\nif os.fork() == 0:\n  {child}\n  time.sleep(60)\n  os._exit(0)\nprint('done', flush=True)\n"
)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    "child",
    ["pass", "os.setsid()", "os.setsid(); os.fork() and os._exit(0)", "os.close(1); os.close(2); os.setsid()"],
    ids=["holds the pipe", "leaves the session", "forks twice", "closes the pipe"],
)
async def test_what_a_program_leaves_behind_is_ended(child: str, tmp_path: Path) -> None:
    began = anyio.current_time()
    assert await run(python(tmp_path, FORK_AND.format(child=child))) == "done\n"
    assert anyio.current_time() - began < 2


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("step", ["os.fork()", "os.fork() or os.setsid()"], ids=["one group", "many sessions"])
async def test_a_program_that_multiplies_is_ended(step: str, tmp_path: Path) -> None:
    tool = python(tmp_path, f"import os, time\nfor _ in range(9):\n  {step}\ntime.sleep(60)")
    with pytest.raises(ToolError, match=r"it started more than 32 processes|Resource temporarily unavailable"):
        await run(tool)
    assert processes_of(RUN, 0) == []


async def test_a_program_that_cannot_be_started_is_an_error_without_its_path(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/nowhere\n")
    script.chmod(0o755)
    with pytest.raises(ToolError) as failed:
        await run(program(tmp_path, "./script"))
    assert "127" in str(failed.value) or "126" in str(failed.value)
    with pytest.raises(ToolError, match=r"^the program could not be started: Argument list too long$"):
        await run(program(tmp_path, "true", "--", "{text}"), text="x" * (1 << 20))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"command": ("no-such-program",)}, "no-such-program is not installed"),
        ({"directory": Path("/no/such/directory")}, "its working directory does not exist"),
        ({"require_isolation": True}, "it requires isolation, which this version does not have"),
    ],
)
async def test_a_program_that_cannot_run_here_is_unavailable(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    found = program(tmp_path, "true", **changes).available()
    assert (found.available, found.reason) == (False, reason)
    assert program(tmp_path, "true").available().available
