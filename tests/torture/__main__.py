"""Command that executes replica runs: one line of JSON each on standard input, each in a process of its own.

It forks, because the imports of a run take longer than the run. For each run it prints the exit code of its process.
"""

import os
import sys
import traceback

from tests.torture.replica_run import ReplicaRun, run_replica


def main() -> None:
    """Execute runs until standard input ends."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(ReplicaRun.from_line(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(run: ReplicaRun) -> None:
    """Execute the run and end this process; print any exception to standard error."""
    code = 0
    try:
        run_replica(run)
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
        code = 1
    os._exit(code)


main()
