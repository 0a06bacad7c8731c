"""Launcher of a boxed command where a library starts the process and takes no more than the path of a program.

The path leads to a script in memory. A process that runs it takes the descriptors that the box needs from the service,
by its process table, and becomes the command. A command that is code for the same interpreter is run in place.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from portico.adapters.tools.sandbox.box import PYTHON_CODE, BoxedCommand

_EXECUTABLE = 0x10
"""MFD_EXEC: the file may be run even where the system lets none by default. Kernels before 6.3 do not know the flag."""
_SCRIPT = """#!{interpreter} -IS
import os, stat, sys
for number in {descriptors!r}:
    path = "/proc/{service}/fd/" + str(number)
    taken = os.open(path, os.O_WRONLY if stat.S_ISFIFO(os.stat(path).st_mode) else os.O_RDONLY)
    if taken != number:
        os.dup2(taken, number)
        os.close(taken)
    os.set_inheritable(number, True)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
os.chdir({directory!r})
"""
_BECOME = "os.execvpe({program!r}, {words!r}, {environment!r})"
_RUN_CODE = "sys.argv = {words!r}\nexec({program!r})"


@contextmanager
def launcher(boxed: BoxedCommand) -> Iterator[str]:
    """Yield the path of a program that becomes the boxed command, with what that writes to standard error dropped."""
    skipped = len(PYTHON_CODE) if boxed.words[: len(PYTHON_CODE)] == PYTHON_CODE else 0
    words = list(boxed.words[skipped:])
    script = (_SCRIPT + (_RUN_CODE if skipped else _BECOME)).format(
        interpreter=sys.executable,
        descriptors=boxed.descriptors,
        service=os.getpid(),
        directory=str(boxed.directory),
        program=words[0],
        words=words,
        environment=dict(boxed.environment),
    )
    descriptor = _readable(script.encode())
    try:
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _readable(script: bytes) -> int:
    """Return a descriptor that reads the script; nothing has it open for writing, or the system would not run it."""
    try:
        written = os.memfd_create("portico-launcher", os.MFD_CLOEXEC | _EXECUTABLE)
    except OSError:
        written = os.memfd_create("portico-launcher", os.MFD_CLOEXEC)
    try:
        os.write(written, script)
        return os.open(f"/proc/self/fd/{written}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(written)
