"""The journey that every client plays: `journey.json`, its provider, and what a client has to show of it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.clients.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.scripted_provider import Script, ScriptedService, answered, scripted_service, streamed
from tests.support.upstream import UpstreamAction

FILE: Final = Path(__file__).with_name("journey.json")
STEPS: Final[Sequence[dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))
Shown: TypeAlias = Sequence[tuple[str, Sequence[int]]]
"""The last text of each step, and the numbers of its events."""


@asynccontextmanager
async def journey_service() -> AsyncIterator[tuple[ScriptedService, FaultyProxy]]:
    """Run the service of the journey, and a proxy that cuts its streams after every frame."""
    scripts = [script for step in STEPS for script in _scripts(step)]
    async with (
        scripted_service(*scripts, failover={"max_retries": 1}) as scripted,
        faulty_proxy(scripted.served) as proxy,
    ):
        yield scripted, proxy


def check_journey(shown: Shown, scripted: ScriptedService, proxy: FaultyProxy) -> None:
    """Assert that the texts are whole, every event came once, and nothing ran twice although each stream was cut."""
    assert [text for text, _ in shown] == [step["shows"] for step in STEPS]
    for _, numbers in shown:
        assert [*numbers] == [*range(1, len(numbers) + 1)]
    assert len(scripted.provider.requests) == sum(len(_scripts(step)) for step in STEPS)
    assert proxy.connections > sum(
        len(numbers) for step, (_, numbers) in zip(STEPS, shown, strict=True) if step["do"] == "stream"
    )


def _scripts(step: dict[str, Any]) -> list[Script]:
    reply = streamed if step["do"] == "stream" else answered
    broken = [streamed(step["breaks"], broken=UpstreamAction.CLOSE)] if "breaks" in step else []
    calls = [("c1", name, arguments) for name, arguments in step.get("calls", {}).items()]
    return [*broken, *([reply("", *calls)] if calls else []), *(reply(text) for text in step["says"])]
