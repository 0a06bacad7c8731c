"""Answers, headers, events and stored executions are those that are recorded.

`python -m tests.exchanges [SCENE ...]` records them anew. A difference in `records/` has to be what the commit is for.
"""

from difflib import unified_diff

import orjson
import pytest

from tests.exchanges.recorder import record
from tests.exchanges.records import read_record
from tests.exchanges.scene import Send
from tests.exchanges.scenes import SCENES


@pytest.mark.parametrize("name", SCENES)
def test_a_service_behaves_as_recorded(name: str) -> None:
    lines = [orjson.dumps(line).decode() for line in record(SCENES[name])]
    difference = [*unified_diff(read_record(name), lines, "recorded", "now", n=0, lineterm="")]
    assert not difference, "\n".join(difference[:40])


def test_at_least_240_requests_are_recorded() -> None:
    sent = [act for scene in SCENES.values() for act in scene.acts if isinstance(act, Send)]
    assert len(sent) >= 240
