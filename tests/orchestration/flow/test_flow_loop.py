"""Mode flow: waves, suspensions, agents, limits, and recovery after a crash at any commit."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SuspensionKind, SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import FlowStep
from portico.domain.journal.outcomes import AttemptSucceeded, RecordedStep, SuspensionAnswer
from portico.domain.lifecycle import State
from portico.domain.raised_exception import ExceptionReport
from portico.orchestration.flow import Context, FlowGraph, ToolError
from portico.orchestration.flow.flow_loop import flow_loop
from portico.orchestration.flow.served_flow import ServedFlow
from portico.ports.journal import ExecutionHistory
from tests.support import example_flows as examples
from tests.support.example_flows import Draft, Topic
from tests.support.harness import (
    Harness,
    answer_suspension,
    make_harness,
    open_suspensions,
    replay_offline,
    scripted_engine,
    watch_commits,
)
from tests.support.recovery import is_complete_log, open_starts
from tests.support.virtual_time import VirtualClock


def pattern_of(definition: Any) -> Any:
    graph = definition()
    return partial(flow_loop, {graph.name: ServedFlow(graph, Context())})


def flow_request(definition: Any, **fields: Any) -> SystemRequest:
    request = {"mode": "flow", "flow": {"name": definition.name, "input": fields.pop("input")}} | fields
    return SystemRequest.model_validate(request)


def steps(record: ExecutionHistory) -> list[tuple[str, str]]:
    return [(item.event.node, item.event.outcome) for item in record.events if isinstance(item.event, FlowStep)]


def calls(*named: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in named]}


def submit(text: str) -> dict[str, Any]:
    return calls(("submit", {"text": text}))


async def run_from_every_commit(
    clock: VirtualClock, make: Callable[[int], Harness], request: SystemRequest, pattern: Any, payloads: list[Any]
) -> SystemResponse:
    """Run with these answers; then continue from every commit of every run to the same response.

    `make` returns a harness whose engine answers from the inference of that number on.
    """
    commits: list[ExecutionHistory] = []

    async def recover(record: ExecutionHistory) -> tuple[SystemResponse, ExecutionHistory]:
        here = watch_commits(make(inferences(record)))
        response, record = await here.recover(record, pattern)
        commits.extend(commit for commit, _ in here.journal.commits)
        return response, record

    async def to_end(response: SystemResponse, record: ExecutionHistory) -> SystemResponse:
        """Give the answers that are missing; a node that must not run twice may run again after a crash."""
        missing = payloads[len([step for step in record.steps.values() if is_answer(step)]) :]
        while response.state is State.SUSPENDED:
            uncertain = open_suspensions(record)[0].kind is SuspensionKind.UNKNOWN_OUTCOME
            payload = {"decision": "run"} if uncertain else missing.pop(0)
            assert replay_offline(record, pattern) == len(record.steps)
            record = answer_suspension(clock, record, payload)
            if not open_suspensions(record):
                response, record = await recover(record)
        assert is_complete_log(record)
        assert open_starts(record.events) == []
        assert replay_offline(record, pattern) == len(record.steps)
        return response

    here = watch_commits(make(0))
    response = await to_end(*await here.run(request, pattern))
    commits += [commit for commit, _ in here.journal.commits]
    for record in list(commits):
        if record.events and record.events[-1].event.type not in AT_REST:
            again = await to_end(*await recover(record))
            assert (again.state, again.structured_output) == (response.state, response.structured_output)
    return response


AT_REST = {"execution.completed", "execution.suspended"}


def inferences(record: ExecutionHistory) -> int:
    return sum(isinstance(step.outcome, AttemptSucceeded) for step in record.steps.values())


def is_answer(step: RecordedStep) -> bool:
    return isinstance(step.outcome, SuspensionAnswer)


async def test_nodes_that_can_fire_at_once_are_one_top_level_step(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "default"))
    request = flow_request(examples.split_and_merge, input={"text": "some words"})
    response, record = await here.run(request, pattern_of(examples.split_and_merge))
    assert (response.state, response.structured_output) == (State.COMPLETE, {"longest": "words", "letters": 9})
    assert response.content == '{"longest":"words","letters":9}'
    assert steps(record) == [
        ("Text", "continue"),
        ("Left", "continue"),
        ("Right", "continue"),
        ("Longest+Letters", "continue"),
        ("Summary", "done"),
    ]
    assert sorted(key for key in record.steps if "/" in key) == ["1/0/0", "1/1/0"]
    assert replay_offline(record, pattern_of(examples.split_and_merge)) == len(record.steps)


FLOWS: list[Any] = [
    (examples.linear, {"text": "a b"}, [], [], {"count": 2}),
    (examples.split_and_merge, {"text": "a bb"}, [], [], {"longest": "bb", "letters": 3}),
    (examples.approval, {"number": "7", "amount": 500}, [], [{"by": "ada"}], {"receipt": "paid, approved by ada"}),
    (examples.nested, {"text": "7", "amount": 500}, [], [{"by": "ada"}], {"receipt": "paid, approved by ada"}),
    (examples.debate, {"claim": "c"}, [], [], {"claim": "c", "rounds": 3}),
    (
        examples.research,
        {"topic": "sea"},
        [
            calls(("search", {"query": "sea"}), ("ask_editor", {"question": "long?"})),
            calls(("ask_editor", {"question": "dark?"}), ("ask_editor", {"question": "cold?"})),
            submit("deep"),
        ],
        ["no", "yes", "very"],
        {"answer": "deep"},
    ),
    (examples.summarise, {"topic": "sea"}, [{"text": "no JSON"}, {"text": '{"text":"blue"}'}], [], {"answer": "blue"}),
]


@pytest.mark.parametrize(
    ("definition", "entry", "replies", "payloads", "output"), FLOWS, ids=[each[0].name for each in FLOWS]
)
async def test_a_flow_continues_after_a_crash_at_any_commit(
    clock: VirtualClock, definition: Any, entry: Any, replies: list[Any], payloads: list[Any], output: Any
) -> None:
    def make(used: int) -> Harness:
        engine = scripted_engine(clock, "default", *replies[used:])
        return make_harness(clock, engine, tools=[examples.search, examples.ask_editor])

    response = await run_from_every_commit(
        clock, make, flow_request(definition, input=entry), pattern_of(definition), payloads
    )
    assert (response.state, response.structured_output) == (State.COMPLETE, output)


class Left(BaseModel):
    """A branch that waits."""


class Right(BaseModel):
    """A branch that goes on."""


class Middle(BaseModel):
    """A second state of the branch that goes on."""


class LeftDone(BaseModel):
    said: str


class RightDone(BaseModel):
    """The end of a branch."""


RAN: list[str] = []


def split(topic: Topic, context: Context) -> tuple[Left, Right]:
    return Left(), Right()


async def wait(left: Left, context: Context) -> LeftDone:
    RAN.append("wait")
    raise ToolError.suspend("go on?")


async def first(right: Right, context: Context) -> Middle:
    RAN.append("first")
    return Middle()


async def second(middle: Middle, context: Context) -> RightDone:
    RAN.append("second")
    return RightDone()


def meet(left: LeftDone, right: RightDone, context: Context) -> Draft:
    return Draft(text=left.said)


def two_branches() -> FlowGraph[Topic, Draft]:
    return FlowGraph.builder(Topic, Draft).fork(split).work(wait).work(first).work(second).join(meet).build()


async def test_the_other_branch_runs_to_its_end_while_one_waits(clock: VirtualClock) -> None:
    RAN.clear()
    definition = examples.flow("two")(two_branches)
    here = make_harness(clock, scripted_engine(clock, "default"))
    pattern = pattern_of(definition)
    response, record = await here.run(flow_request(definition, input={"topic": "sea"}), pattern)
    assert response.state is State.SUSPENDED
    assert [(each.kind, each.tool_id) for each in response.suspensions] == [("flow", "Left")]
    assert RAN == ["wait", "first", "second"]
    assert steps(record)[-1] == ("Middle", "continue")
    assert replay_offline(record, pattern) == len(record.steps)
    elsewhere = make_harness(clock, scripted_engine(clock, "default"))
    response, record = await elsewhere.resume(record, {"said": "yes"}, pattern=pattern)
    assert (response.state, response.structured_output) == (State.COMPLETE, {"text": "yes"})
    assert RAN == ["wait", "first", "second"]
    assert replay_offline(record, pattern) == len(record.steps)


async def fails_second(middle: Middle, context: Context) -> RightDone:
    raise OSError("broken")


async def asks_second(middle: Middle, context: Context) -> RightDone:
    raise ToolError.suspend("and now?")


async def fails_first(right: Right, context: Context) -> RightDone:
    raise OSError("broken")


@pytest.mark.parametrize(
    "work", [[fails_first], [first, fails_second], [first, asks_second]], ids=["at once", "later", "by asking"]
)
async def test_a_flow_that_ends_while_a_node_waits_is_replayed_whole(clock: VirtualClock, work: list[Any]) -> None:
    def build() -> FlowGraph[Topic, Draft]:
        builder = FlowGraph.builder(Topic, Draft).fork(split).work(wait).join(meet)
        for function in work:
            builder = builder.work(function)
        return builder.build()

    definition = examples.flow("ends")(build)
    here = make_harness(clock, scripted_engine(clock, "default"))
    response, record = await here.run(flow_request(definition, input={"topic": "sea"}), pattern_of(definition))
    assert response.state is (State.SUSPENDED if work[-1] is asks_second else State.ERROR)
    assert replay_offline(record, pattern_of(definition)) == len(record.steps)


async def broken(text: examples.Text, context: Context) -> examples.Count:
    raise ValueError("the canary")


def torn(argument: examples.Argument, context: Context) -> examples.Objection | examples.Verdict:
    raise ValueError("the canary")


@examples.flow("broken")
def broken_work() -> Any:
    return FlowGraph.builder(examples.Text, examples.Count).work(broken).build()


@examples.flow("torn")
def torn_choice() -> Any:
    builder = FlowGraph.builder(examples.Claim, examples.Verdict).work(examples.open_debate)
    return builder.either(torn).work(examples.argue_again).build()


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(
    ("definition", "entry", "node", "function"),
    [(broken_work, {"text": ""}, "Text", "broken"), (torn_choice, {"claim": "c"}, "Argument", "torn")],
)
async def test_the_text_of_a_node_s_error_is_in_the_log_and_in_no_event_or_response(
    clock: VirtualClock, definition: Any, entry: dict[str, str], node: str, function: str, *, store: bool
) -> None:
    reports: list[ExceptionReport] = []
    here = make_harness(clock, scripted_engine(clock, "default"))
    here.environment = replace(here.environment, on_exception=reports.append)
    request = flow_request(definition, input=entry, store=store)
    response, record = await here.run(request, pattern_of(definition))
    assert response.state is State.ERROR
    assert response.error is not None
    assert (response.error.code, response.error.details) == (Code.ORCHESTRATION_NODE_FAILED, {"node": node})
    assert "canary" not in str(record.events) + response.model_dump_json()
    [report] = reports
    assert (report.kind, report.name, report.type) == ("node", node, "ValueError")
    assert report.text == ("the canary" if store else None)
    assert report.frames.startswith(f"ValueError in {function} ")
    assert (report.request_id, report.trace_id) == (response.request_id, response.trace_id)
    assert replay_offline(record, pattern_of(definition)) == len(record.steps)
    assert reports == [report]


async def test_the_step_limit_counts_nodes_and_inferences(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "default"), flow_steps=4)
    response, _ = await here.run(flow_request(examples.debate, input={"claim": "c"}), pattern_of(examples.debate))
    assert response.error is not None
    assert (response.error.code, response.error.details) == (
        Code.ORCHESTRATION_ITERATION_LIMIT,
        {"flow_steps": 4},
    )
    engine = scripted_engine(clock, "default", *[calls(("search", {"query": "sea"}))] * 3)
    here = make_harness(clock, engine, tools=[examples.search, examples.ask_editor], flow_steps=2)
    response, _ = await here.run(flow_request(examples.research, input={"topic": "x"}), pattern_of(examples.research))
    assert response.error is not None
    assert response.error.details == {"flow_steps": 2}


async def test_an_agent_uses_only_the_tools_of_its_box_that_the_request_allows(clock: VirtualClock) -> None:
    replies = [calls(("search", {"query": "sea"}), ("calculate", {"expression": "1"})), submit("deep")]
    here = make_harness(
        clock, scripted_engine(clock, "default", *replies), tools=[examples.search, examples.ask_editor]
    )
    request = flow_request(examples.research, input={"topic": "sea"}, tools=["ask_editor"])
    response, _ = await here.run(request, pattern_of(examples.research))
    assert [(each.name, each.is_error) for each in response.tool_calls_made] == [
        ("search", True),
        ("calculate", True),
        ("submit", False),
    ]


async def test_the_output_is_held_to_the_output_contract_without_a_retry(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "default"))
    schema = {"type": "object", "properties": {"count": {"maximum": 1}}}
    request = flow_request(examples.linear, input={"text": "a b"}, output={"schema": schema})
    response, _ = await here.run(request, pattern_of(examples.linear))
    assert response.error is not None
    assert response.error.code == Code.CONSTRAINT_SCHEMA_INVALID


async def test_a_flow_is_journaled_from_a_node_that_must_not_run_twice(clock: VirtualClock) -> None:
    for definition, entry, durability in (
        (examples.linear, {"text": "a"}, "memory"),
        (examples.approval, {"number": "7", "amount": 5}, "journaled"),
    ):
        here = make_harness(clock, scripted_engine(clock, "default"))
        response, _ = await here.run(flow_request(definition, input=entry), pattern_of(definition))
        assert (response.state, response.metadata.durability) == (State.COMPLETE, durability)
