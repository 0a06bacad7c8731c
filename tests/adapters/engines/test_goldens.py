"""Golden files: the path and body that every dialect sends for every case, read once by a person.

`UPDATE_GOLDENS=1 pytest tests/adapters/engines/test_goldens.py -k name` writes the goldens of that dialect or case;
read them against the provider's reference before they are kept. Cases that an engine's capabilities rule out have no
golden.
"""

import json
import os
from pathlib import Path

import orjson
import pytest

from tests.adapters.engines.cases import CASES
from tests.adapters.engines.dialects import DIALECTS

GOLDENS = Path(__file__).parent / "goldens"
WRITE = bool(os.environ.get("UPDATE_GOLDENS"))
COMING = [
    (name, title)
    for name, row in DIALECTS.items()
    for title, case in CASES.items()
    if case.applies_to(row.capabilities)
]


@pytest.mark.parametrize(("name", "title"), COMING)
def test_what_is_sent_is_what_the_golden_says(name: str, title: str):
    row, case, golden = DIALECTS[name], CASES[title], GOLDENS / name / f"{title}.json"
    sent = row.dialect.encode(case.call(row.kept), row.profile(case.options), stream=case.stream)
    sent_json = {"path": sent.path, "body": json.loads(orjson.dumps(sent.body))}
    if WRITE:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(json.dumps(sent_json, indent=2, ensure_ascii=False) + "\n")
    assert golden.exists(), f"{golden.relative_to(GOLDENS)} is missing; see how to write it in this module's docstring"
    assert sent_json == json.loads(golden.read_text())


@pytest.mark.parametrize("name", DIALECTS)
def test_encoding_twice_sends_the_same_and_leaves_the_call_as_it_was(name: str):
    row = DIALECTS[name]
    for case in (case for case in CASES.values() if case.applies_to(row.capabilities)):
        call = case.call(row.kept)
        first, second = (row.dialect.encode(call, row.profile(case.options), stream=case.stream) for _ in range(2))
        assert first == second
        assert call == case.call(row.kept)


def test_every_golden_belongs_to_a_case_that_comes():
    written = {(golden.parent.name, golden.stem) for golden in GOLDENS.glob("*/*.json")}
    assert written <= set(COMING)
