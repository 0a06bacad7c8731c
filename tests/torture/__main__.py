"""Lives the lives it is told, one a line, each in a process of its own, and says how each ended.

It forks, since importing what a life needs takes longer than living it.
"""

import os
import sys
import traceback

from tests.torture.replica_run import ReplicaRun, run_replica


def main() -> None:
    """Until its standard input ends."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _live(ReplicaRun.from_line(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _live(life: ReplicaRun) -> None:
    """What is raised is told on standard error, and ends the process as any other end does."""
    code = 0
    try:
        run_replica(life)
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
        code = 1
    os._exit(code)


main()
