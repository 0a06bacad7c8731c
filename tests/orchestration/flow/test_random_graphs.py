"""Random graphs: a graph that can be built ends as flows end, and never in an exception of another kind."""

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from app.orchestration.flow import (
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
)

MODELS: list[type[BaseModel]] = [create_model(f"S{number}", visits=(int, 0)) for number in range(20)]
END: type[BaseModel] = create_model("End", visits=(int, 0))
STEP_LIMIT = 60
CHOICES = st.lists(
    st.tuples(st.sampled_from(["work", "asking", "failing", "either", "either", "fork", "join"]), st.integers(0, 19)),
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

    function: Any = {"either": either, "fork": fork, "join": join}.get(kind, work)
    names = ["value", "other"][: len(inputs)]
    function.__annotations__ = {**dict(zip(names, inputs, strict=True)), "return": returns}
    return getattr(builder, kind if kind in {"either", "fork", "join"} else "work")(function)


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
