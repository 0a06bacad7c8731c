"""Tests of the runtime of flows, on its own."""

import subprocess
import sys
from typing import Any, cast

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code
from portico.orchestration.flow import (
    Context,
    Deadlock,
    DeserializeError,
    FlowError,
    FlowGraph,
    FlowRuntime,
    FlowSnapshot,
    NodeFailed,
    ResumeRequired,
    ResumptionMismatch,
    RunOut,
    SerializeError,
    SnapLoadError,
    StepLimit,
    ToolError,
    UnexpectedResumption,
)
from tests.support import example_flows as examples
from tests.support.example_flows import (
    Claim,
    Count,
    Invoice,
    Order,
    Payment,
    Shipment,
    Summary,
    Text,
    Verdict,
)

CONTEXT = Context()


async def run(runtime: FlowRuntime[Any, Any]) -> Any:
    """Return the first outcome that is not Continue."""
    while isinstance(outcome := await runtime.next(CONTEXT), RunOut.Continue):
        pass
    return outcome


async def keys_of_all_steps(runtime: FlowRuntime[Any, Any]) -> list[list[str]]:
    keys = [[key for key, _ in runtime.snapshot().state]]
    while isinstance(await runtime.next(CONTEXT), RunOut.Continue):
        keys.append([key for key, _ in runtime.snapshot().state])
    return keys


async def test_a_linear_flow_takes_one_node_per_step_and_then_is_done() -> None:
    runtime = FlowRuntime(examples.linear(), Text(text="a b c"))
    assert await keys_of_all_steps(runtime) == [["Text"], ["Words"], ["Count"]]
    assert await runtime.next(CONTEXT) == RunOut.Done(Count(count=3))


async def test_the_first_fireable_node_from_the_head_fires_and_outputs_go_to_the_tail() -> None:
    runtime = FlowRuntime(examples.split_and_merge(), Text(text="some words"))
    assert await keys_of_all_steps(runtime) == [
        ["Text"],
        ["Left", "Right"],
        ["Right", "Longest"],
        ["Longest", "Letters"],
        ["Summary"],
    ]
    assert await runtime.next(CONTEXT) == RunOut.Done(Summary(longest="words", letters=9))


async def test_a_cycle_ends_when_the_either_says_so() -> None:
    runtime = FlowRuntime(examples.debate(), Claim(claim="it works"))
    assert await run(runtime) == RunOut.Done(Verdict(claim="it works", rounds=3))


async def test_the_step_limit_ends_a_cycle_and_leaves_the_state() -> None:
    runtime = FlowRuntime(examples.debate(), Claim(claim="it works"), step_limit=2)
    with pytest.raises(StepLimit) as raised:
        await run(runtime)
    assert (raised.value.code, raised.value.limit) == (Code.ORCHESTRATION_ITERATION_LIMIT, 2)
    assert [key for key, _ in runtime.snapshot().state] == ["Objection"]


async def test_a_work_node_asks_and_the_answer_is_its_output() -> None:
    runtime = FlowRuntime(examples.approval(), Invoice(number="7", amount=500))
    outcome = await run(runtime)
    assert isinstance(outcome, RunOut.Suspend)
    assert (outcome.tool_id, outcome.value) == ("Invoice", {"question": "Pay this invoice?", "amount": 500})
    assert [each.kind for each in outcome.suspensions] == [SuspensionKind.FLOW]
    with pytest.raises(ResumeRequired):
        await runtime.next(CONTEXT)
    assert await runtime.resume(CONTEXT, "Invoice", {"by": "ada"}) == RunOut.Continue()
    assert await run(runtime) == RunOut.Done(Payment(receipt="paid, approved by ada"))


async def test_wrong_double_early_and_late_resumes_change_nothing() -> None:
    runtime = FlowRuntime(examples.approval(), Invoice(number="7", amount=500))
    with pytest.raises(UnexpectedResumption):
        await runtime.resume(CONTEXT, "Invoice", {"by": "early"})
    await run(runtime)
    before = runtime.snapshot()
    with pytest.raises(ResumptionMismatch):
        await runtime.resume(CONTEXT, "Payment", {"by": "wrong"})
    with pytest.raises(DeserializeError, match=r"Approved: \$\.by: is required"):
        await runtime.resume(CONTEXT, "Invoice", {"from": "wrong"})
    assert runtime.snapshot() == before
    await runtime.resume(CONTEXT, "Invoice", {"by": "ada"})
    with pytest.raises(UnexpectedResumption):
        await runtime.resume(CONTEXT, "Invoice", {"by": "double"})
    assert await run(runtime) == RunOut.Done(Payment(receipt="paid, approved by ada"))
    with pytest.raises(UnexpectedResumption):
        await runtime.resume(CONTEXT, "Invoice", {"by": "late"})


async def test_a_nested_flow_keeps_its_entry_and_output_and_prefixes_the_rest() -> None:
    runtime = FlowRuntime(examples.nested(), Order(text="9", amount=5))
    assert await keys_of_all_steps(runtime) == [
        ["Order"],
        ["Invoice"],
        ["Invoice::Approved"],
        ["Payment"],
        ["Shipment"],
    ]
    assert await runtime.next(CONTEXT) == RunOut.Done(Shipment(receipt="paid, approved by rule"))


@pytest.mark.parametrize(
    ("definition", "entry"),
    [
        (examples.linear, Text(text="a b")),
        (examples.split_and_merge, Text(text="a bb")),
        (examples.approval, Invoice(number="1", amount=500)),
        (examples.nested, Order(text="1", amount=500)),
        (examples.debate, Claim(claim="c")),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_a_snapshot_of_every_step_goes_on_to_the_same_end(definition: Any, entry: BaseModel) -> None:
    async def end(runtime: FlowRuntime[Any, Any]) -> Any:
        outcome = await run(runtime)
        while isinstance(outcome, RunOut.Suspend):
            await runtime.resume(CONTEXT, outcome.tool_id, {"by": "ada"})
            outcome = await run(runtime)
        return outcome

    runtime = FlowRuntime(definition(), entry)
    expected = await end(FlowRuntime(definition(), entry))
    for _ in range(20):
        stored = runtime.snapshot().model_dump_json()
        restored = FlowRuntime.from_snapshot(definition(), FlowSnapshot.model_validate_json(stored))
        assert restored.snapshot().model_dump_json() == stored
        if not restored.snapshot().is_announced:
            assert await end(restored) == expected
        outcome = await runtime.next(CONTEXT)
        if isinstance(outcome, RunOut.Suspend):
            await runtime.resume(CONTEXT, outcome.tool_id, {"by": "ada"})
        if isinstance(outcome, RunOut.Done):
            return
    pytest.fail("the flow did not end")


_OTHER_PROCESS = """
import asyncio, sys
from portico.orchestration.flow import Context, FlowRuntime, FlowSnapshot, RunOut
from tests.support.example_flows import approval

async def main():
    runtime = FlowRuntime.from_snapshot(approval(), FlowSnapshot.model_validate_json(sys.stdin.read()))
    await runtime.resume(Context(), "Invoice", {"by": "ada"})
    while isinstance(outcome := await runtime.next(Context()), RunOut.Continue):
        pass
    print(outcome.value.receipt)

asyncio.run(main())
"""


async def test_another_process_goes_on_from_a_snapshot() -> None:
    runtime = FlowRuntime(examples.approval(), Invoice(number="7", amount=500))
    await run(runtime)
    stored = runtime.snapshot().model_dump_json()
    ended = subprocess.run(  # noqa: ASYNC221 - nothing else runs meanwhile
        [sys.executable, "-c", _OTHER_PROCESS], input=stored, capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "paid, approved by ada\n"


async def test_a_snapshot_of_another_graph_is_refused() -> None:
    snapshot = FlowRuntime(examples.linear(), Text(text="a")).snapshot()
    with pytest.raises(SnapLoadError, match="the graph of linear has changed") as raised:
        FlowRuntime.from_snapshot(examples.split_and_merge(), snapshot)
    assert raised.value.code is Code.STORAGE_SNAPSHOT_INVALID


async def test_a_broken_snapshot_is_refused() -> None:
    snapshot = FlowRuntime(examples.linear(), Text(text="a")).snapshot()
    for state in ((("Text", {"text": 3}),), (("Nothing", {}),), (("Text", {"text": "a"}), ("Text", {"text": "b"}))):
        with pytest.raises(SnapLoadError):
            FlowRuntime.from_snapshot(examples.linear(), snapshot.model_copy(update={"state": state}))


class Number(BaseModel):
    number: float


class Half(BaseModel):
    number: float


class Ends(BaseModel):
    number: float


class Flaky:
    """A function that fails the first time."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, number: Number, context: Context) -> Half:
        self.calls += 1
        if self.calls == 1:
            raise ValueError("no luck")
        return Half(number=number.number / 2)


async def finish(half: Half, context: Context) -> Ends:
    return Ends(number=half.number)


async def test_a_failed_node_leaves_the_state_and_may_be_called_again() -> None:
    runtime = FlowRuntime(FlowGraph.builder(Number, Ends).work(Flaky()).work(finish).build(), Number(number=4))
    before = runtime.snapshot()
    with pytest.raises(NodeFailed, match="Number: ValueError: no luck") as raised:
        await runtime.next(CONTEXT)
    assert (raised.value.node, raised.value.code) == ("Number", Code.ORCHESTRATION_NODE_FAILED)
    assert runtime.snapshot() == before
    assert await run(runtime) == RunOut.Done(Ends(number=2))


async def test_an_output_that_is_there_already_is_refused() -> None:
    graph = FlowGraph.builder(Text, Ends).fork(two_numbers).either(other_number).work(halve).work(finish).build()
    runtime = FlowRuntime(graph, Text(text="x"))
    await runtime.next(CONTEXT)
    with pytest.raises(NodeFailed, match="Wrong: its output Number is there already"):
        await runtime.next(CONTEXT)


class Wrong(BaseModel):
    """A state whose node writes a key of another branch."""


async def halve(number: Number, context: Context) -> Half:
    return Half(number=number.number)


def two_numbers(text: Text, context: Context) -> tuple[Wrong, Number]:
    return Wrong(), Number(number=1)


def other_number(wrong: Wrong, context: Context) -> Number | Half:
    return Number(number=2)


class A(BaseModel):
    """One side of a join."""


class B(BaseModel):
    """Other side of a join."""


def only_a(text: Text, context: Context) -> A | B:
    return A()


def both(a: A, b: B, context: Context) -> Ends:
    return Ends(number=0)


async def test_a_join_that_misses_an_input_is_a_deadlock() -> None:
    runtime = FlowRuntime(FlowGraph.builder(Text, Ends).either(only_a).join(both).build(), Text(text=""))
    await runtime.next(CONTEXT)
    with pytest.raises(Deadlock) as raised:
        await runtime.next(CONTEXT)
    assert (raised.value.waiting, raised.value.code) == (("A",), Code.ORCHESTRATION_DEADLOCK)


class Aliased(BaseModel):
    model_config = ConfigDict(strict=True)

    word_count: int = Field(alias="wordCount")


async def alias(text: Text, context: Context) -> Aliased:
    return Aliased(wordCount=1)


async def test_values_are_stored_by_alias_and_each_reader_gets_a_copy_of_its_own() -> None:
    graph = FlowGraph.builder(Text, Aliased).work(alias).build()
    runtime = FlowRuntime(graph, Text(text="a"))
    await runtime.next(CONTEXT)
    assert runtime.snapshot().state == (("Aliased", {"wordCount": 1}),)
    first, second = await runtime.next(CONTEXT), await runtime.next(CONTEXT)
    assert isinstance(first, RunOut.Done)
    assert isinstance(second, RunOut.Done)
    assert first == second
    assert first.value is not second.value


async def wrong_type(text: Text, context: Context) -> Count:
    return cast("Count", Text(text="not a count"))


async def asks_for_no_json(text: Text, context: Context) -> Count:
    raise ToolError.suspend(cast("JsonValue", object()))


@pytest.mark.parametrize(
    ("function", "message"), [(wrong_type, "must return Count, not Text"), (asks_for_no_json, "JSON")]
)
async def test_a_function_that_breaks_its_contract_is_a_failed_node(function: Any, message: str) -> None:
    runtime = FlowRuntime(FlowGraph.builder(Text, Count).work(function).build(), Text(text=""))
    with pytest.raises(FlowError, match=message):
        await runtime.next(CONTEXT)


class Opaque(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    value: Any


async def test_an_entry_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(SerializeError, match="Opaque"):
        FlowRuntime(FlowGraph.builder(Opaque, Count).work(count_opaque).build(), Opaque(value=object()))


async def count_opaque(opaque: Opaque, context: Context) -> Count:
    return Count(count=1)
