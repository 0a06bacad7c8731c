"""Service that holds 20 boxes whose programs leave daemons, and a worker for code, until it is killed.

Its arguments are the level and a directory.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import anyio

from portico.adapters.tools.code.interpreter import MontyInterpreter
from portico.adapters.tools.sandbox.box import Box
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.adapters.tools.sandbox.run import ProgramRun, run_program
from portico.domain.tools import IsolationLevel
from tests.support.processes import programs_below
from tests.support.programs import LIMITS
from tests.support.sandbox import opened_sandbox

DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        script = f': {sys.argv[1]}; echo > {sys.argv[2]}; while true; do sleep 0.05; done'
        os.execve('/bin/sh', ['sh', '-c', script], {})
    os._exit(0)
import time
time.sleep(60)
"""


async def main() -> None:
    """Start the programs, say so, and wait."""
    level, directory = IsolationLevel(sys.argv[1]), Path(sys.argv[2])
    box = Box(writable=(directory,), directory=directory)
    isolated = IsolatedProgram(opened_sandbox(), box, 1 << 20, level)
    async with anyio.create_task_group() as group:
        group.start_soon(MontyInterpreter(isolated, workers=1).keep_ready)
        for number in range(20):
            started = directory / f"started-{number}"
            name = f"portico-daemon-{os.getpid()}-{number}"
            program = ProgramRun(
                command=(sys.executable, "-I", "-S", "-c", DAEMON, name, str(started)),
                run=f"run-{number}",
                isolated=isolated,
                environment={},
                limits=replace(LIMITS, cpu_seconds=60),
            )
            group.start_soon(run_program, program)
        while len(list(directory.glob("started-*"))) < 20:  # noqa: ASYNC110, ASYNC240 - what other processes do
            await anyio.sleep(0.01)
        while not programs_below(os.getpid(), "/monty"):  # noqa: ASYNC110 - see above
            await anyio.sleep(0.01)
        sys.stdout.write("running\n")
        sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(main)
