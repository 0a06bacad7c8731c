"""Client tools: calls that the client runs, left to it at the end or asked for in a suspension."""

from dataclasses import replace
from typing import Any

import pytest

from portico.adapters.tools.builtin import ask_person
from portico.bootstrap.service import PATTERNS
from portico.capabilities.tools.definition import tool
from portico.domain.contract.response import ToolCallStatus
from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.events import LifecycleTransition, ToolEnd, ToolStart
from portico.domain.journal.step_key import StepKey
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.orchestration.execution.execution import Execution
from portico.orchestration.patterns.specialized_loop import specialized_loop
from portico.orchestration.quote import QuoteCalculator
from portico.ports.journal import ExecutionHistory
from tests.support.harness import (
    answer_suspension,
    chat_request,
    make_harness,
    replay_offline,
    scripted_engine,
    watch_commits,
)
from tests.support.virtual_time import VirtualClock

READ = {"name": "read_file", "description": "Read a file.", "parameters": {"type": "object"}}
CALL = {"id": "c1", "name": "read_file", "arguments": {"path": "a@b.example"}}
BOTH = {"text": "Looking.", "tool_calls": [CALL, {"id": "c2", "name": "look"}]}
SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


def edges(record: ExecutionHistory) -> list[tuple[str, str]]:
    moved = [item.event for item in record.events if isinstance(item.event, LifecycleTransition)]
    return [(each.to_state, each.reason) for each in moved][2:]


def call_events(record: ExecutionHistory) -> list[tuple[str, str]]:
    events = [item.event for item in record.events if isinstance(item.event, ToolStart | ToolEnd)]
    return [(each.type, each.tool_name) for each in events]


class Looking:
    """A harness with the tool `look`, whose runs are counted."""

    def __init__(self, clock: VirtualClock, *replies: Any, **bounds: Any) -> None:
        self.runs = 0

        @tool(side_effects=SideEffects.READ, idempotent=True)
        async def look() -> str:
            """Look."""
            self.runs += 1
            return "seen"

        self.engine = scripted_engine(clock, "a", *replies)
        self.harness = make_harness(clock, self.engine, tools=[look, ask_person], **bounds)


def request(**fields: Any) -> Any:
    return chat_request("go", **{"client_tools": [READ], "on_client_call": "end", **fields})


async def test_a_chat_ends_with_the_calls_of_the_client_after_those_of_the_server(clock: VirtualClock) -> None:
    here = Looking(clock, BOTH)
    response, record = await here.harness.run(request())
    assert (response.state, response.content, response.metadata.finish_reason) == (State.COMPLETE, "Looking.", "tool")
    assert [call.model_dump() for call in response.client_calls] == [CALL]
    assert edges(record) == [("EXECUTE", "prepared"), ("COMPLETE", "client_calls")]
    assert [(each.role, each.tool_call_id) for each in response.messages] == [("assistant", None), ("tool", "c2")]
    assert [call.id for call in response.messages[0].tool_calls or ()] == ["c1", "c2"]
    made = {call.id: (call.status, call.client, call.result) for call in response.tool_calls_made}
    assert made == {"c1": (ToolCallStatus.WAITING, True, None), "c2": (ToolCallStatus.DONE, False, "seen")}
    assert (here.runs, call_events(record)) == (1, [("tool.start", "look"), ("tool.end", "look")])
    assert replay_offline(record) == len(record.steps)


async def test_a_structured_answer_is_not_validated_when_calls_are_left_to_the_client(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"tool_calls": [CALL]}))
    asked = request(mode="structured", output={"schema": SCHEMA})
    response, record = await here.run(asked, specialized_loop)
    assert (response.state, response.content, response.structured_output) == (State.COMPLETE, None, None)
    assert [call.id for call in response.client_calls] == ["c1"]
    assert response.validation_result is None
    ends = [("EXECUTE", "prepared"), ("VALIDATE", "client_calls"), ("COMPLETE", "client_calls")]
    assert edges(record) == ends
    assert replay_offline(record, specialized_loop) == len(record.steps)


async def test_a_chat_with_rules_ends_with_client_calls_without_validation(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"tool_calls": [CALL]}))
    response, record = await here.run(request(output={"rules": [{"type": "regex", "pattern": "x"}]}))
    assert edges(record) == [("EXECUTE", "prepared"), ("COMPLETE", "client_calls")]
    assert (response.validation_result, len(response.client_calls)) == (None, 1)


async def test_a_call_whose_arguments_are_no_object_goes_back_to_the_model(clock: VirtualClock) -> None:
    broken = {"tool_calls": [{**CALL, "arguments": {"_raw": "{"}}]}
    here = make_harness(clock, scripted_engine(clock, "a", broken, {"text": "sorry"}))
    response, record = await here.run(request())
    assert (response.content, response.client_calls) == ("sorry", [])
    [made] = response.tool_calls_made
    assert (made.status, made.client, made.attempts) == (ToolCallStatus.NOT_RUN, True, 0)
    assert "no JSON object" in (made.result or "")
    assert replay_offline(record) == len(record.steps)


@pytest.mark.parametrize(("bounds", "left"), [({"calls_per_reply": 2}, ["c1", "c2"]), ({"tool_calls": 1}, ["c1"])])
async def test_client_calls_count_in_the_limits_of_calls(
    clock: VirtualClock, bounds: dict[str, Any], left: list[str]
) -> None:
    three = {"tool_calls": [{**CALL, "id": each} for each in ("c1", "c2", "c3")]}
    here = make_harness(clock, scripted_engine(clock, "a", three), **bounds)
    response, record = await here.run(request())
    assert [call.id for call in response.client_calls] == left
    refused = {"c1", "c2", "c3"} - {*left}
    assert {each.tool_call_id for each in response.messages if each.role == "tool"} == refused
    assert all(call.is_error for call in response.tool_calls_made if call.id in refused)
    assert replay_offline(record) == len(record.steps)


async def test_server_calls_that_wait_for_a_person_come_before_those_of_the_client(clock: VirtualClock) -> None:
    asks = {"tool_calls": [CALL, {"id": "c2", "name": "ask_person", "arguments": {"question": "?"}}]}
    here = Looking(clock, asks)
    response, record = await here.harness.run(request())
    assert [(each.kind, each.tool_call_id) for each in response.suspensions] == [("question", "c2")]
    assert response.client_calls == []
    response, record = await Looking(clock).harness.resume(record, "yes")
    assert (response.state, [call.id for call in response.client_calls]) == (State.COMPLETE, ["c1"])
    assert replay_offline(record) == len(record.steps)


async def test_a_suspended_client_call_goes_on_with_the_result_of_the_client(clock: VirtualClock) -> None:
    here = Looking(clock, BOTH)
    response, record = await here.harness.run(request(on_client_call="suspend"))
    [asked] = response.suspensions
    assert (asked.kind, asked.tool_id, asked.tool_call_id) == ("client_tool", "read_file", "c1")
    assert asked.value == CALL["arguments"]
    assert (response.state, here.runs) == (State.SUSPENDED, 1)
    assert [call.status for call in response.tool_calls_made] == ["waiting", "done"]
    assert replay_offline(record) == len(record.steps)

    elsewhere = Looking(clock, {"text": "read"})
    response, after = await elsewhere.harness.resume(record, {"result": {"lines": 1}})
    assert (response.state, response.content, elsewhere.runs) == (State.COMPLETE, "read", 0)
    first = response.tool_calls_made[0]
    assert (first.result, first.attempts, first.client, first.status) == ('{"lines":1}', 1, True, "done")
    assert response.metadata.tool_rounds == 1
    ends = [("tool.start", "look"), ("tool.end", "look"), ("tool.start", "read_file"), ("tool.end", "read_file")]
    assert call_events(after) == ends
    assert replay_offline(after) == len(after.steps)


async def test_an_error_of_the_client_is_an_error_of_the_call(clock: VirtualClock) -> None:
    here = Looking(clock, {"tool_calls": [CALL]})
    _, record = await here.harness.run(request(on_client_call="suspend"))
    again = Looking(clock, {"text": "sorry"})
    response, after = await again.harness.resume(record, {"result": "no such file", "is_error": True})
    [made] = response.tool_calls_made
    assert (made.is_error, made.result, made.status) == (True, "no such file", "failed")
    [end] = [item.event for item in after.events if isinstance(item.event, ToolEnd)]
    assert (end.success, end.error_code) == (False, Code.TOOL_EXECUTION_FAILED)
    assert replay_offline(after) == len(after.steps)


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ("text", "payload"),
        ({}, "payload.result"),
        ({"result": 1, "is_error": "yes"}, "payload.is_error"),
        ({"result": 1, "more": 1}, "payload.more"),
        ({"result": "x" * 262_145}, "payload.result"),
        ({"result": ["ä" * 131_072]}, "payload.result"),
    ],
)
async def test_an_answer_that_is_no_result_is_refused_by_field(clock: VirtualClock, payload: Any, field: str) -> None:
    here = Looking(clock, {"tool_calls": [CALL]})
    _, record = await here.harness.run(request(on_client_call="suspend"))
    with pytest.raises(RequestFailure) as refused:
        answer_suspension(clock, record, payload)
    assert refused.value.code is Code.REQUEST_INVALID
    assert field in [each["field"] for each in refused.value.details["errors"]]


async def test_the_result_of_a_client_is_not_trusted(clock: VirtualClock) -> None:
    here = Looking(clock, {"tool_calls": [CALL]})
    _, record = await here.harness.run(request(on_client_call="suspend"))
    resumed = answer_suspension(clock, record, {"result": "x"})
    again = Looking(clock, {"text": "ok"}).harness
    again.journal.attach(resumed)
    execution = Execution(resumed.header, environment=again.environment, journal=again.journal, history=resumed)
    await again.drive(execution)
    assert execution.ledger.has_untrusted_text


@pytest.mark.parametrize("way", ["end", "suspend"])
async def test_a_crash_after_any_commit_runs_the_server_call_once_and_ends_alike(clock: VirtualClock, way: str) -> None:
    here = watch_commits(Looking(clock, BOTH).harness)
    whole, _ = await here.run(request(on_client_call=way))
    journal: Any = here.journal
    crashes = [record for record, _ in journal.commits[:-1]]
    assert len(crashes) >= 3
    for record in crashes:
        ran = any(isinstance(item.event, ToolEnd) for item in record.events)
        again = Looking(clock, BOTH)
        response, after = await again.harness.recover(record)
        assert response.client_calls == whole.client_calls
        assert [each.suspension_id for each in response.suspensions] == [
            each.suspension_id for each in whole.suspensions
        ]
        assert again.runs == (0 if ran else 1)
        assert replay_offline(after) == len(after.steps)


async def test_tools_of_the_service_give_way_to_those_of_the_client(clock: VirtualClock) -> None:
    here = Looking(clock, {"text": "ok"}).harness
    here.limits = replace(here.limits, tools=2)
    response, record = await here.run(request(client_tools=[READ, {"name": "write_file"}]))
    assert response.metadata.left_out == ["tools.ask_person", "tools.look"]
    offered = [each.name for each in record.steps[StepKey("0")].outcome.tools]
    assert offered == ["read_file", "write_file"]


@pytest.mark.parametrize(("tools", "calls"), [([], 0), ([READ], 20 * 32)])
def test_a_quote_counts_one_attempt_at_each_client_call(clock: VirtualClock, tools: list[Any], calls: int) -> None:
    here = make_harness(clock, scripted_engine(clock, "a"))
    asked = chat_request("go", client_tools=tools)
    calculator = QuoteCalculator(here.environment.catalogue, here.environment.tool_registry, "USD", PATTERNS)
    assert calculator.quote(asked, here.limits).tool_calls == calls
