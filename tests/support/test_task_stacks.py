"""A test that hangs fails after its timeout, and its report shows what it waited for."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HANGING = """
import anyio


async def wait_for_what_never_comes():
    await anyio.sleep_forever()


async def test_it_hangs():
    await wait_for_what_never_comes()
"""


def test_a_test_that_hangs_fails_with_the_stack_of_its_task(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    options = ["-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "tests.conftest", "--timeout", "1"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, options), "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1
    assert "FAILED" in run.stdout
    assert "in wait_for_what_never_comes" in run.stdout
