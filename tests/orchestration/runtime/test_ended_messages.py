"""Messages of executions that failed, were cancelled or reached a limit: always a conversation that goes on."""

from random import Random
from typing import Any

import orjson
import pytest

from portico.adapters.tools.builtin import ask_person
from portico.capabilities.context.repair import is_whole
from portico.capabilities.tools.definition import tool
from portico.domain.contract.messages import conversation_errors
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import ToolEnd, ToolStart
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.orchestration.execution.execution import Execution
from portico.orchestration.patterns.agent_loop import PATTERN
from portico.orchestration.runtime.branch_transcripts import OUTERMOST, branch_conversations
from portico.orchestration.runtime.transcript import transcript_of
from portico.ports.journal import ExecutionHistory
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, response_of, scripted_engine
from tests.support.recovery import is_complete_log, open_starts, run_and_cancel
from tests.support.seeds import seeds
from tests.support.virtual_time import VirtualClock

CALLS = [{"name": name} for name in ("look", "send", "look", "ask_person")]
CALLS[3] = {"name": "ask_person", "arguments": {"question": "Really?"}}
SCRIPT = [{"tool_calls": CALLS[:3], "delay": 2}, {"tool_calls": CALLS[:2], "delay": 2}, {"text": "Done.", "delay": 2}]


def harness(clock: VirtualClock, *replies: dict[str, Any], **bounds: Any) -> Harness:
    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def look() -> str:
        """Look."""
        await clock.sleep(3)
        return "seen"

    @tool(side_effects=SideEffects.WRITE, idempotent=False)
    async def send() -> str:
        """Send."""
        await clock.sleep(5)
        return "sent"

    return make_harness(clock, scripted_engine(clock, "a", *replies), tools=[look, send, ask_person], **bounds)


def check(response: SystemResponse, record: ExecutionHistory) -> list[str]:
    """Check the messages of an end, and return the results in them."""
    messages = transcript_of(record.header, response, ()).messages
    assert is_whole(messages)
    assert conversation_errors([*messages, *chat_request("Go on.").messages]) == []
    assert replay_offline(record) == len(record.steps)
    assert is_complete_log(record)
    assert open_starts(record.events) == []
    calls = [call.id for message in response.messages for call in message.tool_calls or ()]
    assert [each.id for each in response.tool_calls_made] == calls
    assert [each.result for each in response.tool_calls_made] == [
        message.content for message in response.messages if message.role == "tool"
    ]
    if response.state is State.CANCELLED:
        starts = [item.event.tool_call_id for item in record.events if isinstance(item.event, ToolStart)]
        assert sorted(starts) == sorted(calls)
    [whole] = branch_conversations(record, PATTERN)
    assert whole.view().branch == OUTERMOST
    assert list(whole.messages) == list(messages[: len(messages) - (response.state is State.COMPLETE)])
    return [message.text for message in response.messages if message.role == "tool"]


@pytest.mark.parametrize("seconds", [each + 0.5 for each in range(18)])
async def test_a_cancel_at_any_time_leaves_a_whole_conversation(clock: VirtualClock, seconds: float) -> None:
    here = harness(clock, *SCRIPT)
    response, record = await run_and_cancel(clock, here, chat_request(), seconds)
    results = check(response, record)
    assert response.state is State.CANCELLED
    if seconds < 2:
        assert results == []
    if 5 < seconds < 10:
        assert results == ["seen", "sent", "not run: the execution ended"]
    if 2 < seconds < 5:
        assert results == ["cancelled while it ran", *["not run: the execution ended"] * 2]


async def test_calls_that_a_cancel_kept_from_running_have_a_start_and_an_end(clock: VirtualClock) -> None:
    here = harness(clock, *SCRIPT)
    _, record = await run_and_cancel(clock, here, chat_request(), 6)
    ends = [item.event for item in record.events if isinstance(item.event, ToolEnd)]
    assert [(each.tool_name, each.success, each.error_code) for each in ends] == [
        ("look", True, None),
        ("send", True, None),
        ("look", False, Code.CANCELLED_SIGNAL),
    ]
    assert ends[2].duration_ms == 0


async def test_a_suspended_execution_that_is_cancelled_has_a_result_for_each_call(clock: VirtualClock) -> None:
    _, record = await harness(clock, {"tool_calls": [CALLS[3], CALLS[0]]}).run(chat_request())
    here = harness(clock)
    here.journal.attach(record)
    execution = Execution(record.header, environment=here.environment, journal=here.journal, history=record)
    execution.stop(Code.CANCELLED_SIGNAL, "cancelled by the client")
    await here.drive(execution)
    assert check(response_of(execution), here.record(execution)) == ["cancelled while it ran", "seen"]


@pytest.mark.parametrize(
    ("last", "bounds", "asked", "state"),
    [
        ({"fault": "refused"}, {}, {}, State.ERROR),
        ({"tool_calls": CALLS[:1]}, {"tool_rounds": 1}, {}, State.ERROR),
        ({"tool_calls": CALLS[:1]}, {"tool_rounds": 1}, {"on_limit": "salvage"}, State.COMPLETE),
        ({"text": "never", "delay": 90}, {"timeout": 30}, {"on_limit": "salvage"}, State.COMPLETE),
    ],
    ids=["failure", "limit", "salvaged rounds", "salvaged time"],
)
async def test_a_failure_and_a_salvaged_end_hold_all_rounds(
    clock: VirtualClock, last: dict[str, Any], bounds: dict[str, Any], asked: dict[str, Any], state: State
) -> None:
    here = harness(clock, {"tool_calls": CALLS[:2]}, last, {"fault": "refused"}, **bounds)
    response, record = await here.run(chat_request(**asked))
    assert response.state is state
    assert response.messages[1].text == "seen"
    assert (response.messages[-1].text == response.content) is (state is State.COMPLETE)
    check(response, record)


@pytest.mark.parametrize("seed", seeds(200))
async def test_the_messages_of_any_end_begin_another_request(clock: VirtualClock, seed: int) -> None:
    """However it ends: by itself, by a failure, by a limit, salvaged or not, or by a cancel at any time."""
    draw = Random(seed)
    replies = [
        {"tool_calls": draw.choices(CALLS[:3], k=draw.randint(1, 3)), "text": draw.choice(("", "Let me see."))}
        for _ in range(draw.randint(0, 3))
    ]
    last = draw.choice(({"text": "Done."}, {"fault": "refused"}, {"text": ""}, {"text": "never", "delay": 90}))
    bounds = draw.choice(({}, {"tool_rounds": 1}, {"timeout": 8}, {"tool_calls": 1}))
    here = harness(clock, *replies, last, {"text": "In short."}, **bounds)
    request = chat_request(on_limit=draw.choice(("fail", "salvage")))
    if draw.random() < 0.5:
        response, record = await run_and_cancel(clock, here, request, draw.random() * 20)
    else:
        response, record = await here.run(request)
    assert replay_offline(record) == len(record.steps)
    given = orjson.loads(response.model_dump_json(by_alias=True, include={"messages"}))["messages"]
    asked = [*orjson.loads(request.model_dump_json(include={"messages"}, exclude_none=True))["messages"], *given]
    again = {"messages": [*asked, {"role": "user", "content": "Go on."}]}
    SystemRequest.model_validate_json(orjson.dumps(again), strict=True)
