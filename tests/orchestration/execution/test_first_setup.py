"""The setup of the first inference: PREPARE has found it, unless something else is asked or a wait came between."""

from dataclasses import replace
from typing import Any

import pytest

from portico.capabilities.models.tokens import UNCORRECTED, LearningTokenEstimator, message_sizes
from portico.domain.contract.messages import Message
from portico.domain.ids import TenantId
from portico.domain.journal.outcomes import InferenceSetup
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.ports.journal import ExecutionHistory
from portico.ports.model import TokenCounter
from tests.support.harness import Harness, chat_request, make_harness, scripted_engine
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

TEXT = {"text": "yes", "usage": {"input_tokens": 900, "output_tokens": 100, "total_tokens": 1_000}}


class CountingEstimator(LearningTokenEstimator):
    """An estimator that counts how often a counter is asked for, which is once for each setup that is found."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def counter(self, tenant: TenantId, model: str) -> TokenCounter:
        self.asked += 1
        return UNCORRECTED

    def learn(self, tenant: TenantId, model: str, *, estimated: float, reported: int) -> None:
        """Learn nothing."""


def counting(clock: VirtualClock, *tools: FakeTool, replies: Any = (TEXT,)) -> tuple[Harness, CountingEstimator]:
    here, estimator = make_harness(clock, scripted_engine(clock, "a", *replies), tools=tools), CountingEstimator()
    here.environment = replace(here.environment, token_estimator=estimator)
    return here, estimator


def setup_of(record: ExecutionHistory, key: str = "0") -> InferenceSetup:
    setup = record.steps[key].outcome
    assert isinstance(setup, InferenceSetup)
    return setup


async def other_question(context: RunContext) -> str:
    """Ask something else than what was prepared."""
    return (await context.infer([Message(role="user", content="Something else?")])).text


async def no_tools(context: RunContext) -> str:
    """Ask what was prepared, without tools."""
    return (await context.infer(context.settings.messages, tools=False)).text


async def after_a_wait(context: RunContext) -> str:
    """Ask what was prepared after a computation on a thread."""
    await context.compute(lambda: None)
    return await agent_loop(context)


async def test_the_first_inference_counts_nothing_that_prepare_has_counted(clock: VirtualClock) -> None:
    here, estimator = counting(clock, FakeTool("act"))
    _, record = await here.run(chat_request("Why?", tools=["act"]))
    assert estimator.asked == 1
    prepared = record.steps["prepare"].outcome
    assert [tool.name for tool in setup_of(record).tools] == ["act"]
    assert setup_of(record).terms == prepared.context.terms


async def test_a_later_inference_finds_its_own(clock: VirtualClock) -> None:
    here, estimator = counting(clock, FakeTool("act"), replies=({"tool_calls": [{"name": "act"}], **USAGE}, TEXT))
    _, record = await here.run(chat_request("Why?", tools=["act"]))
    assert estimator.asked == 2
    first, later = setup_of(record).terms, setup_of(record, "2").terms
    assert first is not None
    assert later is not None
    assert later.used > first.used


@pytest.mark.parametrize("pattern", [other_question, no_tools, after_a_wait])
async def test_another_question_other_tools_and_a_wait_take_the_setup_away(clock: VirtualClock, pattern: Any) -> None:
    here, estimator = counting(clock, FakeTool("act"))
    _, record = await here.run(chat_request("Why?", tools=["act"]), pattern)
    assert estimator.asked == 2
    tools = [tool.name for tool in setup_of(record).tools]
    assert tools == ([] if pattern is no_tools else ["act"])


async def test_a_tool_that_goes_away_during_a_wait_is_not_offered(clock: VirtualClock) -> None:
    tool = FakeTool("act")

    async def lose_the_tool(context: RunContext) -> str:
        tool.unavailable_reason = "it is gone"
        await context.compute(lambda: None)
        return await agent_loop(context)

    here, _ = counting(clock, tool)
    _, record = await here.run(chat_request("Why?", tools=["act"]), lose_the_tool)
    assert setup_of(record).tools == ()


def test_a_message_is_counted_once() -> None:
    messages = [Message(role="user", content="Why?"), Message(role="assistant", content="Because.")]
    known = [1_000]
    assert message_sizes(messages, known) == [1_000, UNCORRECTED.message(messages[1])]
    assert known == message_sizes(messages, known)


USAGE = {"usage": TEXT["usage"]}
