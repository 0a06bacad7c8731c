"""The level `limits`: a session of its own, a clean environment and the system's limits on each process.

`prlimit` sets the limits and `setpriv` lets the program end with the service; both do so before the program begins,
which no call from outside could do without a gap. It stops accidents, not attacks.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from math import ceil
from shutil import which

from portico.adapters.tools.sandbox.box import SEARCH_PATH, Box, BoxedCommand, ProcessLimits, new_home
from portico.adapters.tools.sandbox.process_table import is_readable, task_count_of_user


@contextmanager
def in_limits(
    box: Box, command: Sequence[str], environment: Mapping[str, str], limits: ProcessLimits | None
) -> Iterator[BoxedCommand]:
    """Yield the command with its limits; its home is there until the end."""
    with new_home() as home:
        places = {"HOME": str(home), "TMPDIR": str(home)}
        words = (*limiting_words(limits), *command)
        yield BoxedCommand(words, {**places, **environment}, box.directory or home, home=home)


@cache
def system_program(name: str) -> str:
    """Return the path of a program of the system; the name if it is not there.

    It runs outside of the box, so no PATH that the boxed program has decides about it.
    """
    return which(name, path=SEARCH_PATH) or name


def missing_programs() -> list[str]:
    """Return what limits programs and is not here."""
    missing = [name for name in ("prlimit", "setpriv") if which(name, path=SEARCH_PATH) is None]
    return missing or ([] if is_readable() else ["the process table"])


def limiting_words(limits: ProcessLimits | None) -> tuple[str, ...]:
    """Return the words before a command that let it end with the service and set its limits, if it has any."""
    bound = (system_program("setpriv"), "--pdeathsig", "KILL", "--")
    if limits is None:
        return bound
    processes = limits.processes if os.geteuid() == 0 else limits.processes + task_count_of_user()
    return (
        *bound,
        *(system_program("prlimit"), "--core=0", f"--cpu={ceil(limits.cpu_seconds)}", f"--as={limits.memory}"),
        *(f"--nproc={processes}", f"--nofile={limits.open_files}", f"--fsize={limits.file_bytes}", "--"),
    )
