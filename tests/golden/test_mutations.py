"""Foreign bytes, and golden records with one field changed, are refused or read, and never fail otherwise."""

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.failures import Code, StorageFailure
from tests.support.golden_journals import JOURNALS, read_rows, records
from tests.support.stored_format import CODECS, GOLDEN

OTHERS = (None, True, 0, -1, 2, 1.5, 2**63, 1e300, "", "x", "\u0000", [], [0], {}, {"x": 0}, [[]])
"""Values that take the place of another one."""
MOST = 2_000
"""Mutations of one record that are tried; of a record that has more, a sample."""
OF_JOURNALS = 4_000
"""Mutations of all journals together that are tried."""

STORED: dict[str, list[str]] = orjson.loads((GOLDEN / "stored_bytes.json").read_bytes())

Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value within the value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield (*path, key)
        yield from paths(each, (*path, key))


def mutations(record: bytes) -> list[tuple[Path, Any]]:
    """Return the mutations of one field: a path with another value, or with `...`, which stands for its removal."""
    found = [(path, other) for path in paths(orjson.loads(record)) for other in (*OTHERS, ...)]
    return found if len(found) <= MOST else Random(MOST).sample(found, MOST)


def mutated(record: bytes, path: Path, other: Any) -> bytes:
    whole = orjson.loads(record)
    within = whole
    for key in path[:-1]:
        within = within[key]
    if other is ...:
        del within[path[-1]]
    else:
        within[path[-1]] = deepcopy(other)
    return orjson.dumps(whole)


def assert_refused_or_read(kind: str, data: bytes) -> bool:
    """Return whether the data is refused; else what is read is read back equal from what is written of it."""
    encode, decode = CODECS[kind]
    try:
        value = decode(data)
    except StorageFailure as refused:
        code = refused.code
    else:
        assert decode(encode(value)) == value, data
        return False
    assert code is Code.STORAGE_SNAPSHOT_INVALID
    return True


@pytest.mark.parametrize("kind", CODECS)
def test_every_mutation_of_one_field_of_a_golden_record_is_refused_or_read(kind: str) -> None:
    found = {
        assert_refused_or_read(kind, mutated(record, *mutation))
        for record in map(str.encode, STORED[kind])
        for mutation in mutations(record)
    }
    assert found == {True, False}


def test_mutations_of_golden_journals_are_refused_or_read() -> None:
    every = [each for path in sorted(JOURNALS.iterdir()) for each in records(read_rows(path))]
    dice = Random(1)
    for _ in range(OF_JOURNALS):
        kind, record = dice.choice(every)
        path = dice.choice(list(paths(orjson.loads(record))))
        assert_refused_or_read(kind, mutated(record, path, dice.choice((*OTHERS, ...))))


@pytest.mark.parametrize("kind", CODECS)
@given(foreign=st.binary(), start=st.integers(0, 2_000), length=st.integers(0, 20))
def test_foreign_bytes_alone_and_within_a_golden_record_are_refused_or_read(
    kind: str, foreign: bytes, start: int, length: int
) -> None:
    record = STORED[kind][-1].encode()
    for data in (foreign, b"[1," + foreign, record[:start] + foreign + record[start + length :]):
        assert_refused_or_read(kind, data)
