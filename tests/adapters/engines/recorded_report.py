"""A summary of the tests on recorded traffic, from the properties that passed tests have recorded.

gemini: decoded 22 of 22 replies, 8 of 8 streams, 1 of 1 refusals, cut at 78,470 of 78,470 places
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

NO_RECORDED_TRAFFIC = "RECORDED_TRAFFIC names no directory of recordings"
OPENED, DECODED, CUTS = "recording", "recording decoded", "recording cut at"
"""The properties of a test that has opened a recording, decoded it without loss, and cut it at that many places."""
KINDS = ("replies", "streams", "refusals")


class Recording(NamedTuple):
    """Whose it is, of which of the `KINDS`, its name, and at how many places it can be cut."""

    provider: str
    kind: str
    name: str
    places: int


@dataclass
class _Done:
    """The results for one provider's recordings. `failed` are those with a failed test."""

    opened: set[Recording] = field(default_factory=set)
    decoded: set[Recording] = field(default_factory=set)
    failed: set[Recording] = field(default_factory=set)
    cuts: int = 0

    def summary(self) -> str:
        counts = [(_count(self.decoded - self.failed, kind), _count(self.opened, kind), kind) for kind in KINDS]
        parts = [f"{decoded} of {opened} {kind}" for decoded, opened, kind in counts if opened]
        places = sum(recording.places for recording in self.opened)
        return f"decoded {', '.join(parts)}" + (f", cut at {self.cuts:,} of {places:,} places" if places else "")


def lines(reports: Mapping[str, Iterable[pytest.TestReport]]) -> Iterator[str]:
    """One line a provider whose recordings were opened. `reports` are by outcome, as pytest keeps them."""
    providers: dict[str, _Done] = defaultdict(_Done)
    for report in (report for outcome in ("passed", "failed", "error") for report in reports.get(outcome, ())):
        noted = dict(getattr(report, "user_properties", ()))  # a collection that failed has none
        if OPENED in noted:
            recording = Recording(*noted[OPENED])
            _add(providers[recording.provider], recording, noted, passed=report.passed)
    for name, done in sorted(providers.items()):
        yield f"{name}: {done.summary()}"
    skipped = sum(NO_RECORDED_TRAFFIC in str(report.longrepr) for report in reports.get("skipped", ()))
    if skipped:
        yield f"{NO_RECORDED_TRAFFIC}: {skipped} tests were skipped"


def _add(done: _Done, recording: Recording, noted: Mapping[str, object], *, passed: bool) -> None:
    cuts = noted.get(CUTS, 0)
    assert isinstance(cuts, int)
    done.opened.add(recording)
    if not passed:
        done.failed.add(recording)
        return
    if DECODED in noted:
        done.decoded.add(recording)
    done.cuts += cuts


def _count(recordings: Collection[Recording], kind: str) -> int:
    return sum(recording.kind == kind for recording in recordings)
