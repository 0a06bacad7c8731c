"""Plans: order, inputs, types and policy."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from portico.domain.contract.request import PlanPolicy, PlanStep
from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.journal.header import EffectiveLimits
from portico.domain.plan.graph import predecessors, topological_order
from portico.domain.plan.parsed_plan import ParsedStep, parse_plan
from portico.domain.plan.plan import resolve_input, validate_plan
from portico.domain.plan.policy import MAX_VIOLATIONS, EffectivePlanPolicy, policy_violations
from portico.domain.plan.steps import STEP_SPECS, InferInput, RerankInput, StepType, ToolInput

ANY = EffectivePlanPolicy(
    50, frozenset(STEP_SPECS), False, None, attempts=3, replicas=16, timeout=600, tools=frozenset({"look", "roll"})
)
BALLOT = {"type": "redundant", "schema": {}, "input": {"messages": [{"role": "user", "content": "x"}], "n": 2}}
LINEAR = EffectivePlanPolicy(50, frozenset(STEP_SPECS), True, None)
CALL: dict[str, Any] = {"name": "roll", "arguments": {}}
SECRET = "sk-canary-7d1f"


def step(name: str = "a", kind: str = "infer", **more: Any) -> PlanStep:
    return PlanStep.model_validate({"name": name, "type": kind} | more)


def parsed(name: str = "a", kind: str = "infer", **more: Any) -> ParsedStep:
    return ParsedStep(step(name, kind, **more))


def plan(*steps: Mapping[str, Any]) -> list[PlanStep]:
    """Return steps named a, b, c, …, of type infer by default."""
    return [step(**{"name": chr(97 + index), **each}) for index, each in enumerate(steps)]


def violations(steps: Sequence[PlanStep], policy: EffectivePlanPolicy = ANY) -> dict[str, str]:
    return dict(policy_violations(parse_plan(steps), policy))


def after(*names: str) -> dict[str, list[str]]:
    return {"depends_on": list(names)}


@pytest.mark.parametrize(
    ("steps", "before", "order"),
    [
        ([], (), ()),
        ([{}], ((),), (0,)),
        ([{}, {}, {}], ((), (0,), (1,)), (0, 1, 2)),
        ([{}, after(), {}], ((), (), (1,)), (0, 1, 2)),
        ([after("c"), after(), after("b")], ((2,), (), (1,)), (1, 2, 0)),
        ([after("b"), after(), after("b")], ((1,), (), (1,)), (1, 0, 2)),
        ([{}, after(), after("b", "a", "b")], ((), (), (1, 0)), (0, 1, 2)),
        ([{}, after("x")], ((), ()), (0, 1)),
        ([after("a"), {}], ((0,), (0,)), ()),
        ([after("b"), {}, after()], ((1,), (0,), ()), (2,)),
    ],
)
def test_a_step_depends_on_those_it_names_or_else_on_the_previous_one(
    steps: list[dict[str, Any]], before: tuple[tuple[int, ...], ...], order: tuple[int, ...]
) -> None:
    assert predecessors(plan(*steps)) == before
    assert parse_plan(plan(*steps)).order == order


NAMES = [f"s{index}" for index in range(7)]
LINKS = st.none() | st.lists(st.sampled_from([*NAMES, "unknown"]), max_size=3)
GRAPHS = st.lists(LINKS, max_size=7).map(
    lambda links: [step(NAMES[index], depends_on=link) for index, link in enumerate(links)]
)


@given(GRAPHS)
def test_the_order_contains_every_step_that_does_not_wait_for_a_cycle(steps: list[PlanStep]) -> None:
    found = parse_plan(steps)
    before, order = found.predecessors, found.order
    for place, index in enumerate(order):
        assert set(before[index]) <= set(order[:place])
    try:
        whole = list(TopologicalSorter(dict(enumerate(before))).static_order())
    except CycleError:
        whole = []
    assert (len(order) == len(steps)) == (sorted(whole) == list(range(len(steps))))
    for index in set(range(len(steps))) - set(order):
        assert not set(before[index]) <= set(order)


@given(GRAPHS)
def test_among_the_steps_that_can_come_next_the_first_of_the_plan_comes_next(steps: list[PlanStep]) -> None:
    before, done = predecessors(steps), list[int]()
    for index in topological_order(predecessors(steps)):
        could = [each for each in range(len(steps)) if each not in done and set(before[each]) <= set(done)]
        assert index == min(could)
        done.append(index)


@given(GRAPHS)
def test_the_order_is_violated_only_by_unknown_names_and_real_cycles(steps: list[PlanStep]) -> None:
    found = [(path, message) for path, message in policy_violations(parse_plan(steps), ANY) if path != "steps"]
    assert {path.rpartition(".")[2] for path, _ in found} <= {"depends_on"}
    names = {each.name for each in steps}
    unknown = [name for each in steps for name in set(each.depends_on or ()) if name not in names]
    own = [each for each in steps if each.depends_on and each.name in each.depends_on]
    assert sum("no step" in message for _, message in found) == len(unknown)
    assert sum("itself" in message and "must not" in message for _, message in found) == len(own)
    circles = [(path, message) for path, message in found if "waits for itself" in message]
    assert len(circles) == (len(topological_order(predecessors(steps))) < len(steps))
    for path, message in circles:
        way = [int(path.split(".")[1]), *(NAMES.index(name) for name in message.split("'")[1::2])]
        for one, other in zip(way, [*way[1:], way[0]], strict=True):
            assert other in predecessors(steps)[one]


@given(GRAPHS)
def test_a_linear_plan_is_a_chain(steps: list[PlanStep]) -> None:
    before = predecessors(steps)
    found = [message for _, message in policy_violations(parse_plan(steps), LINEAR) if "branches" in message]
    followed = [each for earlier in before for each in earlier]
    chain = [len(each) for each in before].count(0) <= 1 and len(set(followed)) == len(followed)
    chain = chain and all(len(each) <= 1 for each in before)
    if len(topological_order(predecessors(steps))) == len(steps):
        assert chain == (not found)
    else:
        assert not found


def test_a_valid_plan_has_no_violations() -> None:
    assert violations(plan({}, {"type": "tool", "input": CALL}, after("a", "b"))) == {}
    assert validate_plan(parse_plan(plan({}, {"type": "tool", "input": CALL}, after("a", "b"))), ANY) is None


@pytest.mark.parametrize(
    ("steps", "path", "message"),
    [
        ([], "steps", "must be at least 1"),
        ([{}] * 51, "steps", "must be at most 50"),
        ([{}, {"name": "a"}], "steps.1.name", "stands twice in the plan"),
        ([{"type": "zork"}], "steps.0.type", "must be one of infer, tool, retrieve, rerank, validate, redundant"),
        ([{"type": "Infer"}], "steps.0.type", "must be one of infer, tool, retrieve, rerank, validate, redundant"),
        ([{"type": "retrieve", "max_chunks": 51}], "steps.0.max_chunks", "must be an integer from 1 to 50"),
        ([after("a")], "steps.0.depends_on", "waits for itself"),
        ([{}, after("x")], "steps.1.depends_on", "there is no step 'x'"),
        ([after("b"), after("a")], "steps.0.depends_on", "waits for itself by way of 'b'"),
        ([{"colour": 1}], "steps.0", "'colour' is no key of a step of type infer"),
        ([{"attempts": 4}], "steps.0.attempts", "must be at most 3"),
        ([{"type": "redundant", "schema": {}, "n": 17}], "steps.0.n", "must be at most 16"),
        ([{"timeout": 1e9}], "steps.0.timeout", "must be at most 600"),
        ([{"type": "redundant", "schema": {}, "quorum": 4}], "steps.0.quorum", "must be at most the 3 replicas"),
        ([{**BALLOT, "n": 5, "quorum": 4}], "steps.0.quorum", "must be at most the 2 replicas"),
        (
            [{**BALLOT, "input": {**BALLOT["input"], "quorum": 3}}],
            "steps.0.input.quorum",
            "must be at most the 2 replicas",
        ),
        ([{"type": "redundant", "input": {"messages": [], "n": 17, "schema": {}}}], "steps.0.input.n", "at most 16"),
        ([{"type": "redundant"}], "steps.0", "needs schema"),
        ([{"type": "validate", "input": {"schema": {}}}], "steps.0", "needs rules or schema"),
        ([{"type": "tool", "input": {"name": "zap", "arguments": {}}}], "steps.0.input.name", "must name a tool"),
        ([{"tools": ["look", "zap"]}], "steps.0.tools", "must name a tool"),
        ([{"input": {"messages": [], "tools": ["zap"]}}], "steps.0.input.tools", "must name a tool"),
        ([{"name": "a\u202eb"}], "steps.0.name", "must hold no character that hides or controls text"),
    ],
)
def test_a_violation_has_its_path_and_message(steps: list[dict[str, Any]], path: str, message: str) -> None:
    found = violations(plan(*steps))
    assert message in found[path]
    refusal = validate_plan(parse_plan(plan(*steps)), ANY)
    assert refusal is not None
    assert refusal.code is Code.ORCHESTRATION_PLAN_REFUSED
    assert {"path": path, "message": found[path]} in refusal.details["violations"]


def test_all_violations_of_a_plan_are_reported_at_once() -> None:
    steps = plan({"type": "zork"}, {"name": "a", "timeout": 0}, {"colour": 1, **after("x")}, after("d"))
    assert list(violations(steps)) == [
        *("steps.1.name", "steps.2.depends_on", "steps.3.depends_on"),
        *("steps.0.type", "steps.1.timeout", "steps.2"),
    ]


def test_a_policy_can_limit_types_and_steps_and_require_a_linear_plan() -> None:
    policy = EffectivePlanPolicy(2, frozenset({"tool"}), True, None)
    assert violations(plan({}, {}, {}), policy) == {"steps": "must be at most 2"}
    assert violations(plan({}, {"type": "tool", "input": CALL}), policy) == {"steps.0.type": "infer is not allowed"}
    assert violations(plan({}, after()), LINEAR) == {
        "steps.1.depends_on": "must be the one step before it: branches are not allowed"
    }
    assert violations(plan({}, {}, after("a", "b")), LINEAR) != {}
    assert violations(plan(after("b"), after()), LINEAR) == {}


def test_a_policy_without_limits_allows_everything() -> None:
    open_policy = EffectivePlanPolicy(1000, frozenset(STEP_SPECS), False, None)
    steps = [step(str(index), attempts=99, tools=["anything"]) for index in range(1000)]
    assert policy_violations(parse_plan(steps), open_policy) == []


def test_the_policy_of_a_request_is_limited_by_the_effective_limits() -> None:
    bounds = EffectiveLimits(600, 20, 32, 1, attempts=2, replicas=4, plan_steps=10)
    assert EffectivePlanPolicy.from_request(None, bounds) == EffectivePlanPolicy(
        10, frozenset(STEP_SPECS), False, None, 2, 4, 600
    )
    asked = PlanPolicy(max_steps=3, allowed_step_types=["infer"], require_linear=True, timeout_per_step=1.5)
    assert EffectivePlanPolicy.from_request(asked, bounds, frozenset({"look"})) == EffectivePlanPolicy(
        3, frozenset({"infer"}), True, 1.5, attempts=2, replicas=4, timeout=600, tools=frozenset({"look"})
    )
    assert EffectivePlanPolicy.from_request(PlanPolicy(max_steps=11), bounds).max_steps == 10


def test_violations_do_not_quote_the_contents_of_a_plan() -> None:
    canary = {SECRET: SECRET, "attempts": SECRET, "rules": [{"type": SECRET}], "tools": [SECRET], "timeout": SECRET}
    steps = plan(
        {"type": SECRET},
        {"schema": SECRET, "input": {SECRET: SECRET}, **{key: canary[key] for key in ("attempts", "rules", "tools")}},
        {"type": "tool", "input": {"name": SECRET, "arguments": SECRET}},
        {"type": "redundant", "voting": SECRET, "input": {"messages": SECRET, "n": SECRET}},
    )
    assert SECRET not in str(policy_violations(parse_plan(steps), ANY))
    assert len(policy_violations(parse_plan(steps), ANY)) > 6


def test_the_number_of_reported_violations_is_limited() -> None:
    steps = [step("a", depends_on=[f"x{number}" for number in range(10_000)]) for _ in range(50)]
    assert len(policy_violations(parse_plan(steps), ANY)) == MAX_VIOLATIONS


def test_ten_thousand_steps_are_one_violation() -> None:
    steps = [step(f"s{index}", "zork", depends_on=[f"s{(index + 1) % 10_000}"]) for index in range(10_000)]
    assert policy_violations(parse_plan(steps), ANY) == [("steps", "must be at most 50")]
    chain = [step(f"s{index}") for index in range(10_000)]
    assert topological_order(predecessors(chain)) == tuple(range(10_000))


def test_a_cycle_of_all_steps_is_found() -> None:
    steps = [step(f"s{index}", depends_on=[f"s{(index + 1) % 50}"]) for index in range(50)]
    ((path, message),) = policy_violations(parse_plan(steps), ANY)
    assert path == "steps.0.depends_on"
    assert message.count("'s") == 49


@pytest.mark.parametrize("name", ["é", "e\u0301", "步骤 1", "🎲", "a.b/c", "ä" * 128])
def test_names_may_use_any_script(name: str) -> None:
    steps = [step(name), step("b", depends_on=[name])]
    assert policy_violations(parse_plan(steps), ANY) == []
    assert predecessors(steps) == ((), (0,))


def test_names_that_look_alike_are_different() -> None:
    assert policy_violations(parse_plan([step("é"), step("e\u0301"), step("c", depends_on=["é"])]), ANY) == []


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "\u200bname", "x\u2028y", "\u202ename"])
def test_names_with_invisible_or_control_characters_are_rejected(name: str) -> None:
    assert [path for path, _ in policy_violations(parse_plan([step(name)]), ANY)] == ["steps.0.name"]


# The rows


def test_every_supported_step_type_has_a_row() -> None:
    assert set(STEP_SPECS) == set(StepType)


KEYS: Mapping[str, tuple[Any, Sequence[Any]]] = {
    "schema": ({"type": "object"}, ["x", [], 1]),
    "rules": (["not_empty", {"type": "length", "max": 9}], ["x", {}, [{"type": "zork"}], [{"type": "length"}], [1]]),
    "attempts": (2, [0, -1, 1.5, "2", True]),
    "timeout": (0.5, [0, -1, "1", float("inf"), float("nan")]),
    "tools": (["look"], ["look", [1], ["a b"], {}]),
    "n": (3, [0, "3", 2.0]),
    "voting": ("unanimity", ["all", 1]),
    "quorum": (2, [0, "x"]),
    "min_confidence": (0.5, [-0.1, 1.1, "x"]),
    "top_k": (1, [0, "x"]),
    "max_chunks": (50, [0, 51, "x"]),
    "min_score": (1, [2, "x"]),
}
"""A valid value for every option, and some invalid ones."""
OWN_KEYS: Mapping[str, str] = {
    "infer": "schema rules attempts timeout tools",
    "tool": "timeout",
    "retrieve": "timeout max_chunks min_score",
    "rerank": "timeout top_k min_score",
    "validate": "schema rules timeout",
    "redundant": "schema rules timeout tools n voting quorum min_confidence",
    "subplan": "timeout",
}
NEEDED: Mapping[str, dict[str, Any]] = {"validate": {"rules": []}, "redundant": {"schema": {}}}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", STEP_SPECS)
def test_a_step_may_have_only_the_options_of_its_type_with_valid_values(kind: str, key: str) -> None:
    def found(value: Any) -> dict[str, str]:
        return violations([step("a", kind, **NEEDED.get(kind, {}) | {key: value})])

    good, bad = KEYS[key]
    assert STEP_SPECS[kind].options == set(OWN_KEYS[kind].split())
    if key in OWN_KEYS[kind].split():
        assert found(good) == {}
        assert all(list(found(value)) == [f"steps.0.{key}"] for value in bad)
    else:
        assert list(found(good).values()) == [f"'{key}' is no key of a step of type {kind}"]


def test_an_option_that_is_null_counts_as_absent() -> None:
    assert violations([step(schema=None, rules=None, attempts=None, colour=None)]) == {}
    assert "steps.0" in violations([step(kind="validate", schema=None)])
    assert parsed(schema=None, timeout=2).options.timeout == 2


USER: dict[str, Any] = {"role": "user", "content": "hi"}
FITTING: Mapping[str, Sequence[Any]] = {
    "infer": ["", "hi", {"messages": [USER]}, {"messages": [USER], "schema": {}, "tools": ["look"]}],
    "tool": [CALL, {"name": "look", "arguments": {"deep": [1, {"x": None}]}}],
    "retrieve": ["lamp", {"query": "lamp"}, {"query": "lamp", "max_chunks": 50, "min_score": 1}],
    "rerank": [
        {"query": "q", "candidates": []},
        {"query": "q", "candidates": ["x", {"content": "y", "score": 0.5, "source": "s"}], "top_k": 1, "min_score": 0},
    ],
    "validate": ["", 0, False, [], {"schema": 1}, {"any": {"thing": None}}],
    "subplan": ["hi"],
    "redundant": ["hi", {"messages": [USER], "schema": {}, "n": 2, "voting": "majority", "quorum": 1, "tools": []}],
}
UNFIT: Mapping[str, Sequence[Any]] = {
    "infer": [
        1,
        [],
        {},
        {"messages": []},
        {"messages": "hi"},
        {"messages": [USER], "n": 2},
        {"messages": [{}]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "y"}]},
        {"messages": [USER], "schema": "x"},
    ],
    "tool": [
        "roll",
        [],
        {},
        {"name": "roll"},
        {"arguments": {}},
        CALL | {"x": 1},
        {"name": "roll", "arguments": []},
        {"name": "a b", "arguments": {}},
        {"name": 1, "arguments": {}},
    ],
    "retrieve": [1, ["lamp"], {}, {"max_chunks": 1}, {"query": "q", "max_chunks": 51}, {"query": "q", "top_k": 1}],
    "rerank": [
        "q",
        ["x"],
        {"query": "q"},
        {"candidates": []},
        {"query": 1, "candidates": []},
        {"query": "q", "candidates": [1]},
        {"query": "q", "candidates": [{"text": "x"}]},
    ],
    "validate": [],
    "subplan": [1, {}, ["hi"], {"messages": [USER]}],
    "redundant": [1, {}, {"messages": [USER], "n": 0}, {"messages": [USER], "voting": "all"}],
}


@pytest.mark.parametrize("kind", STEP_SPECS)
def test_inputs_must_match_the_type_of_their_step(kind: str) -> None:
    policy = EffectivePlanPolicy(50, frozenset(STEP_SPECS), False, None)
    for value in FITTING[kind]:
        assert validate_plan(parse_plan([step("a", kind, input=value, **NEEDED.get(kind, {}))]), policy) is None, value
    for value in UNFIT[kind]:
        steps = [step("z", "infer"), step("a", kind, input=value, **NEEDED.get(kind, {}))]
        refusal = validate_plan(parse_plan(steps), policy)
        assert refusal is not None, value
        assert refusal.code is Code.ORCHESTRATION_STEP_MISMATCH
        expected = STEP_SPECS[kind].expected
        assert refusal.details == {
            "step": "a",
            "expected": expected,
            "violations": [{"path": "steps.1.input", "message": f"must be {expected}"}],
        }
        with pytest.raises(OrchestrationFailure) as caught:
            resolve_input(ParsedStep(steps[1]), {}, "hi")
        assert caught.value.details == {"step": "a", "expected": expected}


# What a step is given, and whether that can ever fit


def test_the_input_of_a_step_is_its_own_or_the_previous_output_or_the_request() -> None:
    assert resolve_input(parsed(input="own"), {"a": "before"}, "request") == "own"
    assert resolve_input(parsed(), {"a": "before"}, "request") == "before"
    assert resolve_input(parsed(), {}, "request") == "request"
    assert resolve_input(parsed("v", "validate"), {"a": 1, "b": [2]}, "request") == {"a": 1, "b": [2]}
    assert resolve_input(parsed("v", "validate"), {"a": None}, "request") is None
    assert resolve_input(parsed("t", "tool"), {"a": CALL}, "x") == ToolInput(name="roll", arguments={})
    assert resolve_input(parsed("t", "tool"), {"name": "roll", "arguments": {"x": 1}}, "x") == ToolInput(
        name="roll", arguments={"x": 1}
    )


def test_several_outputs_are_the_input_of_a_model_as_json_unless_they_are_a_conversation() -> None:
    assert resolve_input(parsed(), {"b": "é", "a": [1]}, "request") == '{"b":"é","a":[1]}'
    conversation = resolve_input(parsed(), {"messages": [USER], "schema": {}}, "request")
    assert isinstance(conversation, InferInput)
    assert conversation.messages[0].text == "hi"


@pytest.mark.parametrize("value", [1, None, [], {"any": "thing"}, [{"content": "x"}]])
def test_a_single_output_is_the_input_of_a_model_only_if_it_is_a_text_or_a_conversation(value: Any) -> None:
    with pytest.raises(OrchestrationFailure) as caught:
        resolve_input(parsed("b"), {"a": value}, "request")
    assert caught.value.code is Code.ORCHESTRATION_STEP_MISMATCH


TEXT, VALUE = {"type": "infer"}, {"type": "infer", "schema": {}}
ITEMS = {"type": "rerank", "input": {"query": "q", "candidates": []}}
TOOL, RERANK, RESULT = {"type": "tool"}, {"type": "rerank"}, {"type": "tool", "input": CALL}
RETRIEVE: dict[str, Any] = {"type": "retrieve"}
CHECK, VOTE = {"type": "validate", "rules": []}, {"type": "redundant", "schema": {}}


@pytest.mark.parametrize(
    ("steps", "unfit"),
    [
        ([TEXT, TEXT, RESULT, TEXT], []),
        ([TOOL], [0]),
        ([RERANK], [0]),
        ([CHECK, TEXT], []),
        ([TEXT, TOOL], [1]),
        ([RESULT, TOOL], [1]),
        ([VALUE, TOOL], []),
        ([VALUE, RERANK], []),
        ([VALUE, TEXT], []),
        ([TEXT, RERANK], [1]),
        ([ITEMS, TEXT], [1]),
        ([ITEMS, RERANK], [1]),
        ([ITEMS, VOTE], [1]),
        ([ITEMS, CHECK, TEXT], [2]),
        ([VOTE, TOOL], []),
        ([{**CHECK, "input": "a text"}, TOOL], [1]),
        ([{**CHECK, "input": CALL}, TOOL], []),
        ([TEXT, after("a") | TEXT, TOOL | after("a", "b")], [2]),
        ([TEXT, TEXT, TEXT | after("a", "b")], []),
        ([{"name": "query"} | TEXT, {"name": "candidates"} | VALUE, RERANK | after("query", "candidates")], []),
        ([{"name": "query"} | TEXT, {"name": "candidates"} | TEXT, RERANK | after("query", "candidates")], [2]),
        ([{"name": "name"} | TEXT, {"name": "arguments"} | VALUE, TOOL | after("name", "arguments")], []),
        ([{"name": "name"} | TEXT, {"name": "arguments"} | TEXT, TOOL | after("name", "arguments")], [2]),
        ([TOOL | after("b"), VALUE | after()], []),
        ([TOOL | after("b"), TEXT | after()], [0]),
        ([TEXT, TOOL, RERANK], [1, 2]),
        ([RETRIEVE, RERANK], []),
        ([RETRIEVE, RERANK, {"name": "c"} | RERANK | after("b")], [2]),
        ([RETRIEVE, TEXT], [1]),
        ([RETRIEVE, RETRIEVE | {"name": "b"}], [1]),
        ([{"name": "query"} | TEXT, RETRIEVE | {"name": "candidates"}, RERANK | after("query", "candidates")], []),
    ],
)
def test_type_mismatches_are_found_before_the_plan_runs(steps: list[dict[str, Any]], unfit: list[int]) -> None:
    found = parse_plan(plan(*steps))
    assert [index for index, step in enumerate(found.steps) if not found.types[step].fits] == unfit


def test_chunks_that_a_search_found_are_ranked_by_its_query() -> None:
    chunks = [{"content": "lamp", "source": "a#1", "score": 0.5}]
    found = resolve_input(parsed("b", "rerank"), {"a": chunks}, "request", "lamp")
    assert isinstance(found, RerankInput)
    assert (found.query, len(found.candidates)) == ("lamp", 1)
    with pytest.raises(OrchestrationFailure):
        resolve_input(parsed("b", "rerank"), {"a": chunks}, "request")


OUTPUTS: Mapping[str, Sequence[Any]] = {
    "text": ["", "hi", "[]"],
    "items": [[], ["x"], [{"content": "x"}]],
    "value": ["hi", 1, None, [], ["x"], {}, CALL, {"messages": [USER]}, {"query": "q", "candidates": []}],
}


@pytest.mark.parametrize("kind", STEP_SPECS)
@pytest.mark.parametrize("known", OUTPUTS)
def test_a_rejected_type_never_matches_and_an_accepted_one_may(known: Any, kind: str) -> None:
    fits = []
    for value in OUTPUTS[known]:
        try:
            resolve_input(parsed("b", kind), {"a": value}, "request")
            fits.append(value)
        except OrchestrationFailure:
            continue
    assert STEP_SPECS[kind].accepts(known) == bool(fits)


def test_all_type_mismatches_are_reported_and_the_first_names_its_step() -> None:
    refusal = validate_plan(parse_plan(plan(TEXT, TOOL, RERANK)), ANY)
    assert refusal is not None
    assert refusal.details["step"] == "b"
    assert [each["path"] for each in refusal.details["violations"]] == ["steps.1.input", "steps.2.input"]


def test_a_large_input_is_not_copied() -> None:
    large = {"messages": [{"role": "user", "content": "x" * 1_000_000}]}
    steps = [step(input=large), step("b", "validate", rules=[], input=[large] * 10)]
    assert validate_plan(parse_plan(steps), ANY) is None


def test_an_input_that_is_nested_too_deeply_is_rejected() -> None:
    deep: Any = "x"
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(ValidationError):
        step(input=deep)


# What else a step says


def test_the_schema_of_the_input_takes_precedence_over_that_of_the_step() -> None:
    assert parsed().contract is None
    own = parsed(schema={"type": "string"}, rules=["not_empty"], input={"messages": [USER], "schema": {"type": "null"}})
    for work in (None, resolve_input(own, {}, "")):
        found = own.contract_for(work)
        assert found is not None
        assert (found.schema_, found.rules) == ({"type": "null"}, ["not_empty"])
    chained = ParsedStep(own.plan_step.model_copy(update={"input": None}))
    found = chained.contract_for("a text")
    assert found is not None
    assert found.schema_ == {"type": "string"}
    found = chained.contract_for(InferInput.model_validate({"messages": [USER], "schema": {}}))
    assert found is not None
    assert found.schema_ == {}
    assert parsed("v", "validate", input={"schema": {}, "messages": [USER]}).contract is None


def test_the_tools_that_a_plan_names_are_found_wherever_they_may_be() -> None:
    assert list(parsed(tools=["a", 1], input={"messages": [], "tools": ["b"], "name": "c"}).named_tools) == [
        (".tools", "a"),
        (".input.tools", "b"),
    ]
    assert list(parsed("t", "tool", input=CALL).named_tools) == [(".input.name", "roll")]
    assert list(parsed("t", "tool", input={"name": 1}).named_tools) == []
    assert list(parsed("v", "validate", input={"name": "roll", "tools": ["x"]}).named_tools) == []
    assert list(parsed(tools="look", input=["tools"]).named_tools) == []
