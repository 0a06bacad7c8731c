"""The context of a flow's functions: a working directory, permitted commands, and dependencies by type."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, TypeVar

from portico.orchestration.flow.errors import ForbiddenCommand, Io, Missing, PathEscape

T = TypeVar("T")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Context:
    """Surroundings of a flow's functions: files, commands and dependencies.

    `working_dir` is the root of all paths, by default the current directory; `commands` are those that the flow may
    run; `dependencies` are found by their type. `http_timeout` is in seconds, for the HTTP clients of nodes.
    """

    def __init__(
        self,
        working_dir: str | Path | None = None,
        commands: Iterable[str] = (),
        dependencies: Iterable[object] = (),
        http_timeout: float = 30.0,
    ) -> None:
        self.working_dir = Path(os.path.realpath(Path.cwd() if working_dir is None else working_dir))
        self.commands = frozenset(commands)
        self.http_timeout = http_timeout
        self._dependencies = tuple(dependencies)

    def resolve(self, path: str | Path) -> Path:
        """Return the canonical path beneath the working directory. Symlinks may lead anywhere within it.

        The file system may change afterwards; `open` has no such gap. Raises: PathEscape.
        """
        try:
            resolved = Path(os.path.realpath(self.working_dir / path))
        except ValueError as cause:
            raise PathEscape("the path contains a null character") from cause
        if not resolved.is_relative_to(self.working_dir):
            raise PathEscape("the path leads out of the working directory")
        return resolved

    def open(self, path: str | Path, mode: str = "r") -> IO[Any]:
        """Open a regular file beneath the working directory, in a mode of the built-in `open`; text is UTF-8.

        Every directory on the way is opened by itself and no symlink is followed then, so a path that is swapped
        meanwhile is refused. Raises: PathEscape; Io.
        """
        parts = self.resolve(path).relative_to(self.working_dir).parts
        if not parts:
            raise Io("the path is a directory")
        try:
            directory = self._open_directory(parts[:-1])
            try:
                return _open_file(directory, parts[-1], mode)
            finally:
                os.close(directory)
        except OSError as cause:
            raise Io(f"cannot open the file: {cause.strerror}") from cause

    def check_command(self, command: str) -> None:
        """Raise ForbiddenCommand unless the flow may run the command."""
        if command not in self.commands:
            raise ForbiddenCommand(f"the command {command!a:.80} is not permitted")

    def require(self, kind: type[T]) -> T:
        """Return the first dependency of that type. Raises: Missing."""
        for dependency in self._dependencies:
            if isinstance(dependency, kind):
                return dependency
        raise Missing(f"no dependency of type {kind.__name__} is provided")

    def _open_directory(self, parts: tuple[str, ...]) -> int:
        directory = os.open(self.working_dir, _DIRECTORY)
        for part in parts:
            try:
                child = os.open(part, _DIRECTORY, dir_fd=directory)
            finally:
                os.close(directory)
            directory = child
        return directory


def _open_file(directory: int, name: str, mode: str) -> IO[Any]:
    def opener(_: str, flags: int) -> int:
        # Without O_NONBLOCK, opening a FIFO waits for its other end.
        file = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=directory)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise PathEscape("only regular files can be opened")
        return file

    return open(name, mode, encoding=None if "b" in mode else "utf-8", opener=opener)
