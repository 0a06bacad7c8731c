"""A real Prometheus that scrapes a service of the test with the rules of the repository."""

import shutil
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import yaml

from portico.adapters.system import SystemClock
from tests.support.prometheus import ROOT, prometheus_program

CONFIGURATION = ROOT / "deploy" / "observability"
START_SECONDS = 30.0


@dataclass(frozen=True)
class PrometheusServer:
    """A running Prometheus."""

    client: httpx2.AsyncClient
    clock: SystemClock = field(default_factory=SystemClock)

    async def query(self, expression: str) -> list[Mapping[str, Any]]:
        """Return the samples of an instant query."""
        answer = await self.client.get("/api/v1/query", params={"query": expression})
        assert answer.status_code == 200, answer.text
        result: list[Mapping[str, Any]] = answer.json()["data"]["result"]
        return result

    async def rules(self) -> list[Mapping[str, Any]]:
        """Return the rules with their state."""
        groups = (await self.client.get("/api/v1/rules")).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    async def wait_for_scrapes(self, number: int = 2) -> None:
        """Wait until the service was scraped so many times more."""
        before = await self._scrapes()
        while await self._scrapes() < before + number:
            await self.clock.sleep(0.1)

    async def wait_until_ready(self) -> None:
        """Wait until it answers queries."""
        deadline = self.clock.monotonic() + START_SECONDS
        while True:
            try:
                if (await self.client.get("/-/ready")).status_code == 200:
                    return
            except httpx2.TransportError:
                assert self.clock.monotonic() < deadline, "Prometheus does not start"
            await self.clock.sleep(0.1)

    async def _scrapes(self) -> float:
        found = await self.query('count_over_time(up{job="portico"}[10m])')
        return float(found[0]["value"][1]) if found else 0.0


@asynccontextmanager
async def prometheus_server(directory: Path, port: int) -> AsyncIterator[PrometheusServer]:
    """Scrape the service at that port of loopback, five times a second, until the context ends."""
    program = str(prometheus_program("prometheus"))
    configuration = yaml.safe_load((CONFIGURATION / "prometheus.yaml").read_text())
    configuration["global"] = {"scrape_interval": "200ms", "evaluation_interval": "500ms"}
    configuration["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    shutil.copy(CONFIGURATION / "alerts.yaml", directory)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, f"--config.file={directory}/prometheus.yaml", f"--storage.tsdb.path={directory}/data"]
    async with (
        await anyio.open_process([*command, f"--web.listen-address={address}", "--log.level=error"]) as process,
        httpx2.AsyncClient(base_url=f"http://{address}", trust_env=False) as client,
    ):
        server = PrometheusServer(client)
        try:
            await server.wait_until_ready()
            yield server
        finally:
            process.terminate()
            await process.wait()
