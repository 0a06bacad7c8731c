"""A deleted document is in no byte of the SQLite file, and neither are its words, its hashes and its vectors."""

import random
from pathlib import Path

from portico.adapters.stores.sqlite import open_sqlite
from portico.capabilities.memory.words import word_hash
from portico.domain.access.principal import LOCAL
from portico.domain.memory import private_scope
from tests.adapters.stores.test_erased_file import bytes_of
from tests.support.stored_memory import StoredMemory
from tests.support.virtual_time import VirtualClock

SCOPE = private_scope(LOCAL.tenant, LOCAL.user)


def traces(number: int) -> list[bytes]:
    """Return the texts and the hashes that only the document of that number has."""
    word = f"canary{number}x"
    hashed = word_hash(word, SCOPE)
    return [word.encode(), f"Secret {number}.".encode(), hashed, hashed.hex().encode()]


async def test_no_byte_of_a_deleted_document_stays_in_the_file(tmp_path: Path, clock: VirtualClock) -> None:
    chance = random.Random(1)
    async with open_sqlite(tmp_path / "portico.db") as database:
        memory = StoredMemory(database, clock)
        for number in range(30):
            filler = " ".join(f"w{chance.randrange(500)}" for _ in range(chance.choice((5, 300, 3_000))))
            await memory.put(LOCAL, f"d{number % 20}", f"canary{number}x Secret {number}. {filler}")
            await memory.found(LOCAL, f"canary{number}x")
        gone = [*range(10), *range(10, 30, 3)]
        for number in gone[10:]:
            await memory.documents.delete(LOCAL.own, f"d{number % 20}", f"v{number}")
        await memory.documents.merge()
        stored = bytes_of(tmp_path)
        left = [number for number in range(30) if any(trace in stored for trace in traces(number))]
        assert left == sorted(set(range(30)) - set(gone))
        for number in left:
            assert await memory.found(LOCAL, f"canary{number}x", 1) == [f"d{number % 20}#1"]
            await memory.documents.delete(LOCAL.own, f"d{number % 20}", f"v{number}")
        await memory.documents.merge()
        stored = bytes_of(tmp_path)
        assert not [number for number in range(30) if any(trace in stored for trace in traces(number))]
