"""The start of the service, its idle memory, and the description of its command, beside bare processes."""

import asyncio
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.processes import clean_environment, open_portico
from bench.scenarios import IDLE_SECONDS, BenchEnvironment, Numbers

STARTS = 5
COMMANDS = 9
PYTHON = (sys.executable, "-c", "pass")
HELP = (str(Path(sys.executable).with_name("portico")), "--help")
LIBRARIES = """
import fastapi, aiohttp, sqlalchemy, uvicorn
from pathlib import Path
print(Path("/proc/self/statm").read_text().split()[1])
"""
"""Program that imports what any such service does, and prints its resident pages."""


async def startup(bench: BenchEnvironment) -> Numbers:
    """Measure the time from the start of the process to its first ready answer, its idle memory, and `--help`."""
    ready, resident = [], []
    for _ in range(STARTS):
        async with open_portico(bench.cores, bench.upstream.port) as portico:
            await asyncio.sleep(IDLE_SECONDS)
            ready.append(portico.ready_seconds)
            resident.append(portico.resident_bytes())
    python, described = _cpu_seconds(PYTHON), _cpu_seconds(HELP)
    return {
        "start_seconds": statistics.median(ready),
        "idle_mb": max(resident) / 1e6,
        "idle_ratio": max(resident) / _bytes_of_libraries(),
        "help_ms": described * 1000,
        "help_ratio": described / python,
    }


def _cpu_seconds(command: tuple[str, ...]) -> float:
    """Return the median CPU time of a command that runs to its end."""
    seconds = []
    for _ in range(COMMANDS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=clean_environment())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        seconds.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(seconds)


def _bytes_of_libraries() -> int:
    """Return the resident memory of a process that has imported the libraries of such a service, and nothing else."""
    command = (sys.executable, "-c", LIBRARIES)
    pages = subprocess.run(command, env=clean_environment(), capture_output=True, check=True, text=True).stdout
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
