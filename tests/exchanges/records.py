"""The files of the records, a JSON value a line."""

from collections.abc import Sequence
from pathlib import Path

import orjson

from tests.exchanges.recorder import Line

RECORDS = Path(__file__).parent / "records"


def write_record(name: str, lines: Sequence[Line]) -> None:
    """Write the lines of a scene."""
    RECORDS.mkdir(exist_ok=True)
    _path(name).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def read_record(name: str) -> list[str]:
    """Return the lines of a scene."""
    return _path(name).read_text(encoding="utf-8").splitlines()


def _path(name: str) -> Path:
    return RECORDS / f"{name}.jsonl"
