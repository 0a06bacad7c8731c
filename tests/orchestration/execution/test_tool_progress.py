"""Progress of tool calls: live frames for readers, at most five a second, the last one always."""

from math import nan

import anyio
import pytest

from portico.capabilities.tools.definition import tool
from portico.domain.journal.events import ToolContent, ToolProgress
from portico.domain.tools import SideEffects
from portico.ports.tool import ToolContext
from tests.support.harness import Harness, chat_request, make_harness, response_of, scripted_engine
from tests.support.virtual_time import VirtualClock


def harness(clock: VirtualClock) -> Harness:
    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def read(context: ToolContext) -> str:
        """Read ten pages."""
        for page in range(1, 11):
            context.progress(page / 10, f"page {page} of 10")
            await clock.sleep(0.0625)
        context.progress(7, "x" * 600)
        with pytest.raises(ValueError, match="progress must be a number"):
            context.progress(nan)
        return "read"

    script = ({"tool_calls": [{"name": "read"}]}, {"text": "Done."})
    return make_harness(clock, scripted_engine(clock, "a", *script), tools=[read])


async def test_readers_see_the_progress_of_a_call_at_most_five_times_a_second_and_the_last(clock: VirtualClock) -> None:
    here = harness(clock)
    execution = here.execution(chat_request())
    here.bus.subscribe(execution.header.execution_id)
    await here.drive(execution)
    frames = [item.event for item in here.log.items if isinstance(item.event, ToolProgress | ToolContent)]
    reports = [each for each in frames if isinstance(each, ToolProgress)]
    assert [(each.progress, each.message) for each in reports] == [
        (0.1, "page 1 of 10"), (0.5, "page 5 of 10"), (0.9, "page 9 of 10"), (1.0, "x" * 500),
    ]  # fmt: skip
    assert {(each.tool_name, each.tool_call_id) for each in reports} == {("read", frames[0].tool_call_id)}
    assert isinstance(frames[0], ToolContent)
    assert isinstance(frames[-1], ToolContent)
    assert not any(isinstance(item.event, ToolProgress) for item in here.record(execution).events)


async def test_without_readers_nothing_is_published_and_the_view_has_the_progress_while_the_call_runs(
    clock: VirtualClock,
) -> None:
    here = harness(clock)
    execution = here.execution(chat_request())
    seen: list[tuple[str, float] | None] = []

    async def watch() -> None:
        for _ in range(3):
            await clock.sleep(0.3)
            progress = execution.branches.progress
            seen.append(None if progress is None else (progress.tool_name, progress.progress))

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await here.drive(execution)
    assert seen == [("read", 0.5), ("read", 0.9), None]
    assert response_of(execution).content == "Done."
    assert not any(isinstance(item.event, ToolProgress) for item in here.log.items)
