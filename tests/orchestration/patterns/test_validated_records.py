"""Validated executions: crashed after every commit, cancelled at any time, and replayed."""

from typing import Any

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.contract.request import SystemRequest
from portico.domain.lifecycle import Mode, State
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, watch_commits
from tests.support.judges import SteadyEngine
from tests.support.recovery import TERMINAL_TYPES, is_complete_log, open_starts, run_and_cancel
from tests.support.validated_modes import CITY, NATIVE, NO, PATTERNS, ROLL, SHORT, YES, chat, city, run, structured
from tests.support.virtual_time import VirtualClock


def texts(number: int) -> dict[str, Any]:
    """Reply i: roll, answer too long, roll again, be rejected by the judge, then be accepted."""
    return [ROLL, {"text": "far too long #1"}, ROLL, {"text": "bad #3"}, {"text": "good #4"}][number]


def values(number: int) -> dict[str, Any]:
    return [{"text": "prose"}, city("bad #1"), city("good #2")][number]


def verdicts(number: int) -> dict[str, Any]:
    return YES if number in {2, 4} else NO


def steady(clock: VirtualClock, mode: Mode) -> Harness:
    """Return a harness with two engines that answer alike, on a rerouting route; in a vote the second is rejected."""
    said = {"a": texts, "b": texts} if mode is Mode.CHAT else {"a": values, "b": values}
    if mode is Mode.REDUNDANT:
        said = {"a": lambda _: city("good #2"), "b": lambda _: city("bad #1")}
    engines = [SteadyEngine(clock, name, answer=said[name], judge=verdicts, capabilities=NATIVE) for name in "ab"]
    world = make_harness(clock, *engines, tools=BUILTIN_TOOLS, attempts=4, moving=True)
    return watch_commits(world)


VOTE = {"n": 3, "models": ["a", "b", "a"]}
WHOLE = [
    chat({"rules": [SHORT | {"max": 10}], "semantic": True}),
    structured({"semantic": "Names a good city."}, tools=["roll_dice"]),
    structured({"semantic": True}),
    chat_request("Which?", mode=Mode.REDUNDANT, output={"schema": CITY, "semantic": True}, redundancy=VOTE),
]


@pytest.mark.parametrize("request_", WHOLE, ids=["chat", "with tools", "structured", "redundant"])
async def test_a_crash_after_any_commit_is_recovered_to_the_same_answer(
    request_: SystemRequest, clock: VirtualClock
) -> None:
    world = steady(clock, request_.mode)
    response, _ = await run(world, request_)
    assert response.state is State.COMPLETE
    assert "good" in (response.content or "")
    commits = world.journal.commits
    assert len(commits) > 5
    for record, _ in commits:
        if record.events[-1].event.type in TERMINAL_TYPES:
            continue
        recovered, after = await steady(clock, request_.mode).recover(record, PATTERNS[request_.mode])
        assert (recovered.content, recovered.confidence) == (response.content, response.confidence)
        assert recovered.validation_result == response.validation_result
        assert tuple(after.events[: len(record.events)]) == tuple(record.events)
        assert is_complete_log(after)
        assert open_starts(after.events) == []
        assert replay_offline(after, PATTERNS[request_.mode]) == len(after.steps)


@pytest.mark.parametrize("request_", WHOLE, ids=["chat", "with tools", "structured", "redundant"])
async def test_a_cancel_at_any_time_leaves_every_start_with_its_end(
    request_: SystemRequest, clock: VirtualClock
) -> None:
    for seconds in range(1, 12):
        world = steady(clock, request_.mode)
        _, record = await run_and_cancel(clock, world, request_, seconds - 0.5, PATTERNS[request_.mode])
        assert is_complete_log(record)
        assert open_starts(record.events) == []
        assert replay_offline(record, PATTERNS[request_.mode]) == len(record.steps)
