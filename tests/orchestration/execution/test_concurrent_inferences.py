"""Concurrent inferences of one execution: no more than configured run, and those that wait get their turn in order."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import pytest

from portico.domain.contract.response import NO_USAGE
from portico.domain.failures import Cancellation, Code, Failure
from portico.domain.journal.events import InferenceStart
from portico.domain.lifecycle import State
from portico.domain.model_call import EngineCall, Reply
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.execution import Execution
from portico.ports.journal import ExecutionHistory
from portico.ports.model import Progress
from portico.ports.runtime import Clock
from tests.support.harness import chat_request, make_harness, profile, replay_offline, watch_commits
from tests.support.recovery import cancel_after, is_complete_log, open_starts, run_and_cancel
from tests.support.virtual_time import VirtualClock


class BusyEngine:
    """An engine that needs so many seconds for each call. `most` is the largest number of calls at the same time."""

    def __init__(self, clock: Clock, seconds: float = 1.0, **changes: Any) -> None:
        self.profile = profile("busy", **changes)
        self.running = self.most = 0
        self._clock = clock
        self._seconds = seconds

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self._clock.sleep(self._seconds)
        finally:
            self.running -= 1
        return Reply("yes", (), "stop", "", NO_USAGE, "busy")

    async def ping(self) -> str:
        return "here"


async def infer(context: RunContext) -> str:
    return (await context.infer(context.settings.messages)).text


async def many(context: RunContext, *, count: int = 10) -> str:
    results = await context.gather([infer] * count)
    return " ".join(each.code if isinstance(each, Failure) else each for each in results)


def started(record: ExecutionHistory) -> Sequence[str]:
    return [item.event.segment for item in record.events if isinstance(item.event, InferenceStart)]


async def test_no_more_run_than_configured_and_the_others_follow_in_order(clock: VirtualClock) -> None:
    engine = BusyEngine(clock)
    here = make_harness(clock, engine, concurrent_inferences=3)
    began = clock.monotonic()
    response, record = await here.run(chat_request(), many)
    assert response.content == " ".join(["yes"] * 10)
    assert (engine.most, clock.monotonic() - began) == (3, pytest.approx(4))
    assert started(record) == [f"0/{index}/0/0" for index in range(10)]
    assert replay_offline(record, many) == len(record.steps)


async def test_an_inference_that_waits_has_not_started_and_its_waiting_is_no_time_of_the_provider(
    clock: VirtualClock,
) -> None:
    here = make_harness(clock, BusyEngine(clock), concurrent_inferences=1)
    _, record = await here.run(chat_request(), partial(many, count=3))
    at = [item.at for item in record.events if isinstance(item.event, InferenceStart)]
    assert [later - at[0] for later in at] == pytest.approx([0, 1, 2])
    ends = [item.event.duration_ms for item in record.events if item.event.type == "inference.end"]
    assert ends == pytest.approx([1000] * 3)


async def test_waiting_is_running_time_of_the_execution_and_leaves_no_trace(clock: VirtualClock) -> None:
    engine = BusyEngine(clock)
    here = make_harness(clock, engine, concurrent_inferences=2, timeout=2.5)
    response, record = await here.run(chat_request(), many)
    assert (response.state, engine.running) == (State.CANCELLED, 0)
    assert len(started(record)) == 6
    assert is_complete_log(record)
    assert open_starts(record.events) == []
    assert replay_offline(record, many) == len(record.steps)


async def test_a_step_whose_time_passes_while_it_waits_gives_its_turn_to_the_next(clock: VirtualClock) -> None:
    async def hurried(context: RunContext) -> str:
        try:
            return await context.with_timeout(0.5, infer)
        except Cancellation as late:
            return late.code

    async def queue(context: RunContext) -> str:
        results = await context.gather([infer, hurried, infer])
        return " ".join(str(each) for each in results)

    here = make_harness(clock, BusyEngine(clock), concurrent_inferences=1)
    began = clock.monotonic()
    response, record = await here.run(chat_request(), queue)
    assert response.content == f"yes {Code.CANCELLED_TIMEOUT} yes"
    assert clock.monotonic() - began == pytest.approx(2)
    assert len(started(record)) == 2
    assert replay_offline(record, queue) == len(record.steps)


async def test_a_cancel_while_they_wait_starts_none_of_them(clock: VirtualClock) -> None:
    here = make_harness(clock, BusyEngine(clock), concurrent_inferences=2)
    response, record = await run_and_cancel(clock, here, chat_request(), 1.5, many)
    assert response.state is State.CANCELLED
    assert len(started(record)) == 4
    assert open_starts(record.events) == []


async def test_executions_do_not_share_the_limit(clock: VirtualClock) -> None:
    engine = BusyEngine(clock)
    here = make_harness(clock, engine, concurrent_inferences=2)
    executions = [here.execution(chat_request()) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for each in executions:
            group.start_soon(here.drive, each, many)
    assert engine.most == 6


FOUR = partial(many, count=4)


async def interrupted(clock: VirtualClock) -> list[ExecutionHistory]:
    """Return the history after every commit but the last."""
    here = watch_commits(make_harness(clock, BusyEngine(clock), concurrent_inferences=3))
    await here.run(chat_request(), FOUR)
    return [record for record, _ in here.journal.commits[:-1]]


async def test_interrupted_inferences_wait_for_their_turn_again(clock: VirtualClock) -> None:
    for record in await interrupted(clock):
        engine = BusyEngine(clock)
        response, after = await make_harness(clock, engine, concurrent_inferences=1).recover(record, FOUR)
        assert (response.content, engine.most) in {("yes yes yes yes", 1), ("yes yes yes yes", 0)}
        assert is_complete_log(after)
        assert open_starts(after.events) == []
        replay_offline(after, FOUR)


async def test_interrupted_inferences_that_are_cancelled_while_they_wait_are_recorded_as_cancelled(
    clock: VirtualClock,
) -> None:
    for record in await interrupted(clock):
        here = make_harness(clock, BusyEngine(clock), concurrent_inferences=1)
        here.journal.attach(record)
        execution = Execution(record.header, environment=here.environment, journal=here.journal, history=record)
        async with anyio.create_task_group() as group:
            group.start_soon(cancel_after, clock, 0.5, execution)
            await here.drive(execution, FOUR)
        after = here.record(execution)
        assert is_complete_log(after)
        assert open_starts(after.events) == []
        replay_offline(after, FOUR)


async def test_executions_share_the_connections_of_an_engine_fairly(clock: VirtualClock) -> None:
    engine = BusyEngine(clock, max_connections=2)
    here = make_harness(clock, engine, concurrent_inferences=32)
    large, small = here.execution(chat_request()), here.execution(chat_request())
    ended: list[float] = []

    async def drive(execution: Execution, count: int) -> None:
        await here.drive(execution, partial(many, count=count))
        ended.append(clock.monotonic() - began)

    began = clock.monotonic()
    async with anyio.create_task_group() as group:
        group.start_soon(drive, large, 20)
        await clock.sleep(0.5)
        group.start_soon(drive, small, 1)
    assert engine.most == 2
    assert ended == pytest.approx([2, 11])
    record = here.record(small)
    assert record.events[-1].event.response.token_usage is not None
    assert replay_offline(record, partial(many, count=1)) == len(record.steps)


async def test_a_cancel_while_an_attempt_waits_for_a_connection_starts_nothing_and_gives_it_on(
    clock: VirtualClock,
) -> None:
    engine = BusyEngine(clock, max_connections=1)
    here = make_harness(clock, engine)
    blocking = here.execution(chat_request())
    async with anyio.create_task_group() as group:
        group.start_soon(here.drive, blocking, infer)
        await clock.sleep(0.1)
        response, record = await run_and_cancel(clock, here, chat_request(), 0.5, infer)
    assert (response.state, started(record), engine.running) == (State.CANCELLED, [], 0)
    assert is_complete_log(record)
    assert (await here.run(chat_request(), infer))[0].state is State.COMPLETE
