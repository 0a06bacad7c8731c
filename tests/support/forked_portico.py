"""`portico` as a process of its own that is forked from one which has imported it, so that it starts in a moment.

It differs from `python -m portico` in that alone; tests of the start itself begin with an interpreter of their own.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from io import TextIOWrapper
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO

from portico.__main__ import portico

PRELOADED = "tests.support.forked_imports"
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([PRELOADED])


class ForkedPortico:
    """A running command, with the members of `subprocess.Popen` that tests use. What it prints is read as text."""

    def __init__(self, *arguments: str, directory: Path, environ: Mapping[str, str], errors: int = subprocess.PIPE):
        """Start the command. `errors` is where standard error goes: PIPE, STDOUT, DEVNULL, or a descriptor."""
        self._process: multiprocessing.process.BaseProcess
        self.stdout: TextIO
        self.stderr: TextIO | None = None
        with ExitStack() as theirs:
            self.stdout, output = _pipe(theirs)
            if errors == subprocess.PIPE:
                self.stderr, errors_to = _pipe(theirs)
            elif errors == subprocess.STDOUT:
                errors_to = output
            else:
                opened = os.open(os.devnull, os.O_WRONLY) if errors == subprocess.DEVNULL else os.dup(errors)
                errors_to = theirs.enter_context(Connection(opened, readable=False))
            given = (arguments, str(directory), dict(environ), output, errors_to)
            self._process = _CONTEXT.Process(target=_run, args=given, daemon=True)
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises: TimeoutError."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutError(f"the process runs on after {timeout} s")
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str | None]:
        """Return what is left to read of both streams once the process has ended. Raises: TimeoutError."""
        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(_rest, stream) for stream in (self.stdout, self.stderr)]
            self.wait(timeout)
            output, errors = (each.result() for each in readers)
        return output or "", errors


def _rest(stream: TextIO | None) -> str | None:
    """Return what is left to read, and close the stream."""
    if stream is None or stream.closed:
        return None
    with stream:
        return stream.read()


def _pipe(theirs: ExitStack) -> tuple[TextIO, Connection]:
    """Return the end that is read, and the end that the process writes to."""
    read, write = os.pipe()
    return os.fdopen(read, encoding="utf-8", errors="replace"), theirs.enter_context(Connection(write, readable=False))


def _run(arguments: tuple[str, ...], directory: str, environ: dict[str, str], out: Connection, err: Connection) -> None:
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    out.close()
    if err is not out:
        err.close()
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    sys.path.insert(0, directory)
    sys.argv = ["portico", *arguments]
    portico()
