"""Tests of agents in a flow that runs on its own, with the scripted engine."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from portico.adapters.engines.scripted import ScriptedEngine
from portico.adapters.system import SystemClock
from portico.capabilities.tools.definition import tool
from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code
from portico.domain.tools import SideEffects
from portico.orchestration.flow import (
    AgentConfig,
    AgentError,
    Context,
    FlowGraph,
    FlowRuntime,
    FlowSnapshot,
    NotFound,
    ResumptionMismatch,
    RunOut,
    ToolError,
)
from portico.ports.engine_schemes import SCHEMES
from portico.ports.model import EngineCapabilities, EngineProfile
from tests.support import example_flows as examples
from tests.support.example_flows import Answer, Draft, Topic

CAPABILITIES = SCHEMES["scripted"].capabilities
CONTEXT = Context()


def engine(*replies: dict[str, Any], capabilities: EngineCapabilities = CAPABILITIES) -> ScriptedEngine:
    profile = EngineProfile("default", "script", "scripted", 128_000, 4096, frozenset(), capabilities=capabilities)
    return ScriptedEngine(profile, replies, SystemClock())


def calls(*named: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in named]}


def runtime(graph: FlowGraph[Any, Any], *replies: dict[str, Any], **options: Any) -> FlowRuntime[Any, Any]:
    return FlowRuntime(graph, Topic(topic="sea")).with_engines({"default": engine(*replies, **options)})


async def run(flow: FlowRuntime[Any, Any]) -> Any:
    while isinstance(outcome := await flow.next(CONTEXT), RunOut.Continue):
        pass
    return outcome


def texts(flow: FlowRuntime[Any, Any], role: str) -> list[str]:
    return [message.text for message in flow.history()["Topic"] if message.role == role]


@pytest.mark.parametrize(
    "capabilities",
    [CAPABILITIES, EngineCapabilities(), EngineCapabilities(forced_calls=False)],
    ids=["schema", "submit", "contract"],
)
async def test_an_agent_without_tools_answers_in_the_form_of_its_output(capabilities: EngineCapabilities) -> None:
    flow = runtime(examples.summarise(), {"text": '```json\n{"text": "blue"}\n```'}, capabilities=capabilities)
    assert await run(flow) == RunOut.Done(Answer(answer="blue"))
    assert texts(flow, "user") == ['{"topic":"sea"}']
    assert flow.snapshot().usage.total_tokens > 0


async def test_an_agent_with_tools_takes_one_step_per_inference_and_ends_with_submit() -> None:
    flow = runtime(examples.research(), calls(("search", {"query": "sea"})), calls(("submit", {"text": "deep"})))
    assert await flow.next(CONTEXT) == RunOut.Continue()
    assert [key for key, _ in flow.snapshot().state] == ["Topic"]
    assert await flow.next(CONTEXT) == RunOut.Continue()
    assert [key for key, _ in flow.snapshot().state] == ["Draft"]
    assert await run(flow) == RunOut.Done(Answer(answer="deep"))
    assert texts(flow, "tool") == ["three books about sea", "accepted"]


async def test_calls_behind_submit_are_cancelled() -> None:
    flow = runtime(
        examples.research(),
        calls(("search", {"query": "sea"}), ("submit", {"text": "deep"}), ("search", {"query": "never"})),
    )
    assert await run(flow) == RunOut.Done(Answer(answer="deep"))
    assert texts(flow, "tool") == ["three books about sea", "accepted", "cancelled: the answer was handed in"]


@pytest.mark.parametrize(
    "bad",
    [calls(("submit", {"txt": "deep"})), {"text": "deep"}],
    ids=["arguments that do not fit", "no submit"],
)
async def test_a_bad_submission_may_be_corrected_once(bad: dict[str, Any]) -> None:
    flow = runtime(examples.research(), bad, calls(("submit", {"text": "deep"})))
    assert await run(flow) == RunOut.Done(Answer(answer="deep"))
    failing = runtime(examples.research(), bad, bad)
    with pytest.raises(AgentError) as raised:
        await run(failing)
    assert (raised.value.node, raised.value.code) == ("Topic", Code.CONSTRAINT_SCHEMA_INVALID)


async def test_a_bad_answer_in_the_form_may_be_corrected_once() -> None:
    flow = runtime(examples.summarise(), {"text": "no JSON"}, {"text": '{"text": "blue"}'})
    assert await run(flow) == RunOut.Done(Answer(answer="blue"))
    assert "$.text" not in texts(flow, "user")[0]
    with pytest.raises(AgentError):
        await run(runtime(examples.summarise(), {"text": "no JSON"}, {"text": '{"text": 3}'}))


async def test_two_suspended_calls_of_one_tool_are_answered_by_their_ids_while_siblings_run_once() -> None:
    flow = runtime(
        examples.research(),
        calls(
            ("ask_editor", {"question": "long?"}), ("search", {"query": "sea"}), ("ask_editor", {"question": "dark?"})
        ),
        calls(("submit", {"text": "deep"})),
    )
    outcome = await run(flow)
    assert isinstance(outcome, RunOut.Suspend)
    assert [each.tool_id for each in outcome.suspensions] == ["Topic::ask_editor"] * 2
    assert [each.kind for each in outcome.suspensions] == [SuspensionKind.QUESTION] * 2
    with pytest.raises(ResumptionMismatch):
        await flow.resume(CONTEXT, "Topic::ask_editor", "yes")
    second, first = outcome.suspensions[1].suspension_id, outcome.suspensions[0].suspension_id
    assert isinstance(await flow.resume(CONTEXT, "Topic::ask_editor", "no", second), RunOut.Suspend)
    restored = FlowRuntime.from_snapshot(
        examples.research(), FlowSnapshot.model_validate_json(flow.snapshot().model_dump_json())
    ).with_engines({"default": engine(calls(("submit", {"text": "deep"})))})
    assert await restored.resume(CONTEXT, "Topic::ask_editor", "yes", first) == RunOut.Continue()
    assert texts(restored, "tool") == ["yes", "three books about sea", "no"]
    assert await run(restored) == RunOut.Done(Answer(answer="deep"))


async def test_an_agent_without_its_engine_is_not_found() -> None:
    with pytest.raises(NotFound, match="Topic: there is no engine named default"):
        await FlowRuntime(examples.summarise(), Topic(topic="sea")).next(CONTEXT)


async def test_a_failed_inference_leaves_the_flow_as_it_was() -> None:
    flow = runtime(examples.summarise(), {"fault": "overloaded"}, {"text": '{"text": "blue"}'})
    before = flow.snapshot()
    with pytest.raises(AgentError) as raised:
        await flow.next(CONTEXT)
    assert raised.value.code is Code.INFERENCE_MODEL_UNAVAILABLE
    assert flow.snapshot() == before
    assert await run(flow) == RunOut.Done(Answer(answer="blue"))


async def test_a_history_goes_on_in_another_runtime() -> None:
    first = runtime(examples.summarise(), {"text": '{"text": "blue"}'})
    await run(first)
    second = runtime(examples.summarise(), {"text": '{"text": "grey"}'}).with_history(first.history())
    assert await run(second) == RunOut.Done(Answer(answer="grey"))
    assert texts(second, "assistant") == ['{"text": "blue"}', '{"text": "grey"}']
    with pytest.raises(NotFound):
        second.with_history({"Draft": ()})


SENT: list[str] = []


@tool(side_effects=SideEffects.EXTERNAL, idempotent=False)
async def send_letter(text: str) -> str:
    """Send a letter."""
    SENT.append(text)
    return "sent"


def letters() -> FlowGraph[Topic, Draft]:
    config = AgentConfig("Write.", "default").with_tools([send_letter])
    return FlowGraph.builder(Topic, Draft).agent(Topic, Draft, config).build()


@pytest.mark.parametrize(
    ("decision", "result", "sent"),
    [
        ({"decision": "approve"}, "sent", ["dear"]),
        ({"decision": "deny", "reason": "too late"}, "not approved: too late", []),
    ],
    ids=["approved", "denied"],
)
async def test_an_external_tool_waits_for_approval(decision: dict[str, str], result: str, sent: Sequence[str]) -> None:
    SENT.clear()
    flow = runtime(letters(), calls(("send_letter", {"text": "dear"})), calls(("submit", {"text": "done"})))
    outcome = await run(flow)
    assert [(each.kind, each.tool_id) for each in outcome.suspensions] == [
        (SuspensionKind.APPROVAL, "Topic::send_letter")
    ]
    assert sent == [] or SENT == []
    await flow.resume(CONTEXT, outcome.tool_id, decision)
    assert await run(flow) == RunOut.Done(Draft(text="done"))
    assert (texts(flow, "tool")[0], SENT) == (result, sent)


class Left(BaseModel):
    """A branch that waits."""


class Right(BaseModel):
    """A branch that goes on."""


class LeftDone(BaseModel):
    """The end of a branch."""


class RightDone(BaseModel):
    """The end of a branch."""


def split(topic: Topic, context: Context) -> tuple[Left, Right]:
    return Left(), Right()


async def wait(left: Left, context: Context) -> LeftDone:
    raise ToolError.suspend("go on?")


async def go_on(right: Right, context: Context) -> RightDone:
    return RightDone()


def meet(left: LeftDone, right: RightDone, context: Context) -> Draft:
    return Draft(text="met")


async def test_a_branch_that_waits_does_not_hold_up_the_other() -> None:
    graph = FlowGraph.builder(Topic, Draft).fork(split).work(wait).work(go_on).join(meet).build()
    flow = FlowRuntime(graph, Topic(topic="sea"))
    outcome = await run(flow)
    assert isinstance(outcome, RunOut.Suspend)
    assert [key for key, _ in flow.snapshot().state] == ["Left", "RightDone"]
    await flow.resume(CONTEXT, "Left", {})
    assert await run(flow) == RunOut.Done(Draft(text="met"))
