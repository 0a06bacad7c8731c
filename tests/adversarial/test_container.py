"""The level in containers: under a filter as Docker's and with parts of /proc masked, `landlock` starts and holds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from portico.domain.tools import IsolationLevel
from tests.adversarial.test_abuse import in_namespace
from tests.support.sandbox import opened_sandbox, require_level

MASKED = """
for each in /proc/acpi /proc/scsi; do if [ -d "$each" ]; then mount -t tmpfs -o ro none "$each"; fi; done
for each in /proc/kcore /proc/keys /proc/timer_list; do
    if [ -e "$each" ]; then mount --bind /dev/null "$each"; fi
done
for each in /proc/bus /proc/fs /proc/irq /proc/sys; do
    if [ -d "$each" ]; then mount --bind "$each" "$each" && mount -o remount,bind,ro "$each"; fi
done
"""


@pytest.mark.parametrize("user", ["root", "another user"])
def test_landlock_is_the_level_in_a_container_and_bubblewrap_says_why_it_is_not(user: str) -> None:
    require_level(opened_sandbox(), IsolationLevel.LANDLOCK)
    found: dict[str, Any] = json.loads(in_namespace(user, "tests.adversarial.in_container", "/mnt/place", setup=MASKED))
    assert found["strongest"] == "landlock"
    assert (found["reasons"]["landlock"], found["user"] == 0) == ("", user == "root")
    assert found["reasons"]["bubblewrap"]
    assert "its own\n" in found["output"]
    assert "PermissionError" in found["output"]
    assert "secret'" in found["output"]


def test_the_list_of_tools_and_the_check_name_the_levels_as_they_are_and_where_namespaces_are_refused(
    tmp_path: Path,
) -> None:
    for level in (IsolationLevel.BUBBLEWRAP, IsolationLevel.LANDLOCK):
        require_level(opened_sandbox(), level)
    command = [sys.executable, "-m", "tests.adversarial.shown_levels", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    usual, filtered = json.loads(ended.stdout).values()
    for name in ("hello", "run_python"):
        assert usual["tools"][name] == ["bubblewrap", "none", True, ""]
        assert filtered["tools"][name] == ["landlock", "none", True, ""]
    assert usual["tools"]["strict"] == ["bubblewrap", "none", True, ""]
    _, _, is_available, reason = filtered["tools"]["strict"]
    assert (is_available, reason[:32]) == (False, "bubblewrap does not start here: ")
    assert [line.split("  ")[:2] for line in usual["check"]] == [
        ["isolation bubblewrap", "ok"],
        ["isolation landlock", "ok"],
    ]
    assert [line.split("  ")[:2] for line in filtered["check"]] == [
        ["isolation bubblewrap", "unavailable"],
        ["isolation landlock", "ok"],
    ]
    assert filtered["check"][1] == usual["check"][1]
