"""Prometheus for tests: `promtool` and `prometheus`, from the path or from Debian's package.

The package is unpacked once, into the environment of the tests. Without either, as offline or on another system, tests
that need them are skipped with the reason.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNPACKED = Path(sys.prefix) / ".prometheus"
DOWNLOAD_SECONDS = 90.0
NO_PROMETHEUS = "Debian's package prometheus can neither be found nor fetched"


def promtool(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run promtool with these arguments and this standard input; skip the test where there is none."""
    program = str(prometheus_program("promtool"))
    return subprocess.run([program, *arguments], input=given, capture_output=True, timeout=30, check=False)


def prometheus_program(name: str) -> Path:
    """Return the path of a program of Prometheus; skip the test where there is none."""
    found = _found(name)
    if found is None:
        pytest.skip(NO_PROMETHEUS)
    return found


@lru_cache
def _found(name: str) -> Path | None:
    if installed := shutil.which(name):
        return Path(installed)
    program = UNPACKED / "usr" / "bin" / name
    with (UNPACKED.parent / ".prometheus.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if not program.exists():
                _unpack()
        except (OSError, subprocess.SubprocessError):
            return None
    return program if program.exists() else None


def _unpack() -> None:
    """Download the package into a directory of its own, with lists of its own, and unpack it; nothing is installed."""
    with tempfile.TemporaryDirectory(dir=UNPACKED.parent) as name:
        directory = Path(name)
        for state in ("lists/partial", "cache/archives/partial"):
            (directory / state).mkdir(parents=True)
        options = [f"Dir::State::lists={directory}/lists", f"Dir::Cache={directory}/cache", "Debug::NoLocking=1"]
        options += [f"APT::Sandbox::User={os.environ.get('USER', 'root')}", "Acquire::Retries=0"]
        apt = ["apt-get", "-qq", *(part for option in options for part in ("-o", option))]
        for command in ([*apt, "update"], [*apt, "download", "prometheus"]):
            subprocess.run(command, cwd=directory, capture_output=True, timeout=DOWNLOAD_SECONDS, check=True)
        [package] = directory.glob("prometheus_*.deb")
        unpacked = directory / "unpacked"
        unpack = ["dpkg-deb", "-x", str(package), str(unpacked)]
        subprocess.run(unpack, capture_output=True, timeout=DOWNLOAD_SECONDS, check=True)
        shutil.rmtree(UNPACKED, ignore_errors=True)
        unpacked.rename(UNPACKED)
