"""A gather whose branches come after one another: each begins when those it comes after have ended."""

import pytest

from app.domain.contract.response import StepStatus
from app.domain.failures import Failure
from app.domain.lifecycle import State
from app.orchestration.execution.context import RunContext
from tests.support.harness import chat_request, make_harness, replay_offline, scripted_engine
from tests.support.virtual_time import VirtualClock


async def infer(run: RunContext) -> str:
    return (await run.infer(run.settings.messages)).text


def told(each: object) -> str:
    return each.code if isinstance(each, Failure) else str(each)


async def diamond(run: RunContext) -> str:
    """Two after the first, and the last after both."""
    ends = await run.gather([infer, infer, infer, infer], after={1: [0], 2: [0], 3: [1, 2]})
    return " ".join(map(told, ends))


async def test_a_branch_begins_when_those_it_comes_after_have_ended(clock: VirtualClock) -> None:
    replies = [{"text": text, "delay": delay} for text, delay in (("a", 1), ("b", 2), ("c", 3), ("d", 1))]
    began = clock.now()
    response, record = await make_harness(clock, scripted_engine(clock, "a", *replies)).run(chat_request(), diamond)
    assert response.content == "a b c d"
    starts = {item.anchor: item.at - began for item in record.events if item.event.type == "inference.start"}
    assert starts == pytest.approx({"0/0/0/0": 0, "0/1/0/0": 1, "0/2/0/0": 1, "0/3/0/0": 4})
    assert replay_offline(record, diamond) == len(record.steps)


async def test_a_failed_branch_has_ended_too(clock: VirtualClock) -> None:
    replies = [{"fault": "refused", "delay": 1}, {"text": "b"}, {"text": "c", "delay": 2}, {"text": "d"}]
    response, record = await make_harness(clock, scripted_engine(clock, "a", *replies)).run(chat_request(), diamond)
    assert response.content == "INFERENCE_ENGINE_ERROR b c d"
    assert replay_offline(record, diamond) == len(record.steps)


async def test_the_time_of_a_branch_begins_at_the_end_of_those_it_comes_after(clock: VirtualClock) -> None:
    async def timed(run: RunContext) -> str:
        run.start_step("infer")
        text = await infer(run)
        run.end_step(StepStatus.COMPLETED)
        return text

    async def pair(run: RunContext) -> str:
        ends = await run.gather([infer, timed], after={1: [0]})
        return " ".join(map(told, ends))

    replies = [{"fault": "refused", "delay": 7}, {"text": "b", "delay": 3}]
    _, record = await make_harness(clock, scripted_engine(clock, "a", *replies)).run(chat_request("one"), pair)
    [end] = [item.event for item in record.events if item.event.type == "step.end"]
    assert end.duration_ms == pytest.approx(3_000)
    assert replay_offline(record, pair) == len(record.steps)


async def test_who_comes_after_a_branch_that_waits_for_somebody_does_not_begin(clock: VirtualClock) -> None:
    begun: list[str] = []

    async def gate(run: RunContext) -> str:
        return str(await run.suspend("?", "gate"))

    async def behind(run: RunContext) -> str:
        begun.append("behind")
        return await infer(run)

    async def beside(run: RunContext) -> str:
        begun.append("beside")
        return await infer(run)

    async def mixed(run: RunContext) -> str:
        ends = await run.gather([gate, behind, beside, behind], after={1: [0], 2: [], 3: [1, 2]})
        return " ".join(map(told, ends))

    here = make_harness(clock, scripted_engine(clock, "a", {"text": "finished", "delay": 5}))
    response, record = await here.run(chat_request(), mixed)
    assert response.state is State.SUSPENDED
    assert begun == ["beside"]
    assert [question.suspension_id for question in response.suspensions] == ["0/0/0"]
    assert replay_offline(record, mixed) == len(record.steps)

    elsewhere = make_harness(clock, scripted_engine(clock, "a", {"text": "one"}, {"text": "two"}))
    response, after = await elsewhere.resume(record, "go", pattern=mixed)
    assert response.content == "go one finished two"
    assert replay_offline(after, mixed) == len(after.steps)


async def test_what_a_branch_said_is_told_when_it_ends_and_not_when_others_do(clock: VirtualClock) -> None:
    async def step(run: RunContext) -> str:
        run.start_step("infer")
        text = await infer(run)
        run.end_step(StepStatus.COMPLETED)
        return text

    async def both(run: RunContext) -> str:
        return " ".join(map(told, await run.gather([step, step])))

    replies = [{"text": "a", "delay": 1}, {"text": "b", "delay": 60}]
    began = clock.now()
    _, record = await make_harness(clock, scripted_engine(clock, "a", *replies)).run(chat_request(), both)
    ends = [item.at - began for item in record.events if item.event.type == "step.end"]
    assert ends == pytest.approx([1, 60])
