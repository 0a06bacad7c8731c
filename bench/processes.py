"""Measured processes: started on a core of their own, read from the kernel, stopped by their id."""

import asyncio
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

READY_SECONDS = 60
END_SECONDS = 10
PROBE_SECONDS = 2
MODULE_SECONDS = 120
POLL_SECONDS = 0.002

_CONFIGURATION = """\
[engines.upstream]
model = "openai://bench"
base_url = "http://127.0.0.1:{upstream}/v1"
api_key_env = "BENCH_KEY"
"""


@dataclass(frozen=True, slots=True)
class Cores:
    """The core of the measured process and that of load and upstream; both empty on a machine with one core."""

    measured: frozenset[int]
    load: frozenset[int]

    @classmethod
    def detect(cls) -> "Cores":
        cores = sorted(os.sched_getaffinity(0))
        return cls(frozenset(cores[:1]), frozenset(cores[1:2])) if len(cores) > 1 else cls(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class MeasuredProcess:
    """A running process and its port. `ready_seconds` is the time from its start to the first ready answer."""

    pid: int
    port: int
    ready_seconds: float

    def cpu_seconds(self) -> float:
        """Return user and system time of all its threads so far, from the kernel's CPU clock of the process."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize()

    def reset_peak(self) -> None:
        """Let the kernel forget the peak of resident memory so far."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")

    def peak_bytes(self) -> int:
        """Return the peak of resident memory since the last reset."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        (line,) = (line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024


@asynccontextmanager
async def open_portico(
    cores: Cores, upstream_port: int, *, storage: str | None = None, configuration: str = ""
) -> AsyncIterator[MeasuredProcess]:
    """Start the service as a user does, with the upstream as its engine and its log in a file.

    Executions are stored in the database at the URL `storage`, by default in a new SQLite file. `configuration`
    is more TOML for its configuration file.
    """
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        port = free_port()
        environment = {
            "PORTICO_CONFIG": _write_configuration(Path(directory), upstream_port, configuration),
            "PORTICO__SERVER__PORT": str(port),
            "BENCH_KEY": "bench",
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PORTICO__STORAGE__URL": storage or f"sqlite:///{directory}/portico.db",
        }
        command = (str(Path(sys.executable).with_name("portico")), "serve")
        async with _open(command, port, cores=cores, environment=environment, directory=directory) as measured:
            yield measured


@asynccontextmanager
async def open_proxy(cores: Cores, upstream_port: int) -> AsyncIterator[MeasuredProcess]:
    """Start the bare proxy in front of the same upstream."""
    port = free_port()
    command = (sys.executable, "-m", "bench.proxy", f"http://127.0.0.1:{upstream_port}/v1", str(port))
    root = str(Path(__file__).parents[1])
    async with _open(command, port, cores=cores, environment={}, directory=root) as measured:
        yield measured


async def run_measured_module(module: str, cores: Cores) -> Mapping[str, float]:
    """Run a module that prints numbers, and return them. Raises: RuntimeError if it fails or takes too long."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=str(Path(__file__).parents[1]),
    )
    if cores.measured:
        os.sched_setaffinity(child.pid, cores.measured)
    try:
        async with asyncio.timeout(MODULE_SECONDS):
            output, _ = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        raise RuntimeError(f"{module} was not measured within {MODULE_SECONDS} seconds") from None
    if child.returncode:
        raise RuntimeError(f"{module} ended with {child.returncode}")
    numbers: dict[str, float] = orjson.loads(output)
    return numbers


def _write_configuration(directory: Path, upstream_port: int, more: str) -> str:
    path = directory / "portico.toml"
    path.write_text(_CONFIGURATION.format(upstream=upstream_port) + more, encoding="utf-8")
    return str(path)


def free_port() -> int:
    """Return a loopback port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def _open(
    command: tuple[str, ...], port: int, *, cores: Cores, environment: Mapping[str, str], directory: str
) -> AsyncIterator[MeasuredProcess]:
    with tempfile.TemporaryFile() as log:
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=log, cwd=directory, env={**clean_environment(), **environment}
        )
        if cores.measured:
            os.sched_setaffinity(process.pid, cores.measured)
        try:
            ready = await _ready(process, port)
            if ready is None:
                log.seek(0)
                output = log.read().decode(errors="replace")[-2000:]
                status = "is still running" if process.returncode is None else f"exited with {process.returncode}"
                raise RuntimeError(f"{' '.join(command)} did not become ready and {status}. Its output: {output}")
            yield MeasuredProcess(process.pid, port, ready - started)
        finally:
            await _end(process)


def clean_environment() -> dict[str, str]:
    """Return the environment without variables that configure the service or disable Python's bytecode cache."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PORTICO", "PYTHON"))}


async def _ready(process: asyncio.subprocess.Process, port: int) -> float | None:
    """Return the time of the first ready answer; None if the process exited before or took too long."""
    latest = time.monotonic() + READY_SECONDS
    while process.returncode is None and time.monotonic() < latest:
        if await _answers(port):
            return time.monotonic()
        await asyncio.sleep(POLL_SECONDS)
    return None


async def _answers(port: int) -> bool:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            status = await reader.readline()
            writer.close()
    except OSError:
        return False
    return b" 200 " in status


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
