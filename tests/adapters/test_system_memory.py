"""Memory of the operating system comes back when it is freed."""

import subprocess
import sys

PROGRAM = """
import resource
from pathlib import Path

from portico.adapters.system import map_large_blocks


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()



map_large_blocks()
before, small = resident(), []
largest = bytearray(24 * 2**20)
del largest
for _ in range(3):
    large = []
    for _ in range(200):
        large.append(bytes(200_000))
        small.append(bytes(600))
    del large
print((resident() - before) // 2**20)
"""


def test_large_blocks_are_given_back_though_small_ones_were_allocated_between_them():
    """A C library that is left alone keeps 40 MB here."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True)
    assert int(run.stdout) < 8
