"""An erased text is in no byte of the SQLite file and its write-ahead log, however the pages were used before."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from portico.adapters.stores.executions import retention
from portico.adapters.stores.executions.retention import RetentionLimits
from portico.adapters.stores.sqlite import open_sqlite
from portico.domain.access.principal import LOCAL
from portico.domain.contract.messages import Message
from portico.domain.journal.fork import Fork
from portico.domain.journal.outcomes import RecordedStep, SuspensionAnswer
from portico.domain.lifecycle import State
from portico.ports.journal import IdempotencyClaim
from tests.support.examples import COMPLETED, unnumbered
from tests.support.stored_executions import journaled, moved
from tests.support.stores import StoreReplica, open_replica
from tests.support.virtual_time import VirtualClock

CANARY = "canary-77aa"


async def run(here: StoreReplica, number: int, length: int, fork_of: str = "") -> None:
    """Run an execution whose texts are as long as that and full of its own canary."""
    name, said = f"e-{number}", f"{CANARY}-{number}." * length
    plain = journaled(name, f"{CANARY}-{number}.", session_id=f"{CANARY}-session-{number % 3}")
    request = plain.request.model_copy(
        update={"messages": [Message(role="user", content=said)], "metadata": {"a": said}}
    )
    fork = Fork(fork_of, 0) if fork_of else None
    claim = IdempotencyClaim(f"{CANARY}-{number}.", "digest")
    await here.journal.open(replace(plain, request=request, fork=fork, ancestors=(fork_of,) if fork_of else ()), claim)
    for key in range(3):
        here.journal.put(name, [RecordedStep(f"{key}", "f" * 32, SuspensionAnswer(said), 1.0)], ())
    last = replace(COMPLETED, response=COMPLETED.response.model_copy(update={"content": said}))
    here.journal.put(name, (), unnumbered(moved(State.COMPLETE), last), [Message(role="user", content=said)])
    await here.journal.durable(name)
    here.journal.close(name)


def bytes_of(folder: Path) -> bytes:
    """Return everything that is in the files of the database, its shared memory left out."""
    return b"".join(each.read_bytes() for each in sorted(folder.iterdir()) if each.suffix != ".db-shm")


@pytest.mark.parametrize("seed", range(4))
async def test_no_byte_of_an_erased_execution_stays_in_the_file(tmp_path: Path, clock: VirtualClock, seed: int) -> None:
    chance = random.Random(seed)
    async with open_sqlite(tmp_path / "portico.db") as database, open_replica(database, clock) as here:
        left = set()
        for number in range(24):
            await run(here, number, chance.choice((1, 9, 90, 900, 9_000)))
            left.add(number)
            if chance.random() < 0.3:
                gone = chance.choice(sorted(left))
                await here.records.erase_execution("local", f"e-{gone}", with_forks=True)
                left.discard(gone)
        for number in sorted(left)[::2]:
            await here.records.erase_execution("local", f"e-{number}", with_forks=True)
            left.discard(number)
        stored = bytes_of(tmp_path)
        assert {number for number in range(24) if f"{CANARY}-{number}.".encode() in stored} == left
        await here.records.erase_session(LOCAL.own, f"{CANARY}-session-0", with_forks=True)
        await retention.purge(database, RetentionLimits(0.0, clock.now() + 1), limit=100, now=clock.now() + 1e6)
        assert CANARY.encode() not in bytes_of(tmp_path)


async def test_the_copies_in_forks_are_erased_from_the_file(tmp_path: Path, clock: VirtualClock) -> None:
    async with open_sqlite(tmp_path / "portico.db") as database, open_replica(database, clock) as here:
        await run(here, 1, 50)
        await run(here, 2, 50, fork_of="e-1")
        assert f"{CANARY}-2.".encode() in bytes_of(tmp_path)
        await here.records.erase_execution("local", "e-1", with_forks=True)
        for number in (1, 2):
            assert f"{CANARY}-{number}.".encode() not in bytes_of(tmp_path)
