"""Scenarios of operation: plain chat with an audit log, and its latency beside a backup of 1 GB."""

import asyncio
import sqlite3
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from bench.load import Connections, open_connections
from bench.processes import clean_environment, open_portico
from bench.scenarios import (
    CHAT_REQUEST,
    CONNECTIONS,
    WARM_UP,
    BenchEnvironment,
    Numbers,
    Scenario,
    chat_request,
    costs_in_turn,
    quantile,
)
from bench.upstream import TEXT
from portico.adapters.stores.sqlite import open_sqlite

PAIRS, REQUESTS_PER_PAIR = 16, 300
BACKUP_MB = 1_000
JOURNALED_REQUEST = chat_request(keyed=True)
REQUESTS_PER_ROUND = 200
MIN_REQUESTS = 1_000
_AUDIT = '\n[audit]\nfile = "{file}"\nreads = "others"\n'


async def audit(bench: BenchEnvironment) -> Numbers:
    """Measure plain chat with an audit log, in turn with the same chat without; a median of pairs."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        configuration = _AUDIT.format(file=Path(directory) / "audit.log")
        async with (
            open_portico(bench.cores, bench.upstream.port) as plain,
            open_portico(bench.cores, bench.upstream.port, configuration=configuration) as audited,
            open_connections(plain.port, CONNECTIONS) as to_plain,
            open_connections(audited.port, CONNECTIONS) as to_audited,
        ):
            for connections in (to_plain, to_audited):
                await connections.run(CHAT_REQUEST, WARM_UP, expected=TEXT.encode())
            ratios = []
            for pair in range(PAIRS):
                runs = [(plain, to_plain, CHAT_REQUEST), (audited, to_audited, CHAT_REQUEST)]
                without, with_audit = await costs_in_turn(runs, REQUESTS_PER_PAIR, reverse=pair % 2 == 0)
                ratios.append(with_audit / without)
    return {"audit_ratio": statistics.median(ratios)}


async def backup(bench: BenchEnvironment) -> Numbers:
    """Measure the latency of chats that are journaled on a file of 1 GB, before and while it is backed up."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-", dir="/var/tmp") as directory:
        database = Path(directory) / "portico.db"
        async with open_sqlite(database):
            pass
        await asyncio.to_thread(_fill, database)
        storage = f"sqlite:///{database}"
        async with (
            open_portico(bench.cores, bench.upstream.port, storage=storage) as measured,
            open_connections(measured.port, CONNECTIONS) as connections,
        ):
            await _chats(connections, WARM_UP)
            alone = await _chats(connections, MIN_REQUESTS)
            beside = await _beside_backup(connections, storage, f"{directory}/copy.db")
    return {"backup_p99_ratio": quantile(beside, 0.99) / quantile(alone, 0.99)}


def _fill(path: Path) -> None:
    """Let the file have 1 GB that no table of the service uses."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE ballast (data BLOB)")
        for _ in range(BACKUP_MB):
            connection.execute("INSERT INTO ballast VALUES (randomblob(1000000))")


async def _chats(connections: Connections, count: int) -> list[float]:
    return await connections.run(JOURNALED_REQUEST, count, expected=TEXT.encode())


async def _beside_backup(connections: Connections, storage: str, target: str) -> list[float]:
    """Return the latencies of chats while backups are made, at least `MIN_REQUESTS`. Raises: RuntimeError."""
    latencies: list[float] = []
    while len(latencies) < MIN_REQUESTS:
        command = (str(Path(sys.executable).with_name("portico")), "backup", f"{target}-{len(latencies)}")
        environment = {**clean_environment(), "PORTICO__STORAGE__URL": storage}
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, env=environment)
        while process.returncode is None:
            latencies += await _chats(connections, REQUESTS_PER_ROUND)
        if process.returncode:
            raise RuntimeError(f"the backup ended with {process.returncode}")
    return latencies


OPERATION_SCENARIOS: tuple[Scenario, ...] = (audit, backup)
