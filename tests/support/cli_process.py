"""`portico` as a process of its own."""

import json
import resource
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

from tests.support.forked_portico import ForkedPortico

MAX_SECONDS = 60.0


class Process:
    """A `portico` process that is killed at the latest after `max_seconds`."""

    def __init__(self, process: "subprocess.Popen[str] | ForkedPortico", max_seconds: float = MAX_SECONDS) -> None:
        self._process = process
        self._watchdog = threading.Timer(max_seconds, process.kill)
        self._watchdog.start()
        self.port = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def wait_for_error(self, text: str) -> None:
        """Return once a line with this text was written to standard error."""
        assert self._process.stderr is not None
        assert any(text in line for line in self._process.stderr)

    def limit_files(self, descriptors: int) -> None:
        """Limit the number of open files and sockets from now on."""
        _, most = resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (descriptors, most))

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """Return the exit code and the standard error."""
        _, stderr = self._process.communicate()
        return self._process.returncode, stderr

    def close(self) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.communicate()

    def send(self, method: str, path: str, body: object) -> HTTPConnection:
        """Send a request and return its connection, without waiting for the answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=MAX_SECONDS)
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        return connection

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=MAX_SECONDS)
        try:
            given = {"Content-Type": "application/json", **headers} if body is not None else headers
            connection.request(method, path, None if body is None else json.dumps(body), given)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def execute(self, text: str, **headers: str) -> tuple[int, str]:
        return self.ask("POST", "/v1/execute", {"messages": [{"role": "user", "content": text}]}, **headers)

    def wait_for_in_flight(self, count: int) -> None:
        """Return once that many executions run."""
        while f"portico_executions_in_flight {count}" not in self.ask("GET", "/metrics")[1].replace(".0", ""):
            pass


@contextmanager
def serving(start: Callable[..., Process], **variables: str) -> Iterator[Process]:
    process = start("serve", "--port", "0", **variables)
    line = process.line()
    assert line.startswith("Portico listens on http://127.0.0.1:")
    process.port = int(line.split(",")[0].rpartition(":")[2])
    yield process
