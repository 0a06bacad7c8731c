"""Upper bounds of flows: what a run takes never exceeds what the quote says."""

from typing import Any

import pytest
from pydantic import BaseModel

from portico.adapters.engines.scripted import ScriptedEngine
from portico.domain.lifecycle import State
from portico.domain.model_call import EngineCall, Reply
from portico.orchestration.execution.pattern import BoundInputs, UpperBound
from portico.orchestration.flow import AgentConfig, Context, FlowGraph, flow
from portico.orchestration.flow.flow_loop import flow_pattern
from portico.orchestration.flow.served_flow import ServedFlow
from portico.ports.model import Progress
from tests.orchestration.flow.test_flow_loop import calls, flow_request, inferences, pattern_of, submit
from tests.support import example_flows as examples
from tests.support.example_flows import Draft, Topic
from tests.support.harness import Harness, make_harness, profile, replay_offline, scripted_engine
from tests.support.virtual_time import VirtualClock


class Task(BaseModel):
    """Task of an agent."""


class OtherTask(BaseModel):
    """Task of another agent."""


class Found(BaseModel):
    text: str


class AlsoFound(BaseModel):
    text: str


class Poor(BaseModel):
    text: str


def share(topic: Topic, context: Context) -> tuple[Task, OtherTask]:
    return Task(), OtherTask()


def combine(found: Found, also: AlsoFound, context: Context) -> Draft:
    return Draft(text=found.text + also.text)


CONFIG = AgentConfig("Research.", "default")


@flow("share")
def shared_work() -> FlowGraph[Topic, Draft]:
    builder = FlowGraph.builder(Topic, Draft).fork(share)
    return builder.agent(Task, Found, CONFIG).agent(OtherTask, AlsoFound, CONFIG).join(combine).build()


def criticise(found: Found, context: Context) -> Poor | Draft:
    return Draft(text=found.text) if found.text.startswith("good") else Poor(text=found.text)


@flow("improve")
def improve() -> FlowGraph[Topic, Draft]:
    builder = FlowGraph.builder(Topic, Draft).agent(Topic, Found, CONFIG).either(criticise)
    return builder.agent(Poor, Found, CONFIG).build()


@flow("improve-with-tools")
def improve_with_tools() -> FlowGraph[Topic, Draft]:
    config = CONFIG.with_tools([examples.search])
    builder = FlowGraph.builder(Topic, Draft).agent(Topic, Found, config).either(criticise)
    return builder.agent(Poor, Found, config).build()


class ListeningEngine(ScriptedEngine):
    """A scripted engine that remembers the roles and texts of every call."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.heard: list[list[tuple[str, str]]] = []

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        self.heard.append([(each.role, str(each.content)) for each in call.messages])
        return await super().attempt(call, progress, stream=stream)


def bound_of(here: Harness, definition: Any, **fields: Any) -> UpperBound:
    pattern = flow_pattern({definition.name: ServedFlow(definition(), Context())})
    world, request = here.environment, flow_request(definition, input={"topic": "sea"}, **fields)
    return pattern.upper_bound(
        BoundInputs(request, here.limits, world.tool_registry.names(), world.catalogue, world.tool_registry)
    )


def test_a_graph_without_cycles_knows_how_often_its_nodes_fire() -> None:
    assert examples.split_and_merge().max_visits == {"Text": 1, "Left": 1, "Right": 1, "Longest+Letters": 1}
    assert examples.debate().max_visits is None


def test_an_agent_outside_a_cycle_is_bounded_by_its_tool_rounds_and_its_correction(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "default"), tools=[examples.search, examples.ask_editor])
    attempts = here.limits.max_retries + 1
    assert bound_of(here, examples.summarise).inferences == 2 * attempts
    assert bound_of(here, examples.research).inferences == 22 * attempts
    assert bound_of(here, shared_work).inferences == 4 * attempts
    assert bound_of(here, improve).inferences == 504 * attempts
    with_judge = bound_of(here, examples.summarise, output={"semantic": "Is it true?"})
    assert with_judge.inferences == 3 * attempts


@pytest.mark.parametrize("flow_steps", [3, 10])
async def test_agents_that_work_at_once_stay_within_the_bound(clock: VirtualClock, flow_steps: int) -> None:
    replies = [{"text": "no JSON"}] * 2 + [{"text": '{"text":"a"}'}] * 2
    here = make_harness(clock, scripted_engine(clock, "default", *replies), flow_steps=flow_steps)
    response, record = await here.run(flow_request(shared_work, input={"topic": "sea"}), pattern_of(shared_work))
    assert response.state is (State.COMPLETE if flow_steps == 10 else State.ERROR)
    assert inferences(record) == 4 <= bound_of(here, shared_work).inferences


async def test_an_agent_that_hands_in_too_late_stays_within_the_bound(clock: VirtualClock) -> None:
    search = calls(("search", {"query": "sea"}))
    engine = scripted_engine(clock, "default", {"text": "no call"}, *[search] * 2, submit("late"))
    here = make_harness(clock, engine, tools=[examples.search, examples.ask_editor], tool_rounds=2)
    response, record = await here.run(
        flow_request(examples.research, input={"topic": "sea"}), pattern_of(examples.research)
    )
    assert response.state is State.ERROR
    assert inferences(record) == 4 == bound_of(here, examples.research).inferences // (here.limits.max_retries + 1)


async def test_an_agent_that_is_visited_twice_goes_on_in_its_conversation(clock: VirtualClock) -> None:
    replies = [{"text": f'{{"text":"{text}"}}'} for text in ("first", "second", "good third")]
    engine = ListeningEngine(profile("default"), replies, clock)
    here = make_harness(clock, engine)
    response, _ = await here.run(flow_request(improve, input={"topic": "sea"}), pattern_of(improve))
    assert response.structured_output == {"text": "good third"}
    assert engine.heard == [
        [("system", "Research."), ("user", '{"topic":"sea"}')],
        [("system", "Research."), ("user", '{"text":"first"}')],
        [
            ("system", "Research."),
            ("user", '{"text":"first"}'),
            ("assistant", '{"text":"second"}'),
            ("user", '{"text":"second"}'),
        ],
    ]


async def test_an_agent_with_tools_that_is_visited_twice_has_the_result_of_its_submission(clock: VirtualClock) -> None:
    replies = [submit("first"), submit("second"), submit("good third")]
    engine = ListeningEngine(profile("default"), replies, clock)
    here = make_harness(clock, engine, tools=[examples.search])
    response, record = await here.run(
        flow_request(improve_with_tools, input={"topic": "sea"}), pattern_of(improve_with_tools)
    )
    assert response.structured_output == {"text": "good third"}
    assert [role for role, _ in engine.heard[2]] == ["system", "user", "assistant", "tool", "user"]
    assert replay_offline(record, pattern_of(improve_with_tools)) == len(record.steps)
