"""Abuses from inside of a box: none comes through that the docs do not admit, as root and as another user.

The service of each attack runs in a mount namespace of its own, where any user can read the interpreter and the tree.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from portico.domain.tools import IsolationLevel
from tests.adversarial.abuse import OWN_FILES, TABLE
from tests.support.sandbox import NO_ISOLATION, opened_sandbox, require_level

ROOT = Path(__file__).parents[2]
PACKAGES = Path(pytest.__file__).parents[1]
SETUP = """
set -eu
mount -t tmpfs none /mnt
mkdir -m 755 /mnt/python /mnt/packages /mnt/tree
mkdir -m 777 /mnt/place
mount --bind "$1" /mnt/python
mount --bind "$2" /mnt/packages
mount --bind "$3" /mnt/tree
if [ -n "$4" ]; then
    mount -t tmpfs -o mode=755 none "$4"
    mkdir -p "$1"
    mount --bind /mnt/python "$1"
fi
mount -t tmpfs -o mode=1777 none /dev/shm
SETUP
cd /mnt/place
export PYTHONPATH=/mnt/tree/app:/mnt/tree:/mnt/packages HOME=/mnt/place
shift 4
exec "$@"
"""
AS_ANOTHER = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
MOST_COME_THROUGH = 50
"""Abuses that at least come through where nothing stops them: rows that no level has to stop would prove nothing."""


def closed_directory(path: Path) -> str:
    """Return the outermost directory on the way that only its owner may enter; an empty text if there is none."""
    closed = (each for each in reversed(path.parents) if not each.stat().st_mode & 0o001)
    return str(next(closed, ""))


def in_namespace(user: str, module: str, *words: str, setup: str = "") -> str:
    """Return what a module prints that is run as that user in a mount namespace of its own, after this setup."""
    if os.geteuid() != 0 or not Path("/usr/bin/unshare").exists():
        pytest.skip(f"{NO_ISOLATION}: a mount namespace of its own needs root and unshare")
    command = [str(Path(sys.executable).resolve()), "-m", module, *words]
    switch = () if user == "root" else AS_ANOTHER
    places = (sys.base_prefix, str(PACKAGES), str(ROOT), closed_directory(Path(sys.base_prefix)))
    unshare = (
        "/usr/bin/unshare",
        "--mount",
        "--propagation",
        "private",
        "/bin/sh",
        "-c",
        SETUP.replace("SETUP", setup),
    )
    ended = subprocess.run(
        [*unshare, "sh", *places, *switch, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def attack(level: IsolationLevel, user: str) -> set[str]:
    """Return the names of the abuses that came through."""
    return set(json.loads(in_namespace(user, "tests.adversarial.attack", level, "/mnt/place")))


@pytest.mark.parametrize("user", ["root", "another user"])
@pytest.mark.parametrize("level", [IsolationLevel.BUBBLEWRAP, IsolationLevel.LANDLOCK])
def test_no_abuse_comes_through_that_the_docs_do_not_admit(level: IsolationLevel, user: str) -> None:
    require_level(opened_sandbox(), level)
    assert attack(level, user) <= {row.name for row in TABLE if level in row.admitted_at}


@pytest.mark.parametrize("user", ["root", "another user"])
def test_the_abuses_are_real_where_only_limits_hold(user: str) -> None:
    assert len(attack(IsolationLevel.LIMITS, user)) >= (MOST_COME_THROUGH if user == "root" else 1)


def test_the_docs_admit_what_comes_through() -> None:
    text = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")
    sentences = {OWN_FILES, *(row.sentence for row in TABLE)}
    assert [sentence for sentence in sentences if sentence not in " ".join(text.split())] == []
    assert len(TABLE) >= 93
    assert len({row.name for row in TABLE}) == len(TABLE)
