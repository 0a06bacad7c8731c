"""Scenario of schedules: what 10,000 of them cost a service on PostgreSQL while none is due."""

import asyncio

import asyncpg

from bench.postgres import open_server
from bench.processes import open_portico
from bench.scenarios import BenchEnvironment, Numbers, Scenario

SCHEDULES = 10_000
START_SECONDS = 12.0
"""Longer than the jobs of a start, and than a replica takes to learn of the first row by its heartbeat."""
SECONDS = 20.0
_COUNT = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
_INSERT = """
INSERT INTO schedules (timer_id, tenant, due_at, name, user_id, planned_at, created_at, updated_at, content)
SELECT 's' || n, 'local', extract(epoch FROM now()) + 1e6 + n, 's' || n, 'local', 0, 0, 0, '{}'
FROM generate_series(1, $1::int) AS n
"""


async def schedules(bench: BenchEnvironment) -> Numbers:
    """Measure an idle service with 10,000 schedules and without any: its transactions a second, and its memory."""
    transactions, memory = [], []
    async with open_server() as url:
        async with open_portico(bench.cores, bench.upstream.port, storage=url):
            pass  # makes the tables
        await _without_autovacuum(url)
        for count in (0, SCHEDULES):
            database = await asyncpg.connect(url)
            await database.execute("DELETE FROM schedules")
            await database.execute(_INSERT, count)
            async with open_portico(bench.cores, bench.upstream.port, storage=url) as measured:
                transactions.append(await _transactions(database))
                memory.append(measured.resident_bytes() / 1e6)
            await database.close()
    return {
        "schedules_statements": transactions[1] - transactions[0],
        "schedules_memory_mb": memory[1] - memory[0],
    }


async def _without_autovacuum(url: str) -> None:
    """Let no transaction of the server itself be counted."""
    database = await asyncpg.connect(url)
    await database.execute("ALTER SYSTEM SET autovacuum = off")
    await database.execute("SELECT pg_reload_conf()")
    await database.close()


async def _transactions(database: asyncpg.Connection) -> float:
    """Return the transactions a second of the service, of which each look for timers is one with one statement."""
    await asyncio.sleep(START_SECONDS)
    before = await database.fetchval(_COUNT)
    await asyncio.sleep(SECONDS)
    return float(await database.fetchval(_COUNT) - before) / SECONDS


SCHEDULE_SCENARIOS: tuple[Scenario, ...] = (schedules,)
