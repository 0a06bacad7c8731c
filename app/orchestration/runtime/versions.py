"""Versions of patterns: which of today's patterns may continue or replay a recorded execution."""

from collections.abc import Mapping
from dataclasses import replace

from app.domain.failures import Code, StorageFailure
from app.domain.journal.header import ExecutionHeader
from app.domain.lifecycle import Mode
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.pattern import BoundInputs, Pattern, UpperBound


def pattern_for(header: ExecutionHeader, patterns: Mapping[Mode, Pattern]) -> Pattern:
    """Return the pattern that runs the execution; if its version differs from the header's, it fails when it runs."""
    pattern = patterns.get(header.mode, _UNKNOWN)
    return pattern if pattern.version == header.pattern_version else replace(pattern, run=_refuse)


def is_newer_version(header: ExecutionHeader, patterns: Mapping[Mode, Pattern]) -> bool:
    """Return whether only a replica with a newer version of the pattern can continue the execution."""
    pattern = patterns.get(header.mode)
    return pattern is None or header.pattern_version > pattern.version


def require_current_version(header: ExecutionHeader, patterns: Mapping[Mode, Pattern]) -> None:
    """Raise StorageFailure (STORAGE_SNAPSHOT_INVALID) if today's pattern cannot continue the execution."""
    pattern = patterns.get(header.mode)
    if pattern is None or header.pattern_version != pattern.version:
        raise version_mismatch()


def version_mismatch() -> StorageFailure:
    """Return the failure of a journal that today's pattern cannot continue."""
    return StorageFailure(
        Code.STORAGE_SNAPSHOT_INVALID, "the journal was written by another version of its mode's pattern"
    )


async def _refuse(_: RunContext) -> str:
    raise version_mismatch()


def _no_bound(_inputs: BoundInputs) -> UpperBound:
    return UpperBound()


_UNKNOWN = Pattern(run=_refuse, version=0, upper_bound=_no_bound)
