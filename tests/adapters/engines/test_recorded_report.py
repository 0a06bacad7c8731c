"""The summary of recorded traffic shows what the tests did, and no recording is left out."""

from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import pytest

from tests.adapters.engines import test_recorded_anthropic, test_recorded_gemini, test_recorded_openai
from tests.adapters.engines.recorded_report import CUTS, DECODED, NO_RECORDED_TRAFFIC, OPENED, Recording, lines
from tests.adapters.engines.recordings import DIRECTORY

Outcome: TypeAlias = Literal["passed", "failed", "skipped"]
OUTCOMES = get_args(Outcome)
Outcome: TypeAlias = Literal["passed", "failed", "skipped"]
OUTCOMES = get_args(Outcome)
REPLY = Recording("anthropic", "replies", "anthropic-json-1", 0)
STREAM = Recording("anthropic", "streams", "anthropic-stream-1", 1_500)
REFUSAL = Recording("openai", "refusals", "openai-json-400", 0)


def report(outcome: Outcome, *noted: tuple[str, Any], why: str = "") -> pytest.TestReport:
    longrepr = ("test.py", 1, f"Skipped: {why}") if outcome == "skipped" else None
    return pytest.TestReport("t", ("test.py", 1, "t"), {}, outcome, longrepr, "call", user_properties=noted)


def opened(recording: Recording, **done: Any) -> list[tuple[str, Any]]:
    keys = {"decoded": DECODED, "cuts": CUTS}
    return [(OPENED, recording), *((keys[what], value) for what, value in done.items())]


def summary_of(*reports: pytest.TestReport) -> list[str]:
    return list(lines({kind: [each for each in reports if each.outcome == kind] for kind in OUTCOMES}))


def test_what_was_decoded_is_counted_by_provider_and_kind() -> None:
    done = [
        report("passed", *opened(REPLY, decoded=True)),
        report("passed", *opened(STREAM, decoded=True)),
        report("passed", *opened(STREAM, cuts=1_500)),
        report("passed", *opened(REFUSAL, decoded=True)),
        report("passed", ("another property", 1)),
    ]
    assert summary_of(*done) == [
        "anthropic: decoded 1 of 1 replies, 1 of 1 streams, cut at 1,500 of 1,500 places",
        "openai: decoded 1 of 1 refusals",
    ]


def test_a_recording_that_was_only_opened_or_failed_any_test_does_not_count() -> None:
    failed = report("failed", *opened(STREAM, decoded=True, cuts=1_500))
    assert summary_of(report("passed", *opened(STREAM, decoded=True)), failed, report("passed", *opened(REPLY))) == [
        "anthropic: decoded 0 of 1 replies, 0 of 1 streams, cut at 0 of 1,500 places"
    ]


def test_without_recordings_the_reason_is_reported_and_without_their_tests_nothing() -> None:
    assert summary_of(report("skipped", why=NO_RECORDED_TRAFFIC), report("skipped", why="no Docker")) == [
        f"{NO_RECORDED_TRAFFIC}: 1 tests were skipped"
    ]
    assert summary_of(report("skipped", why="no Docker"), report("passed")) == []


@pytest.mark.skipif(not DIRECTORY, reason=NO_RECORDED_TRAFFIC)
def test_every_recording_is_read_by_the_tests_of_one_dialect() -> None:
    read = [*test_recorded_anthropic.FILES, *test_recorded_gemini.FILES, *test_recorded_openai.FILES]
    assert read
    assert sorted(read) == sorted(Path(DIRECTORY or "").glob("*.json"))
