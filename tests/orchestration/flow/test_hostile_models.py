"""Models and functions that break the rules: every failure is a typed one, alone and in the service."""

import asyncio
import uuid
from typing import Any, cast

import pytest
from pydantic import BaseModel, ConfigDict, JsonValue, field_serializer, field_validator

from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code
from portico.domain.journal.events import NodeStart
from portico.domain.lifecycle import State
from portico.orchestration.flow import (
    AgentConfig,
    Context,
    DeserializeError,
    FlowGraph,
    FlowRuntime,
    FlowSnapshot,
    Invalid,
    NodeFailed,
    RunOut,
    SerializeError,
    SnapLoadError,
    ToolError,
    flow,
)
from portico.orchestration.flow.flow_loop import flow_pattern
from portico.orchestration.flow.nodes import StateType
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.flow.snapshot import AgentRecord, FlowSuspension, PendingCall
from tests.orchestration.flow.test_flow_loop import flow_request, pattern_of, submit
from tests.support import example_flows as examples
from tests.support.example_flows import Count, Draft, Invoice, Text, Topic
from tests.support.harness import make_harness, open_suspensions, scripted_engine, watch_commits
from tests.support.virtual_time import VirtualClock


class Fussy(BaseModel):
    """A model whose validator fails in its own way."""

    number: int = 0

    @field_validator("number")
    @classmethod
    def check(cls, number: int) -> int:
        return 10 // number


class Mute(BaseModel):
    """A model that cannot be written."""

    number: int = 0

    @field_serializer("number")
    def write(self, number: int) -> str:
        raise LookupError("no words")


class Hook:
    """A type without a JSON Schema."""


class Hooked(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    hook: Hook | None = None


async def count_fussy(fussy: Fussy, context: Context) -> Count:
    return Count(count=fussy.number)


async def count_hooks(hooked: Hooked, context: Context) -> Count:
    return Count(count=1)


async def go_mute(text: Text, context: Context) -> Mute:
    return Mute()


def test_a_validator_or_serializer_that_fails_in_its_own_way_is_a_typed_error() -> None:
    with pytest.raises(DeserializeError, match=r"Fussy: \$: its model failed with ZeroDivisionError"):
        StateType("Fussy", Fussy).parse({"number": 0})
    with pytest.raises(SerializeError, match="Mute"):
        StateType("Mute", Mute).parse({"number": 1})
    with pytest.raises(DeserializeError, match="must be JSON"):
        StateType("Text", Text).parse({"text": "\ud800"})


def test_admission_names_the_field_when_a_validator_fails_in_its_own_way() -> None:
    graph = flow("fussy")(lambda: FlowGraph.builder(Fussy, Count).work(count_fussy).build())()
    pattern = flow_pattern({"fussy": ServedFlow(graph, Context())})
    request = flow_request(flow("fussy")(lambda: graph), input={"number": 0})
    errors = [(each.field, each.message) for each in pattern.admit(request, cast("Any", None), cast("Any", None))]
    assert errors == [("flow.input", "its model failed with ZeroDivisionError")]


def test_a_state_without_a_schema_is_invalid_when_the_fingerprint_is_made() -> None:
    graph = FlowGraph.builder(Hooked, Count).work(count_hooks).build()
    with pytest.raises(Invalid, match="Hooked: its model has no JSON Schema"):
        FlowRuntime(graph, Hooked()).snapshot()


async def leaves(text: Text, context: Context) -> Count:
    raise SystemExit(3)


async def leaks(text: Text, context: Context) -> Count:
    raise asyncio.CancelledError


@pytest.mark.parametrize("function", [leaves, leaks, go_mute])
async def test_a_function_can_neither_end_nor_cancel_the_service(function: Any, clock: VirtualClock) -> None:
    output = Mute if function is go_mute else Count
    graph = FlowGraph.builder(Text, output).work(function).build()
    with pytest.raises((NodeFailed, SerializeError)):
        await FlowRuntime(graph, Text(text="")).next(Context())
    definition = flow("leaves")(lambda: graph)
    here = make_harness(clock, scripted_engine(clock, "default"))
    response, _ = await here.run(flow_request(definition, input={"text": ""}), pattern_of(definition))
    assert response.error is not None
    assert (response.state, response.error.code) == (State.ERROR, Code.ORCHESTRATION_NODE_FAILED)


ID = uuid.UUID(int=1)


async def asks_by_id(text: Text, context: Context) -> Count:
    raise ToolError.suspend(cast("JsonValue", {"id": ID}))


async def test_a_question_is_stored_as_the_json_that_it_is_written_as(clock: VirtualClock) -> None:
    definition = flow("asks")(lambda: FlowGraph.builder(Text, Count).work(asks_by_id).build())
    outcome = await FlowRuntime(definition(), Text(text="")).next(Context())
    assert isinstance(outcome, RunOut.Suspend)
    assert outcome.value == {"id": str(ID)}
    here = make_harness(clock, scripted_engine(clock, "default"))
    response, _ = await here.run(flow_request(definition, input={"text": ""}), pattern_of(definition))
    assert [each.value for each in response.suspensions] == [{"id": str(ID)}]


class Big(BaseModel):
    number: int


async def double(big: Big, context: Context) -> Count:
    return Count(count=big.number * 2)


async def test_a_snapshot_keeps_integers_of_any_size() -> None:
    graph = FlowGraph.builder(Big, Count).work(double).build()
    stored = FlowRuntime(graph, Big(number=2**80 + 1)).snapshot().model_dump_json()
    runtime = FlowRuntime.from_snapshot(graph, FlowSnapshot.model_validate_json(stored))
    await runtime.next(Context())
    assert await runtime.next(Context()) == RunOut.Done(Count(count=2**81 + 2))


def test_a_snapshot_with_records_of_other_nodes_is_refused() -> None:
    graph = examples.approval()
    snapshot = FlowRuntime(graph, Invoice(number="7", amount=1)).snapshot()
    question = FlowSuspension(
        suspension_id="1", kind=SuspensionKind.FLOW, node="Payment", tool_id="Payment", value=None
    )
    record = AgentRecord(model="default", preamble="")
    for changes in ({"suspensions": (question,)}, {"agents": {"Invoice": record}}):
        with pytest.raises(SnapLoadError, match="a node that the graph does not have"):
            FlowRuntime.from_snapshot(graph, snapshot.model_copy(update=changes))
    research = examples.research()
    call = PendingCall.model_validate({"call": {"id": "1", "name": "search", "arguments": {}}})
    calls = (call.model_copy(update={"suspension": question}),)
    snapshot = FlowRuntime(research, Topic(topic="sea")).snapshot()
    changes = {"agents": {"Topic": record.model_copy(update={"calls": calls})}}
    with pytest.raises(SnapLoadError, match="names another node"):
        FlowRuntime.from_snapshot(research, snapshot.model_copy(update=changes))


class A(BaseModel):
    """One input of a join."""


class B(BaseModel):
    """Other input of a join."""


class AandB(BaseModel):
    """A state with the name of the join of the others."""

    model_config = ConfigDict(title="A+B")


def three(text: Text, context: Context) -> tuple[A, B, AandB]:
    return A(), B(), AandB()


def join_both(a: A, b: B, context: Context) -> Count:
    return Count(count=2)


async def count_title(both: AandB, context: Context) -> Count:
    return Count(count=1)


def test_build_refuses_a_state_with_the_name_of_a_join() -> None:
    with pytest.raises(Invalid, match=r"A\+B: two nodes have this name; give a model another title"):
        FlowGraph.builder(Text, Count).fork(three).join(join_both).work(count_title).build()


class Checked(BaseModel):
    """An answer whose validator fails in its own way."""

    text: str

    @field_validator("text")
    @classmethod
    def check(cls, text: str) -> str:
        return {"deep": text}[text]


async def publish(checked: Checked, context: Context) -> Draft:
    return Draft(text=checked.text)


async def test_an_agent_may_correct_an_answer_that_breaks_a_validator(clock: VirtualClock) -> None:
    config = AgentConfig("Research.", "default").with_tools([examples.search])
    definition = flow("checked")(
        lambda: FlowGraph.builder(Topic, Draft).agent(Topic, Checked, config).work(publish).build()
    )
    here = make_harness(
        clock, scripted_engine(clock, "default", submit("flat"), submit("deep")), tools=[examples.search]
    )
    response, _ = await here.run(flow_request(definition, input={"topic": "sea"}), pattern_of(definition))
    assert (response.state, response.structured_output) == (State.COMPLETE, {"text": "deep"})


class Act(BaseModel):
    text: str


ACTS: list[str] = []


async def act_once(act: Act, context: Context) -> Count:
    ACTS.append(act.text)
    await asyncio.Event().wait()
    return Count(count=1)


@pytest.mark.parametrize(
    ("payload", "state", "runs"),
    [
        ({"decision": "happened", "result": {"count": 7}}, State.COMPLETE, 1),
        ({"decision": "give_up"}, State.ERROR, 1),
        ({"decision": "run"}, State.CANCELLED, 2),
    ],
)
async def test_a_node_that_must_not_run_twice_asks_a_person_after_a_crash(
    clock: VirtualClock, payload: dict[str, Any], state: State, runs: int
) -> None:
    ACTS.clear()
    definition = flow("act")(lambda: FlowGraph.builder(Act, Count).work(act_once, idempotent=False).build())
    here = watch_commits(make_harness(clock, scripted_engine(clock, "default"), timeout=5))
    pattern = pattern_of(definition)
    response, _ = await here.run(flow_request(definition, input={"text": "x"}), pattern)
    assert response.state is State.CANCELLED
    crashed = next(commit for commit, _ in here.journal.commits if isinstance(commit.events[-1].event, NodeStart))
    elsewhere = make_harness(clock, scripted_engine(clock, "default"), timeout=5)
    response, record = await elsewhere.recover(crashed, pattern)
    assert (response.state, len(ACTS)) == (State.SUSPENDED, 1)
    [question] = open_suspensions(record)
    assert (question.kind, question.tool_id) == (SuspensionKind.UNKNOWN_OUTCOME, "Act")
    served = {"act": ServedFlow(definition(), Context())}
    misfit = {"decision": "happened", "result": {"count": "many"}}
    [(path, _)] = flow_pattern(served).answer_errors(record.header.request, question, misfit)
    assert path == "payload.result.count"
    elsewhere = make_harness(clock, scripted_engine(clock, "default"), timeout=5)
    response, _ = await elsewhere.resume(record, payload, pattern=pattern)
    assert (response.state, len(ACTS)) == (state, runs)
    if state is State.COMPLETE:
        assert response.structured_output == {"count": 7}


async def waits(text: Text, context: Context) -> Count:
    await asyncio.Event().wait()
    return Count(count=1)


async def test_the_deadline_ends_a_node_that_may_run_again(clock: VirtualClock) -> None:
    definition = flow("waits")(lambda: FlowGraph.builder(Text, Count).work(waits).build())
    here = make_harness(clock, scripted_engine(clock, "default"), timeout=5)
    response, _ = await here.run(flow_request(definition, input={"text": "x"}), pattern_of(definition))
    assert response.error is not None
    assert (response.state, response.error.code) == (State.CANCELLED, Code.CANCELLED_TIMEOUT)
