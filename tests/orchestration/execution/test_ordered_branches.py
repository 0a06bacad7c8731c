"""Ordered branches: each begins when those that it comes after have ended."""

import pytest

from portico.domain.contract.response import StepStatus
from portico.domain.failures import Failure
from portico.domain.lifecycle import State
from portico.orchestration.execution.context import RunContext
from tests.support.harness import chat_request, make_harness, replay_offline, scripted_engine
from tests.support.virtual_time import VirtualClock


async def infer(context: RunContext) -> str:
    return (await context.infer(context.settings.messages)).text


def shown(each: object) -> str:
    return each.code if isinstance(each, Failure) else str(each)


async def diamond(context: RunContext) -> str:
    """Run two branches after the first, and the last after both."""
    ends = await context.gather([infer, infer, infer, infer], after={1: [0], 2: [0], 3: [1, 2]})
    return " ".join(map(shown, ends))


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
    async def timed(context: RunContext) -> str:
        context.start_step("infer")
        text = await infer(context)
        context.end_step(StepStatus.COMPLETED)
        return text

    async def pair(context: RunContext) -> str:
        ends = await context.gather([infer, timed], after={1: [0]})
        return " ".join(map(shown, ends))

    replies = [{"fault": "refused", "delay": 7}, {"text": "b", "delay": 3}]
    _, record = await make_harness(clock, scripted_engine(clock, "a", *replies)).run(chat_request("one"), pair)
    [end] = [item.event for item in record.events if item.event.type == "step.end"]
    assert end.duration_ms == pytest.approx(3_000)
    assert replay_offline(record, pair) == len(record.steps)


async def test_a_branch_after_a_suspended_one_does_not_begin(clock: VirtualClock) -> None:
    begun: list[str] = []

    async def gate(context: RunContext) -> str:
        return str(await context.suspend("?", "gate"))

    async def behind(context: RunContext) -> str:
        begun.append("behind")
        return await infer(context)

    async def beside(context: RunContext) -> str:
        begun.append("beside")
        return await infer(context)

    async def mixed(context: RunContext) -> str:
        ends = await context.gather([gate, behind, beside, behind], after={1: [0], 2: [], 3: [1, 2]})
        return " ".join(map(shown, ends))

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


async def test_events_of_a_branch_are_committed_when_it_ends_and_not_when_others_do(clock: VirtualClock) -> None:
    async def step(context: RunContext) -> str:
        context.start_step("infer")
        text = await infer(context)
        context.end_step(StepStatus.COMPLETED)
        return text

    async def both(context: RunContext) -> str:
        return " ".join(map(shown, await context.gather([step, step])))

    replies = [{"text": "a", "delay": 1}, {"text": "b", "delay": 60}]
    began = clock.now()
    _, record = await make_harness(clock, scripted_engine(clock, "a", *replies)).run(chat_request(), both)
    ends = [item.at - began for item in record.events if item.event.type == "step.end"]
    assert ends == pytest.approx([1, 60])
