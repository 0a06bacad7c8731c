"""Verification of an audit log: every line is there, unchanged and in its place."""

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from portico.adapters.audit.file import CHAIN_START
from portico.domain.failures import Code, OrchestrationFailure, StorageFailure

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def verify(paths: Sequence[Path]) -> int:
    """Return the number of lines of these files, oldest first, which follow each other.

    Raises: OrchestrationFailure (ORCHESTRATION_INVALID_TRANSITION) naming the first line that does not fit;
    StorageFailure for a file that cannot be read.
    """
    count, previous = 0, CHAIN_START
    for path in paths:
        for number, line in enumerate(_lines(path), 1):
            problem = _problem(line, previous, starts=number == 1)
            if problem is not None:
                raise OrchestrationFailure(Code.ORCHESTRATION_INVALID_TRANSITION, f"{path} line {number}: {problem}")
            previous = sha256(line).hexdigest()
            count += 1
    return count


def _lines(path: Path) -> list[bytes]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageFailure(Code.STORAGE_UNAVAILABLE, f"cannot read {path}: {error.strerror}") from error
    return content.removesuffix(b"\n").split(b"\n") if content else []


def _problem(line: bytes, previous: str, *, starts: bool) -> str | None:
    """Return what is wrong with a line after one of that digest; the first one of a file may begin a log."""
    try:
        fields = json.loads(line)
    except ValueError:
        return "it is no JSON"
    found = fields.get("prev") if isinstance(fields, dict) else None
    if not isinstance(found, str) or not _DIGEST.fullmatch(found):
        return "it is no line of an audit log"
    if found == previous or (starts and found == CHAIN_START):
        return None
    if starts and previous == CHAIN_START:
        return "it continues another file, which has to be named before"
    return "the line before it was changed, removed or moved"
