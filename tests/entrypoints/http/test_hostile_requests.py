"""Hostile requests are answered, and never with an internal error; the bench bounds their time and memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.hostile_input import GROUPS, Hostile
from tests.support.portico import EVENTS, portico

STATUSES = {200, 400, 413, 422, 502}
CODES = ("REQUEST_", "CONFIG_", "CONSTRAINT_", "VALIDATION_", "ORCHESTRATION_", "TOOL_EXECUTION_", "INFERENCE_CONTEXT_")


def scripted_engines(cases: Mapping[str, Hostile], directory: Path) -> dict[str, Any]:
    """Return one engine for each case with answers, which gives them in chunks of a stream."""
    engines: dict[str, Any] = {"rehearsal": {"model": "rehearsal://"}}
    for number, case in enumerate(cases.values()):
        if case.answers:
            script = directory / f"{number}.json"
            entries = [
                {"chunks": [text[at : at + 1_000] for at in range(0, len(text), 1_000)]} for text in case.answers
            ]
            script.write_bytes(orjson.dumps(entries))
            engines[f"e{number}"] = {"model": f"scripted://{script}"}
    return engines


def _diagonal(cases: Mapping[str, Hostile]) -> Mapping[str, Hostile]:
    """Return a third of the cases, with every answer and every kind of request; the bench has all of them."""
    return {name: case for number, (name, case) in enumerate(cases.items()) if number % 3 == number // 3 % 3}


@pytest.mark.parametrize("group", GROUPS)
async def test_hostile_requests_are_answered_without_internal_errors(group: str, tmp_path: Path) -> None:
    cases = _diagonal(GROUPS[group]) if group in {"answers", "bodies"} else GROUPS[group]
    async with portico(engines=scripted_engines(cases, tmp_path)) as (served, _):
        for number, (name, case) in enumerate(cases.items()):
            body = case.spelled(number, f"e{number}" if case.answers else "rehearsal")
            answer = await served.post(body, EVENTS if case.live else {}, case.path)
            assert answer.status in STATUSES, name
            if answer.headers["content-type"].startswith("text/event-stream"):
                assert b"SYSTEM_" not in answer.body, name
            elif answer.status != 200:
                code = answer.json.get("code") or answer.json["error"]["code"]
                assert code.startswith(CODES), name
