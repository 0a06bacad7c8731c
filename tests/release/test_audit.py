"""The audit ends with 0 only if every package was looked up and none has a known vulnerability."""

from typing import Any

import pytest

from release.audit import verdict


def package(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": []} | fields


CLEAN = package("clean")
SKIPPED = {"name": "skipped", "skip_reason": "Dependency not found on PyPI and could not be audited: skipped (1.0)"}
VULNERABLE = package("old", vulns=[{"id": "PYSEC-2026-1", "fix_versions": ["1.1", "2.0"], "aliases": []}])


@pytest.mark.parametrize(
    ("packages", "lines", "code"),
    [
        ([CLEAN, CLEAN], ["audit: 2 packages have no known vulnerability"], 0),
        ([SKIPPED, SKIPPED], ["audit: 2 of 2 packages could not be checked"], 3),
        ([CLEAN, SKIPPED], ["audit: 1 of 2 packages could not be checked"], 3),
        ([], ["audit: 0 of 0 packages could not be checked"], 3),
        ([CLEAN, VULNERABLE], ["old 1.0: PYSEC-2026-1, repaired in 1.1, 2.0"], 1),
        (
            [SKIPPED, VULNERABLE],
            ["old 1.0: PYSEC-2026-1, repaired in 1.1, 2.0", "audit: 1 of 2 packages could not be checked"],
            1,
        ),
    ],
    ids=["clean", "nothing looked up", "one not looked up", "empty", "vulnerable", "vulnerable and not looked up"],
)
def test_the_verdict_counts_what_was_not_looked_up(packages: list[dict[str, Any]], lines: list[str], code: int) -> None:
    assert verdict({"dependencies": packages, "fixes": []}) == (lines, code)
