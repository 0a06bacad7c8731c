"""Random graphs: a graph that can be built ends as flows end, alone and in the service, and continues after a crash."""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import FlowStep
from portico.orchestration.flow import (
    Context,
    Deadlock,
    FlowGraph,
    FlowRuntime,
    FlowSnapshot,
    Invalid,
    NodeFailed,
    RunOut,
    StepLimit,
    ToolError,
    flow,
)
from tests.orchestration.flow.test_flow_loop import flow_request, pattern_of, run_from_every_commit
from tests.support.harness import Harness, make_harness, replay_offline, scripted_engine
from tests.support.virtual_time import VirtualClock

MODELS: list[type[BaseModel]] = [create_model(f"S{number}", visits=(int, 0)) for number in range(20)]
END: type[BaseModel] = create_model("End", visits=(int, 0))
STEP_LIMIT = 60
CHOICES = st.lists(
    st.tuples(
        st.sampled_from(["work", "once", "asking", "failing", "either", "either", "fork", "join"]), st.integers(0, 19)
    ),
    max_size=9,
)
SHAPES = st.tuples(st.booleans(), CHOICES)


def random_builder(is_careful: bool, choices: list[tuple[str, int]]) -> Any:
    """Return a builder of a graph whose states all lead on; a careless one may miss its end."""
    builder: Any = FlowGraph.builder(MODELS[0], END)
    unused, states, taken = iter(MODELS[1:]), [MODELS[0]], list[type[BaseModel]]()
    for kind, number in choices:
        source = states.pop(0)
        taken.append(source)
        left = next(unused)
        match kind:
            case "either":
                back = [*taken, END][number % (len(taken) + 1)]
                builder, states = add_node(builder, kind, source, left, back), [*states, left]
            case "fork":
                right = next(unused)
                builder, states = add_node(builder, kind, source, left, right), [*states, left, right]
            case "join" if states:
                taken.append(states[0])
                builder, states = add_node(builder, kind, source, states[0], left), [*states[1:], left]
            case _:
                other = "work" if kind == "join" else kind
                builder, states = add_node(builder, other, source, source, left), [*states, left]
    for source in states if is_careful else states[1:]:
        builder = add_node(builder, "work", source, source, END)
    return builder


def add_node(builder: Any, kind: str, source: type[BaseModel], left: type[BaseModel], right: type[BaseModel]) -> Any:
    inputs = [source] if kind != "join" else [source, left]
    returns: Any = right
    if kind == "either":
        returns = left | right
    if kind == "fork":
        returns = tuple[left, right]

    async def work(value: Any, context: Context) -> Any:
        if kind == "asking":
            raise ToolError.suspend(value.visits)
        if kind == "failing":
            raise OSError("broken")
        return right(visits=value.visits + 1)

    def either(value: Any, context: Context) -> Any:
        return (left if value.visits % 2 else right)(visits=value.visits + 1)

    def fork(value: Any, context: Context) -> Any:
        return left(visits=value.visits), right(visits=value.visits)

    def join(value: Any, other: Any, context: Context) -> Any:
        return right(visits=max(value.visits, other.visits))

    options = {"idempotent": False} if kind == "once" else {}
    function: Any = {"either": either, "fork": fork, "join": join}.get(kind, work)
    names = ["value", "other"][: len(inputs)]
    function.__annotations__ = {**dict(zip(names, inputs, strict=True)), "return": returns}
    return getattr(builder, kind if kind in {"either", "fork", "join"} else "work")(function, **options)


@given(SHAPES)
async def test_a_valid_graph_ends_as_flows_end(shape: tuple[bool, list[tuple[str, int]]]) -> None:
    is_careful, choices = shape
    try:
        graph = random_builder(is_careful, choices).build()
    except Invalid:
        event("invalid")
        return
    runtime = FlowRuntime(graph, MODELS[0](), step_limit=STEP_LIMIT)
    for _ in range(STEP_LIMIT + 1):
        stored = runtime.snapshot().model_dump_json()
        runtime = FlowRuntime(graph, FlowSnapshot.model_validate_json(stored), step_limit=STEP_LIMIT)
        try:
            outcome = await runtime.next(Context())
        except (Deadlock, NodeFailed, StepLimit) as error:
            event(type(error).__name__)
            return
        if not isinstance(outcome, RunOut.Continue):
            event(type(outcome).__name__)
            return
    raise AssertionError("the flow went beyond its step limit")


async def end_alone(graph: Any) -> object:
    """Return how the flow ends on its own, in the words of the service."""
    runtime = FlowRuntime(graph, MODELS[0](), step_limit=STEP_LIMIT)
    outcome: object = RunOut.Continue()
    try:
        while isinstance(outcome, RunOut.Continue):
            outcome = await runtime.next(Context())
    except (Deadlock, NodeFailed, StepLimit) as error:
        return error.code
    if isinstance(outcome, RunOut.Suspend):
        return {each.tool_id for each in outcome.suspensions}
    assert isinstance(outcome, RunOut.Done)
    return outcome.value.model_dump()


def end_of(response: SystemResponse) -> object:
    """Return how an execution ended, or what it waits for."""
    if response.error is not None:
        return response.error.code
    return {each.tool_id for each in response.suspensions} or response.structured_output


@given(SHAPES)
async def test_a_graph_ends_in_the_service_as_it_does_alone(shape: tuple[bool, list[tuple[str, int]]]) -> None:
    """If a state may be written twice, the order of the nodes counts, which is not that of the waves."""
    is_careful, choices = shape
    try:
        graph = random_builder(is_careful, choices).build()
    except Invalid:
        return
    definition, clock = flow("random")(lambda: graph), VirtualClock()
    here = make_harness(clock, scripted_engine(clock, "default"), flow_steps=STEP_LIMIT)
    pattern = pattern_of(definition)
    response, record = await here.run(flow_request(definition, input={}), pattern)
    assert replay_offline(record, pattern) == len(record.steps)
    visits = graph.max_visits
    event(f"visits known: {visits is not None}")
    if visits is not None and max(visits.values()) == 1:
        assert end_of(response) == await end_alone(graph)
        nodes = [item.event.node for item in record.events if isinstance(item.event, FlowStep)]
        assert all(nodes.count(key) <= 1 for key in visits)
    else:
        assert end_of(response) is None or response.error is None or response.error.code in ENDS


ENDS = {Code.ORCHESTRATION_DEADLOCK, Code.ORCHESTRATION_NODE_FAILED, Code.ORCHESTRATION_ITERATION_LIMIT}


@settings(max_examples=20)
@given(st.tuples(st.just(value=True), CHOICES))
async def test_a_graph_continues_after_a_crash_at_any_commit(shape: tuple[bool, list[tuple[str, int]]]) -> None:
    try:
        graph = random_builder(*shape).build()
    except Invalid:
        return
    definition, clock = flow("random")(lambda: graph), VirtualClock()

    def make(_: int) -> Harness:
        return make_harness(clock, scripted_engine(clock, "default"), flow_steps=12)

    payloads = [{"visits": number} for number in range(20)]
    response = await run_from_every_commit(
        clock, make, flow_request(definition, input={}), pattern_of(definition), payloads
    )
    assert response.error is None or response.error.code in ENDS
