"""Random agents that call each other: they end, replay identically, stop when cancelled, and never act twice."""

import pytest

from portico.domain.lifecycle import TERMINAL, State
from portico.ports.journal import ExecutionHistory
from tests.support.chaos import CHAOS_TOOLS, ToolActions, agents_harness
from tests.support.harness import chat_request, replay_offline
from tests.support.recovery import TERMINAL_TYPES, committing_harness, is_complete_log, open_starts, run_and_cancel
from tests.support.seeds import seeds
from tests.support.virtual_time import VirtualClock

REQUEST = chat_request("go", tools=CHAOS_TOOLS)


def depth(record: ExecutionHistory) -> int:
    """Return the length of the longest key: each agent that another one calls adds two numbers to it."""
    return max(key.count("/") + 1 for key in record.steps)


@pytest.mark.parametrize("block", seeds(4))
async def test_random_agents_end_and_replay_offline_identically(clock: VirtualClock, block: int) -> None:
    deepest, states = 0, set()
    for seed in range(20 * block, 20 * block + 20):
        acts = ToolActions()
        response, record = await agents_harness(clock, seed, acts, tool_rounds=3).run(REQUEST)
        states.add(response.state)
        assert acts.repeated_writes == []
        assert replay_offline(record) == len(record.steps)
        deepest = max(deepest, depth(record))
        if response.state in TERMINAL:
            assert is_complete_log(record)
            assert open_starts(record.events) == []
        assert len(response.tool_calls_made) >= sum(call.attempts > 0 for call in response.tool_calls_made)
        assert sum(call.attempts > 0 for call in response.tool_calls_made) <= 40
    assert deepest > 6
    assert State.COMPLETE in states


@pytest.mark.parametrize("block", seeds(4))
async def test_random_agents_that_are_cancelled_stop_and_replay(clock: VirtualClock, block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        acts = ToolActions()
        here = agents_harness(clock, seed, acts, tool_rounds=3)
        _, record = await run_and_cancel(clock, here, REQUEST, 0.1 + seed % 10 / 3)
        assert acts.repeated_writes == []
        assert is_complete_log(record)
        assert open_starts(record.events) == []
        assert replay_offline(record) == len(record.steps)


@pytest.mark.parametrize("block", seeds(3))
async def test_random_agents_recover_after_every_commit_and_act_once(clock: VirtualClock, block: int) -> None:
    for seed in range(2 * block, 2 * block + 2):
        acts = ToolActions()
        here = committing_harness(clock, seed, acts, agents_harness)
        await here.run(REQUEST)
        commits = here.journal.commits
        for number, (record, _) in enumerate(commits):
            if record.events and record.events[-1].event.type in TERMINAL_TYPES | {"execution.suspended"}:
                continue
            await _recover(clock, seed, record, acts.performed[: commits[number + 1][1]])


async def _recover(clock: VirtualClock, seed: int, record: ExecutionHistory, done: list[tuple[str, str]]) -> None:
    acts = ToolActions()
    acts.performed += done
    response, after = await agents_harness(clock, seed + 1_000, acts, tool_rounds=3).recover(record)
    assert acts.repeated_writes == []
    assert tuple(after.events[: len(record.events)]) == tuple(record.events)
    if response.state is State.SUSPENDED:
        assert {each.kind for each in response.suspensions} == {"unknown_outcome"}
    else:
        assert is_complete_log(after)
        assert open_starts(after.events) == []
    replay_offline(after)
