"""Processes of the test: replicas of the service, and gateways with their files."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

ROOT = Path(__file__).parents[2]
FILES = ROOT / "deploy/gateway"
LAME_DUCK_S, DRAIN_S = 5, 10
START_S = 60.0
COMMANDS: Mapping[str, tuple[str, Sequence[str]]] = {
    "nginx": ("nginx.conf", ("nginx", "-e", "stderr", "-g", "daemon off; pid {folder}/nginx.pid;", "-c", "{file}")),
    "haproxy": ("haproxy.cfg", ("haproxy", "-q", "-db", "-f", "{file}")),
    "caddy": ("Caddyfile", ("caddy", "run", "--config", "{file}", "--adapter", "caddyfile")),
    "envoy": (
        "envoy.yaml",
        ("envoy", "-c", "{file}", "--log-level", "error", "--concurrency", "1", "--use-dynamic-base-id"),
    ),
}
"""File and command of each gateway."""
_PORTS = ("8080", "8082", "8083")
_GATEWAY_PORT = "8081"


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Replica:
    """One replica, on the same port after each restart."""

    folder: Path
    environment: Mapping[str, str]
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        command = [sys.executable, "-m", "portico", "serve", "--port", str(self.port)]
        self.process = _spawn(command, self.folder, self.environment)
        await wait_for(f"http://127.0.0.1:{self.port}/readyz")

    async def stop(self, number: int = signal.SIGTERM) -> None:
        """Send the signal and wait for the end."""
        assert self.process is not None
        self.process.send_signal(number)
        await asyncio.to_thread(self.process.wait)


@dataclass
class Gateway:
    """A gateway with its file, in which only the ports are others. `edit` replaces a text of the file."""

    name: str
    folder: Path
    ports: Sequence[int]
    edit: tuple[str, str] | None = None
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it and wait until requests reach a replica."""
        name, command = COMMANDS[self.name]
        file = self.folder / name
        file.write_text(self._configuration(name), encoding="utf-8")
        words = [word.format(file=file, folder=self.folder) for word in command]
        home = os.environ | {"HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)}
        self.process = _spawn(words, self.folder, home)
        await wait_for(f"{self.url}/readyz")

    async def stop(self, number: int = signal.SIGTERM) -> None:
        """Send the signal and wait for the end."""
        assert self.process is not None
        self.process.send_signal(number)
        await asyncio.to_thread(self.process.wait)

    def _configuration(self, name: str) -> str:
        text = (FILES / name).read_text(encoding="utf-8")
        if self.edit is not None:
            assert self.edit[0] in text
            text = text.replace(*self.edit)
        ports = dict(zip((_GATEWAY_PORT, *_PORTS), (self.port, *self.ports), strict=True))
        return re.sub("|".join(ports), lambda found: str(ports[found[0]]), text)


def _spawn(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a process whose output is kept in the folder."""
    with (folder / "output.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=dict(environment), stdout=log, stderr=log)


def missing_program(name: str) -> str | None:
    """Return the program of a gateway that is not here; None if it is."""
    program = COMMANDS[name][1][0]
    return None if shutil.which(program) else program


async def wait_for(url: str) -> None:
    """Return when this URL is answered with 200. Raises: TimeoutError."""
    async with asyncio.timeout(START_S), aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError, OSError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)
