"""Programs as tools: containment, limits, and that nothing is left of a run."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from portico.adapters.tools.sandbox.box import Box
from portico.adapters.tools.sandbox.process_table import MARK, processes_of
from portico.domain.tools import IsolationLevel
from portico.ports.tool import ToolError
from tests.support.programs import LIMITS, RUN, Programs, run
from tests.support.sandbox import opened_sandbox, require_level

pytestmark = pytest.mark.usefixtures("real_time")


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail if a process of the run is there after the test."""
    yield
    assert [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _has_mark(pid)] == []


def _has_mark(pid: str) -> bool:
    with suppress(OSError):
        return f"{MARK}={RUN}".encode() in Path("/proc", pid, "environ").read_bytes()
    return False


@pytest.fixture(params=list(IsolationLevel))
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Programs:
    level, sandbox = request.param, opened_sandbox()
    require_level(sandbox, level)
    return Programs(sandbox, level, tmp_path)


async def test_an_argument_reaches_the_program_as_it_is(program: Programs) -> None:
    tool = program("printf", "%s", "--", "{text}")
    hostile = "; rm -rf / $(id) `id` | & > < * ~ \n \" ' -- --help"
    assert await run(tool, text=hostile) == f"--{hostile}"


async def test_the_environment_is_clean_and_the_directory_is_the_configured_one(program: Programs) -> None:
    text = await run(program("env"))
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert names - {"PWD"} == {"PATH", "HOME", "TMPDIR", MARK}
    assert await run(program("pwd")) == f"{program.directory}\n"


async def test_the_program_has_no_input_and_no_open_files_of_the_service(program: Programs) -> None:
    with (program.directory / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        listed = await run(program.python("import os; print(os.listdir('/proc/self/fd'), input is not None)"))
        assert str(secret.fileno()) not in listed
    assert await run(program("cat")) == ""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; print('why'); sys.exit(3)", "the program exited with 3; its output:\nwhy\n"),
        ("import sys; sys.exit(3)", "the program exited with 3"),
        ("import os; os.kill(os.getpid(), 9)", "the program was ended by signal 9"),
    ],
)
async def test_a_failure_says_how_the_program_ended(code: str, message: str, program: Programs) -> None:
    with pytest.raises(ToolError) as failed:
        await run(program.python(code))
    assert str(failed.value) == message


async def test_other_exit_codes_may_be_accepted(program: Programs) -> None:
    tool = program("grep", "--regexp={text}", "--", "/dev/null", ok_exit_codes=frozenset({0, 1}))
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
async def test_memory_files_and_cpu_time_are_limited(code: str, message: str, program: Programs) -> None:
    tool = program.python(code, limits=replace(LIMITS, cpu_seconds=1))
    with pytest.raises(ToolError, match=message):
        await run(tool)


async def test_output_keeps_its_beginning_and_its_end(program: Programs) -> None:
    text = await run(program.python("print('begin'); print('x' * 100_000); print('end')"))
    assert text.startswith("begin\n")
    assert text.endswith("x\nend\n")
    assert "[95915 bytes left out]" in text


@pytest.mark.usefixtures("nothing_left")
async def test_endless_output_ends_the_program(program: Programs) -> None:
    with pytest.raises(ToolError, match=r"^the program was ended: it wrote more than 67108864 bytes$"):
        await run(program("yes"))


@pytest.mark.usefixtures("nothing_left")
async def test_a_program_that_ignores_sigterm_is_killed_soon_after_its_time(program: Programs) -> None:
    tool = program.python("import signal\nsignal.signal(15, signal.SIG_IGN)\nwhile True: signal.pause()")
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
async def test_what_a_program_leaves_behind_is_ended(child: str, program: Programs) -> None:
    began = anyio.current_time()
    assert await run(program.python(FORK_AND.format(child=child))) == "done\n"
    assert anyio.current_time() - began < 2


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("step", ["os.fork()", "os.fork() or os.setsid()"], ids=["one group", "many sessions"])
async def test_a_program_that_multiplies_is_ended(step: str, program: Programs) -> None:
    tool = program.python(f"import os, time\nfor _ in range(9):\n  {step}\ntime.sleep(60)")
    with pytest.raises(ToolError, match=r"it started more than 32 processes|Resource temporarily unavailable"):
        await run(tool)
    assert processes_of(RUN, 0) == []


async def test_a_program_that_cannot_be_started_is_an_error_without_its_path(program: Programs) -> None:
    script = program.directory / "script"
    script.write_text("#!/nowhere\n")
    script.chmod(0o755)
    with pytest.raises(ToolError) as failed:
        await run(program("./script"))
    assert str(failed.value) in {
        "the box could not be made: No such file or directory",
        f"the program exited with 127; its output:\nprlimit: failed to execute {script}: No such file or directory\n",
    }
    with pytest.raises(ToolError, match=r"^the (program|box) could not be (started|made): Argument list too long$"):
        await run(program("true", "--", "{text}"), text="x" * (1 << 20))


async def test_a_program_that_cannot_run_here_is_unavailable(program: Programs) -> None:
    assert program("true").available().available
    absent = program("no-such-program").available()
    assert (absent.available, absent.reason) == (False, "no-such-program is not installed")
    elsewhere = replace(program.isolated, box=Box(directory=Path("/no/such/directory")))
    assert program("true", isolated=elsewhere).available().reason == "its working directory does not exist"
