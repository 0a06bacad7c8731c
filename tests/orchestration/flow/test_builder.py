"""Tests of the builder of flows: what it reports, and the graph it makes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from portico.domain.failures import Code
from portico.orchestration.flow import AgentConfig, Context, FlowGraph, Invalid
from tests.support import example_flows as examples


class A(BaseModel):
    """A state."""


class B(BaseModel):
    """A state."""


class C(BaseModel):
    """A state."""


class D(BaseModel):
    """A state."""


class Twin(BaseModel):
    model_config = ConfigDict(title="A")


class Nested(BaseModel):
    model_config = ConfigDict(title="Outer::Inner")


def function(*inputs: type, returns: Any, is_async: bool = False) -> Any:
    """Return a node function with these annotations."""

    async def work(*values: object) -> Any: ...
    def pure(*values: object) -> Any: ...

    names = [f"input{number}" for number in range(len(inputs))]
    source = f"{'async ' if is_async else ''}def node({', '.join([*names, 'context'])}): ..."
    namespace: dict[str, Any] = {}
    exec(source, namespace)  # noqa: S102 - a function with a signature of our own
    node = namespace["node"]
    node.__annotations__ = {**dict(zip(names, inputs, strict=True)), "return": returns}
    return node


def work(source: type, target: type) -> Any:
    return function(source, returns=target, is_async=True)


GRAPHS: dict[str, tuple[Callable[[], Any], str]] = {
    "no entry": (
        lambda: FlowGraph.builder(A, C).work(work(B, C)),
        "A: the entry has no node; add one that takes it",
    ),
    "unreachable": (
        lambda: FlowGraph.builder(A, C).work(work(A, C)).work(work(B, C)),
        "B: it cannot be reached from the entry; connect it, or remove it",
    ),
    "duplicate": (
        lambda: FlowGraph.builder(A, C).work(work(A, C)).work(work(A, C)),
        "A: more than one node takes it; give each node an input of its own",
    ),
    "own input": (
        lambda: FlowGraph.builder(A, B).work(work(A, A)),
        "A: it returns its own input; return another model",
    ),
    "no path to the end": (
        lambda: FlowGraph.builder(A, C).either(function(A, returns=B | C)).work(work(B, D)).work(work(D, B)),
        "B: no path leads from it to the end; add one, such as an either",
    ),
    "two terminals": (
        lambda: FlowGraph.builder(A, C).either(function(A, returns=B | C)),
        "B: it ends the flow, which must end in C; add a node that takes it",
    ),
    "other terminal": (
        lambda: FlowGraph.builder(A, C).work(work(A, B)),
        "C: no node produces the flow's output",
    ),
    "output taken": (
        lambda: FlowGraph.builder(A, B).work(work(A, B)).work(work(B, C)),
        "B: the flow's output must not be the input of a node",
    ),
    "either of one": (
        lambda: FlowGraph.builder(A, B).either(function(A, returns=B)),
        "node: it must return exactly two alternatives, such as `-> Good | Poor`",
    ),
    "either of three": (
        lambda: FlowGraph.builder(A, B).either(function(A, returns=B | C | D)),
        "node: it must return exactly two alternatives, such as `-> Good | Poor`",
    ),
    "either of none": (
        lambda: FlowGraph.builder(A, B).either(function(A, returns=B | None)),
        "node: each alternative must be a pydantic model, not NoneType",
    ),
    "either of twins": (
        lambda: FlowGraph.builder(B, C).either(function(B, returns=A | Twin)),
        "B: its outputs must have distinct names",
    ),
    "fork of one": (
        lambda: FlowGraph.builder(A, B).fork(function(A, returns=tuple[B])),
        "node: it must return a tuple of two or more models, such as `-> tuple[Summary, Sources]`",
    ),
    "fork to nowhere": (
        lambda: FlowGraph.builder(A, D).fork(function(A, returns=tuple[B, C])).work(work(B, D)),
        "A: no node takes its output C; add one, or drop the output",
    ),
    "fork of the same": (
        lambda: FlowGraph.builder(A, C).fork(function(A, returns=tuple[B, B])).work(work(B, C)),
        "A: its outputs must have distinct names",
    ),
    "join of the same": (
        lambda: FlowGraph.builder(A, B).join(function(A, A, returns=B)),
        "A+A: it must take two distinct inputs",
    ),
    "join without a producer": (
        lambda: FlowGraph.builder(A, D).work(work(A, B)).join(function(B, C, returns=D)),
        "B+C: no node produces its input C; add one",
    ),
    "join to its input": (
        lambda: FlowGraph.builder(A, D).fork(function(A, returns=tuple[B, C])).join(function(B, C, returns=C)),
        "B+C: it returns one of its inputs; return another model",
    ),
    "two models of a name": (
        lambda: FlowGraph.builder(A, C).work(work(A, B)).work(work(B, Twin)).work(work(Twin, C)),
        "A: two models have this name; rename one, or give it another title",
    ),
    "separator": (
        lambda: FlowGraph.builder(A, Nested).work(work(A, Nested)),
        "Outer::Inner: a name must not contain ::; give the model another title",
    ),
    "submit in the box": (
        lambda: FlowGraph.builder(A, B).agent(A, B, AgentConfig("", "m").with_tools(["submit"])),
        "A: its tools contain submit, which is added to them; remove it",
    ),
    "tool twice": (
        lambda: FlowGraph.builder(A, B).agent(A, B, AgentConfig("", "m").with_tools(["x", "x"])),
        "A: its tools contain x twice; remove one",
    ),
    "long tool id": (
        lambda: FlowGraph.builder(A, B).agent(A, B, AgentConfig("", "m").with_tools(["x" * 254])),
        "A: node::tool must be at most 256 characters; shorten the name",
    ),
    "URL": (
        lambda: FlowGraph.builder(A, B).agent(A, B, AgentConfig("", "openai://gpt-4o")),
        "A: its model must be the name of a route or an engine, not a URL",
    ),
    "sync work": (
        lambda: FlowGraph.builder(A, B).work(function(A, returns=B)),
        "node: it must be `async def`",
    ),
    "async either": (
        lambda: FlowGraph.builder(A, B).either(function(A, returns=B | C, is_async=True)),
        "node: it must be a plain function, without `async`",
    ),
    "no context": (
        lambda: FlowGraph.builder(A, B).join(function(A, returns=B)),
        "node: it must take its 2 inputs and the context",
    ),
    "unresolvable": (
        lambda: FlowGraph.builder(A, B).work(function(A, returns="Unknown", is_async=True)),
        "node: its annotations cannot be resolved: name 'Unknown' is not defined",
    ),
    "no model": (
        lambda: FlowGraph.builder(A, B).work(function(A, returns=str, is_async=True)),
        "node: its result must be a pydantic model, not str",
    ),
    "flow twice": (
        lambda: FlowGraph.builder(examples.Text, examples.Count).flow(examples.linear()).flow(examples.linear()),
        "Text::Words: more than one node takes it; give each node an input of its own",
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_build_names_the_node_and_the_remedy(name: str) -> None:
    make, problem = GRAPHS[name]
    with pytest.raises(Invalid) as raised:
        make().build()
    assert problem in raised.value.problems
    assert raised.value.code is Code.CONFIG_FLOW_INVALID


def test_build_reports_all_problems_at_once() -> None:
    builder = FlowGraph.builder(A, C).work(function(A, returns=B)).either(function(A, returns=B)).work(work(B, B))
    with pytest.raises(Invalid) as raised:
        builder.build()
    assert raised.value.problems == (
        "node: it must be `async def`",
        "node: it must return exactly two alternatives, such as `-> Good | Poor`",
        "B: it returns its own input; return another model",
        "A: the entry has no node; add one that takes it",
        "B: it cannot be reached from the entry; connect it, or remove it",
        "C: no node produces the flow's output",
        "B: no path leads from it to the end; add one, such as an either",
    )


def test_an_either_may_return_its_own_input() -> None:
    assert FlowGraph.builder(A, B).either(function(A, returns=A | B)).build().entry.key == "A"


def test_the_fingerprint_covers_keys_kinds_edges_schemas_and_idempotence() -> None:
    first, other = work(A, B), work(A, B)
    graph = FlowGraph.builder(A, B).work(first).build()
    assert FlowGraph.builder(A, B).work(other).build().fingerprint == graph.fingerprint
    changed = [
        FlowGraph.builder(A, B).work(first, idempotent=False).build(),
        FlowGraph.builder(A, B).agent(A, B, AgentConfig("", "m")).build(),
        FlowGraph.builder(A, B).work(work(A, C)).work(work(C, B)).build(),
    ]
    assert len({each.fingerprint for each in [graph, *changed]}) == 4


def test_the_graph_is_shown_as_json_and_as_mermaid() -> None:
    graph = examples.split_and_merge()
    assert graph.as_json()["nodes"][0] == {
        "key": "Text",
        "kind": "fork",
        "inputs": ["Text"],
        "outputs": ["Left", "Right"],
    }
    lines = graph.as_mermaid().splitlines()
    assert lines[:2] == ["flowchart TD", '    s0(["Text"])']
    assert "    s0 --> n0" in lines


SIGNATURES = Path(__file__).parent / "wrong_signatures.py"


def test_a_wrong_signature_is_an_error_of_the_type_checker() -> None:
    expected = [
        number
        for number, line in enumerate(SIGNATURES.read_text().splitlines(), 1)
        if line.rstrip().endswith("# wrong")
    ]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", "--cache-dir=.mypy_cache", SIGNATURES],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    found = [int(line.split(":")[1]) for line in checked.stdout.splitlines() if ": error:" in line]
    assert sorted(set(found)) == expected, checked.stdout


async def _unused(text: examples.Text, context: Context) -> examples.Count:
    return examples.Count(count=0)
