"""The level `bubblewrap`: namespaces of their own for files, processes, messages, names, network and users.

`--unshare-user` stands beside `--unshare-all` because that alone goes on without a user namespace. /proc/sys is bound
read-only, since a box of root could write the host's `core_pattern` there. /dev is a file system in memory without a
bound, so nothing can be written to it. The program's environment is set inside the box: outside of it, a variable such
as LD_PRELOAD could let what makes the box load a file that the program has written.
"""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from portico.adapters.tools.sandbox.box import (
    HOME_BYTES,
    Box,
    BoxedCommand,
    ProcessLimits,
    passed_bytes,
    paths_of_program,
    system_paths,
)
from portico.adapters.tools.sandbox.limits import limiting_words
from portico.adapters.tools.sandbox.process_table import marks_of
from portico.adapters.tools.sandbox.seccomp import filter_program

_HOME: Final = "/run/home"
_SIZE: Final = ("--size", str(HOME_BYTES))
_NAMESPACES: Final = (
    *("--unshare-user", "--unshare-all"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
_MAKERS: Final = 2
"""bwrap outside of the box, and the one inside that adopts orphans."""


@contextmanager
def in_bubblewrap(
    bubblewrap: str, box: Box, command: Sequence[str], environment: Mapping[str, str], limits: ProcessLimits | None
) -> Iterator[BoxedCommand]:
    """Yield the command that makes the box; what it needs is there until the end."""
    with ExitStack() as resources:
        program = filter_program(platform.machine(), network=box.network, metadata=True)
        filtered = resources.enter_context(passed_bytes(program))
        variables = resources.enter_context(passed_bytes(_variables({"HOME": _HOME, "TMPDIR": _HOME, **environment})))
        report, status = os.pipe2(os.O_CLOEXEC)
        resources.callback(os.close, report)
        resources.callback(os.close, status)
        words = (
            *limiting_words(limits),
            *(bubblewrap, *_NAMESPACES, *(("--share-net",) if box.network else ())),
            *_files(box, Path(command[0])),
            *("--args", str(variables), "--seccomp", str(filtered), "--json-status-fd", str(status)),
            *("--", *command),
        )
        yield BoxedCommand(
            words,
            marks_of(environment),
            Path("/"),
            descriptors=(filtered, variables, status),
            report=report,
            reports_exit=True,
            makers=_MAKERS,
        )


def _variables(environment: Mapping[str, str]) -> bytes:
    """Return the words that set these variables, as `--args` reads them."""
    return b"".join(
        os.fsencode(word) + b"\0" for name, given in environment.items() for word in ("--setenv", name, given)
    )


def _files(box: Box, program: Path) -> Iterator[str]:
    """Yield the words that build the box's files; a later one covers an earlier one."""
    for path in system_paths():
        yield from ("--ro-bind", str(path), str(path))
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
    for directory in (_HOME, "/tmp", "/dev/shm"):  # noqa: S108 - those of the box
        yield from (*_SIZE, "--tmpfs", directory)
    for path in (*paths_of_program(program, box.protected), *box.readable):
        yield from ("--ro-bind", str(path), str(path))
    for path in box.writable:
        yield from ("--bind", str(path), str(path))
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")
    yield from ("--chdir", _HOME if box.directory is None else str(box.directory))
