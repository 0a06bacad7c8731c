"""Box of a run: what a program may read, write and reach, and the command that starts it inside."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from shutil import rmtree, which
from tempfile import mkdtemp
from typing import Final

from portico.domain.value import value

SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOME_BYTES: Final = 64 * 1024 * 1024
"""Bytes that fit into the home of a run, into its /tmp and into its /dev/shm, in each."""
FORBIDDEN_ROOTS: Final = frozenset(map(Path, ("/", "/proc", "/sys", "/dev")))
"""Directories that no box opens as a whole."""
PYTHON_CODE: Final = (sys.executable, "-I", "-S", "-c")
"""Words of a command by which this interpreter, without packages, runs code: the code and its arguments follow."""
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/gitconfig", "/etc/hosts"),
    *("/etc/resolv.conf", "/etc/ld.so.cache", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/alternatives"),
)
_MAX_LINKS: Final = 40
_FIRST_LINE_BYTES: Final = 256
_SIGNALLED: Final = 128
"""Exit code of a box above which the difference is the signal that ended the program, as of a shell."""
_REPORT_BYTES: Final = 64 * 1024


class BoxError(Exception):
    """The box of a run could not be made: nothing has begun."""


@value
class ProcessLimits:
    """Limits of one run. CPU time is in seconds, the others are in bytes or counts.

    `memory` holds for each process and for the run as a whole. `written` is what a run may write to disk.
    """

    output: int
    memory: int
    processes: int
    open_files: int
    file_bytes: int
    cpu_seconds: float


@value
class Box:
    """The files and hosts that a program may use, beside the files of the system and its own: paths have no links.

    `directory` is where it begins; None for its home, which is empty, its own, and new for each run. `network` is True
    if it reaches all that the host reaches. A program's own files never lead to a directory with a `protected` file.
    """

    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    directory: Path | None = None
    network: bool = False
    protected: tuple[Path, ...] = ()


@value
class BoxedCommand:
    """A command that makes the box and then runs the program in it.

    `descriptors` have to be passed on to the command; it is started in `directory`. `report` is the end of a pipe that
    says whether the box could be made; None where none has to be made. With `reports_exit`, a report without an exit
    code says that it could not. `home` is the home of the run, unless it is in memory only. `makers` is the number of
    processes beside the program that belong to the box.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    descriptors: tuple[int, ...] = ()
    report: int | None = None
    reports_exit: bool = False
    home: Path | None = None
    makers: int = 0

    @property
    def began(self) -> float:
        """Return when the run began, in seconds of the clock by which file systems date their entries."""
        return os.stat(self.report if self.home is None and self.report is not None else self.home or "/").st_ctime

    def result(self, exit_code: int, output: str) -> int:
        """Return the exit code of the program, negative for a signal, from that of this command.

        Raises: BoxError if the box could not be made, so that nothing has begun.
        """
        if self.report is None:
            return exit_code
        lines = [json.loads(line) for line in _available(self.report).splitlines()]
        said = {name: value for line in lines for name, value in line.items()}
        if "failed" in said:
            raise BoxError(said["failed"])
        if self.reports_exit and exit_code == 1 and "exit-code" not in said:
            raise BoxError(output.strip().rpartition(": ")[2] or "no reason is known")
        if self.reports_exit and exit_code > _SIGNALLED:
            return _SIGNALLED - exit_code
        return int(said.get("exit", exit_code))


@contextmanager
def new_home() -> Iterator[Path]:
    """Yield an empty directory for one run, which is removed at the end."""
    home = Path(mkdtemp(prefix="portico-run-"))
    try:
        yield home
    finally:
        remove_home(home)


def remove_home(home: Path) -> None:
    """Remove the home of a run, also directories that their owner closed; a keeper may have removed it already."""
    for directory, _, _ in os.walk(home):
        os.chmod(directory, 0o700)
    if home.exists():
        rmtree(home)


@contextmanager
def passed_bytes(data: bytes) -> Iterator[int]:
    """Yield a descriptor at whose beginning the data can be read."""
    descriptor = os.memfd_create("portico", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _available(pipe: int) -> bytes:
    """Return what a pipe has now."""
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        return os.read(pipe, _REPORT_BYTES)
    return b""


def find_program(program: str, search_path: str | None = None, base: Path | None = None) -> str | None:
    """Return the absolute path of a program, by its name or path; None if it is not there, or not to be run.

    A name is looked up on the search path, by default the service's. A relative path begins at `base`; without it, it
    leads nowhere. Relative entries of a search path do not count, since anything may be where the service was started.
    """
    if "/" in program:
        path = Path(program) if base is None else base / program
        return which(str(path)) if path.is_absolute() else None
    entries = os.get_exec_path() if search_path is None else search_path.split(os.pathsep)
    return which(program, path=os.pathsep.join([each for each in entries if each.startswith("/")]))


@cache
def system_paths() -> tuple[Path, ...]:
    """Return the files and directories of the system that a program needs: programs, libraries, certificates, names."""
    return tuple(path for path in map(Path, _SYSTEM) if path.exists())


def paths_of_program(program: Path, protected: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the paths that a program needs beside the system's: its own files, and those of its interpreter.

    That is each link on the way to a file, and the directory above its `bin` if that has a `lib` and no protected file.
    """
    found: dict[Path, None] = {}
    for start in (program, *_interpreters(program)):
        for path in _links(start):
            found[path] = None
            above = path.parent.parent
            is_installation = path.parent.name == "bin" and (above / "lib").is_dir()
            if is_installation and is_openable(above, protected):
                found[above] = None
    outermost: list[Path] = []
    for path in sorted(found):
        if not any(path.is_relative_to(each) for each in (*system_paths(), *outermost)):
            outermost.append(path)
    return tuple(outermost)


def is_openable(path: Path, protected: Sequence[Path]) -> bool:
    """Return True if a box may open the directory: it is no root of the system, and has no protected file."""
    return path not in FORBIDDEN_ROOTS and not any(each.is_relative_to(path) for each in protected)


def _links(path: Path) -> Iterator[Path]:
    """Yield the path, and where each link leads, until a file that is no link."""
    for _ in range(_MAX_LINKS):
        if not path.exists():
            return
        yield path
        if not path.is_symlink():
            yield path.resolve()
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def _interpreters(program: Path) -> Sequence[Path]:
    """Return the program that the first line of a script names; of `env` the one that it finds, too."""
    try:
        with program.open("rb") as file:
            line = file.readline(_FIRST_LINE_BYTES)
    except OSError:
        return ()
    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    return [Path(word) for word in words if word.startswith("/")]
