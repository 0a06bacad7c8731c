"""AG-UI: every frame is one of the protocol, and a page reads text, calls, questions and what was taken back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from ag_ui.core import Event, RunAgentInput
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from portico.domain.contract.response import SystemResponse
from portico.domain.ids import RequestId, SpanId, TraceId
from portico.domain.journal.events import (
    CorrelationContext,
    ExecutionCompleted,
    InferenceDelta,
    InferenceRetracted,
    LiveDelta,
    StoredEvent,
)
from portico.domain.lifecycle import Mode, State
from portico.entrypoints.http.client_apis.ag_ui.frames import RunStream
from portico.entrypoints.http.client_apis.ag_ui.request import Run
from portico.entrypoints.http.client_apis.turn import DisplayTime, TurnReader
from tests.support.callers import callers
from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import ASK_PERSON, portico
from tests.support.scripted_provider import scripted_service, streamed
from tests.support.upstream import ScriptedUpstream, reply

FRAME = TypeAdapter[Any](Event)
AGENTS = {"helper": {"description": "Helps.", "tools": ["calculate", "ask_person"]}}
MENU = {"name": "open_menu", "description": "Open a menu.", "parameters": {"type": "object", "properties": {}}}


def user(text: str, number: int = 1) -> dict[str, Any]:
    return {"id": f"m{number}", "role": "user", "content": text}


def run_input(*messages: dict[str, Any], version: str | None = "1.0", **fields: Any) -> bytes:
    named = {"threadId": "t-1", "runId": "r-1", "messages": [*messages], "tools": [], "context": [], "state": None}
    given = {**named, "forwardedProps": {"session_id": "of-another"}, **fields}
    RunAgentInput.model_validate(given)
    return orjson.dumps(given if version is None else {**given, "protocolVersion": version})


async def post(served: RunningServer, body: bytes, agent: str = "helper") -> HttpAnswer:
    return await served.post(body, path=f"/v1/ag-ui/{agent}")


def frames_of(answer: HttpAnswer) -> list[dict[str, Any]]:
    """Return the frames, each of which is one of the protocol without nulls."""
    assert answer.status == 200, answer.body
    lines = [line for line in answer.body.decode().split("\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    frames: list[dict[str, Any]] = [json.loads(line[6:]) for line in lines]
    for frame in frames:
        event = FRAME.validate_python(frame)
        assert event.model_dump(mode="json", by_alias=True, exclude_none=True) == frame
    assert frames[0]["type"] == "RUN_STARTED"
    assert frames[-1]["type"] in {"RUN_FINISHED", "RUN_ERROR"}
    return frames


def kinds(frames: Sequence[dict[str, Any]]) -> list[str]:
    """Return the types of the frames; of those in a row one."""
    found = [frame["type"] for frame in frames]
    return [kind for index, kind in enumerate(found) if index == 0 or found[index - 1] != kind]


def text_of(frames: Sequence[dict[str, Any]]) -> str:
    return "".join(frame["delta"] for frame in frames if frame["type"] == "TEXT_MESSAGE_CONTENT")


async def test_a_text_has_ids_of_ours_and_equals_the_answer() -> None:
    async with portico(agents=AGENTS) as (served, _):
        frames = frames_of(await post(served, run_input(user("Hello"))))
        started, finished = frames[0], frames[-1]
        request_id = started["metadata"]["portico"]["request_id"]
        response = (await served.get(f"/v1/executions/{request_id}")).json["response"]
    assert kinds(frames) == [
        *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"),
    ]
    assert (started["threadId"], started["runId"], finished["runId"]) == ("t-1", "r-1", "r-1")
    assert frames[1]["messageId"] == f"msg_{request_id.replace('-', '')}_0"
    assert text_of(frames) == response["content"]
    assert all(frame["delta"] for frame in frames if "delta" in frame)
    assert finished["result"] == {"request_id": request_id}
    assert finished["usage"][0]["totalTokens"] == response["token_usage"]["total_tokens"]
    assert response["metadata"]["client"] == {"thread_id": "t-1", "run_id": "r-1"}
    assert response["session_id"] is None


async def test_a_server_call_has_its_arguments_and_its_result_and_the_transcript_can_be_sent_again() -> None:
    async with portico(agents=AGENTS) as (served, _):
        question = user("Please calculate 17*3")
        frames = frames_of(await post(served, run_input(question)))
        [start], [args], [result] = (
            [frame for frame in frames if frame["type"] == f"TOOL_CALL_{kind}"] for kind in ("START", "ARGS", "RESULT")
        )
        assert (start["toolCallName"], json.loads(args["delta"])) == ("calculate", {"expression": "17*3"})
        assert result["content"] == "51"
        call = {"id": start["toolCallId"], "type": "function"}
        sent = {**call, "function": {"name": "calculate", "arguments": args["delta"]}}
        transcript = [
            question,
            {"id": "a1", "role": "assistant", "toolCalls": [sent]},
            {"id": "a2", "role": "assistant", "content": text_of(frames)},
            {"id": "a3", "role": "tool", "toolCallId": start["toolCallId"], "content": "51"},
            {"id": "a4", "role": "reasoning", "content": "dropped"},
            user("And now?", 2),
        ]
        assert frames_of(await post(served, run_input(*transcript)))[-1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize("version", ["1.0", None])
async def test_a_call_of_the_page_ends_the_run_and_its_result_goes_on(version: str | None) -> None:
    async with portico(agents=AGENTS) as (served, _):
        question = user("Use open_menu")
        frames = frames_of(await post(served, run_input(question, version=version, tools=[MENU])))
        [start] = [frame for frame in frames if frame["type"] == "TOOL_CALL_START"]
        assert (start["toolCallName"], "TOOL_CALL_RESULT" in kinds(frames)) == ("open_menu", False)
        known = {"pendingToolCallIds": [start["toolCallId"]]} if version else {}
        assert frames[-1]["outcome"] == {"type": "success", **known}
        assert ("usage" in frames[-1], "protocolVersion" in frames[0]) == (bool(version), bool(version))
        called = {"id": start["toolCallId"], "type": "function", "function": {"name": "open_menu", "arguments": "{}"}}
        behind = [
            {"id": "a1", "role": "assistant", "toolCalls": [called]},
            {"id": "a2", "role": "tool", "toolCallId": start["toolCallId"], "content": "opened"},
        ]
        goes_on = frames_of(await post(served, run_input(question, *behind, version=version, tools=[MENU])))
        second = goes_on[0]["metadata"]["portico"]["request_id"]
        origin = (await served.get(f"/v1/executions/{second}")).json["origin"]
    assert text_of(goes_on)
    assert origin["request_id"] == frames[0]["metadata"]["portico"]["request_id"]


def folded(frames: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages that a page makes of the frames."""
    messages: dict[str, dict[str, Any]] = {}
    names = {each["toolCallId"]: each["toolCallName"] for each in frames if "toolCallName" in each}
    for frame in frames:
        match frame:
            case {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": text}:
                message = messages.setdefault(name, {"id": name, "role": "assistant", "content": ""})
                message["content"] += text
            case {"type": "TOOL_CALL_ARGS", "toolCallId": name, "delta": arguments}:
                call = {"id": name, "type": "function", "function": {"name": names[name], "arguments": arguments}}
                messages[name] = {"id": name, "role": "assistant", "toolCalls": [call]}
            case {"type": "TOOL_CALL_RESULT", "messageId": name, "toolCallId": call, "content": content}:
                messages[name] = {"id": name, "role": "tool", "toolCallId": call, "content": content}
    return [*messages.values()]


@pytest.mark.parametrize("edited", [False, True])
async def test_a_run_with_calls_of_both_kinds_is_continued_unless_the_page_has_edited_it(*, edited: bool) -> None:
    calls = (("p1", "calculate", {"expression": "17*3"}), ("p2", "open_menu", {"at": 1}))
    async with scripted_service(
        streamed("One.", ("p0", "calculate", {"expression": "1+1"})),
        streamed("Both.", *calls),
        streamed("Done."),
        agents=AGENTS,
    ) as scripted:
        question = user("Calculate and open.")
        frames = frames_of(await post(scripted.served, run_input(question, tools=[MENU])))
        messages = folded(frames)
        assert [each["role"] for each in messages] == [
            *("assistant", "assistant", "tool"),
            *("assistant", "assistant", "tool", "assistant"),
        ]
        if edited:
            messages[-2]["content"] = "52"
        opened = {"id": "a2", "role": "tool", "toolCallId": messages[-1]["id"], "content": "opened"}
        goes_on = frames_of(await post(scripted.served, run_input(question, *messages, opened, tools=[MENU])))
        request_id = goes_on[0]["metadata"]["portico"]["request_id"]
        view = await scripted.served.get(f"/v1/executions/{request_id}")
    assert (view.json.get("origin") is None) is edited
    results = [each["content"] for each in scripted.sent_messages() if each["role"] == "tool"]
    assert results == ["2", "52" if edited else "51", "opened"]


async def test_a_question_interrupts_the_run_and_its_answer_goes_on_once() -> None:
    async with portico(agents=AGENTS) as (served, _):
        frames = frames_of(await post(served, run_input(user(ASK_PERSON))))
        outcome = frames[-1]["outcome"]
        [interrupt] = outcome["interrupts"]
        [start] = [frame for frame in frames if frame["type"] == "TOOL_CALL_START"]
        assert (outcome["type"], interrupt["reason"], interrupt["message"]) == ("interrupt", "question", "May I?")
        assert interrupt["toolCallId"] == start["toolCallId"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "yes"}
        resumed = frames_of(await post(served, run_input(resume=[answer])))
        shown = [frame for frame in resumed if "toolCallId" in frame]
        assert [(frame["type"], frame["content"]) for frame in shown] == [("TOOL_CALL_RESULT", "yes")]
        ids = {frame["messageId"] for frame in frames if "messageId" in frame}
        assert not ids & {frame["messageId"] for frame in resumed if "messageId" in frame}
        assert text_of(resumed)
        again = await post(served, run_input(resume=[answer]))
        assert (again.status, again.json["code"]) == (409, "REQUEST_RESUME_UNEXPECTED")


async def test_a_cancelled_question_cancels_the_execution() -> None:
    async with portico(agents=AGENTS) as (served, _):
        for version, last in (("1.0", "RUN_FINISHED"), (None, "RUN_ERROR")):
            frames = frames_of(await post(served, run_input(user(ASK_PERSON), version=version)))
            [interrupt] = frames[-1]["outcome"]["interrupts"]
            answer = {"interruptId": interrupt["id"], "status": "cancelled"}
            ended = frames_of(await post(served, run_input(version=version, resume=[answer])))
            assert ended[-1]["type"] == last
            assert ended[-1].get("outcome") in ({"type": "cancelled"}, None)
            request_id = frames[0]["metadata"]["portico"]["request_id"]
            assert (await served.get(f"/v1/executions/{request_id}")).json["state"] == "CANCELLED"


async def test_an_approval_is_given_or_refused(tmp_path: Path) -> None:
    async with ScriptedUpstream(reply({"id": 7})) as upstream:
        table = {"description": "Order.", "method": "POST", "url": upstream.url, "allow_private": True}
        agents = {"buyer": {"description": "Buys.", "tools": ["order"]}}
        async with portico(agents=agents, tools={"http": {"order": table}}) as (served, _):
            for status, payload, calls in (("cancelled", None, 0), ("resolved", {"decision": "approve"}, 1)):
                frames = frames_of(await post(served, run_input(user("Use order")), "buyer"))
                [interrupt] = frames[-1]["outcome"]["interrupts"]
                assert interrupt["reason"] == "approval"
                assert interrupt["responseSchema"]["properties"]["decision"]["enum"] == ["approve", "deny"]
                answer = {"interruptId": interrupt["id"], "status": status}
                given = answer if payload is None else {**answer, "payload": payload}
                resumed = frames_of(await post(served, run_input(resume=[given]), "buyer"))
                assert "TOOL_CALL_RESULT" in kinds(resumed)
                assert (resumed[-1]["type"], len(upstream.requests)) == ("RUN_FINISHED", calls)


async def test_steps_and_a_value_are_shown_beside_the_state_of_the_page() -> None:
    agents = {"planner": {"description": "Plans.", "mode": "plan"}}
    async with portico(agents=agents) as (served, _):
        frames = frames_of(await post(served, run_input(user("Write a poem"), state={"theme": "dark"}), "planner"))
    started = [frame["stepName"] for frame in frames if frame["type"] == "STEP_STARTED"]
    assert started
    assert started == [frame["stepName"] for frame in frames if frame["type"] == "STEP_FINISHED"]
    snapshots = [frame["snapshot"] for frame in frames if frame["type"] == "STATE_SNAPSHOT"]
    assert len(snapshots) == len(started) + 1
    assert all(each["theme"] == "dark" for each in snapshots)
    assert {step["status"] for step in snapshots[-1]["portico"]["plan"]} == {"completed"}


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        ({"threadId": 1}, 422, "threadId"),
        ({"runId": ""}, 422, "runId"),
        ({"messages": []}, 422, "messages"),
        ({"messages": [{"id": "a", "role": "assistant", "content": "Hi"}]}, 422, "messages"),
        ({"messages": [{"id": "a", "role": "robot"}]}, 422, "messages.0.role"),
        ({"messages": [{"id": "a", "role": "user", "content": [{"type": "video"}]}]}, 422, "messages.0.content.0.type"),
        ({"tools": [{"name": "calculate", "description": ""}]}, 422, "tools.0.name"),
        ({"resume": [{"interruptId": "x", "status": "resolved"}]}, 404, ""),
        ({"resume": [{"interruptId": f"{'0' * 32}/s", "status": "resolved"}]}, 404, ""),
        (
            {"resume": [{"interruptId": f"{digit * 32}/s", "status": "resolved"} for digit in "01"]},
            422,
            "resume",
        ),
    ],
)
async def test_a_misfit_is_a_problem_document_that_names_the_field(
    fields: dict[str, Any], status: int, named: str
) -> None:
    body = {"threadId": "t", "runId": "r", "messages": [user("Hi")], **fields}
    async with portico(agents=AGENTS) as (served, _):
        answer = await post(served, orjson.dumps(body))
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    if named:
        assert answer.json["details"]["errors"][0]["field"] == named


async def test_an_unknown_agent_is_not_found_and_default_is_the_default_route_without_tools() -> None:
    async with portico() as (served, _):
        assert (await post(served, run_input(user("Hi")), "nemo")).status == 404
        frames = frames_of(await post(served, run_input(user("Please calculate 17*3")), "default"))
    assert "TOOL_CALL_START" not in kinds(frames)


async def test_an_interrupt_of_another_user_is_not_found(tmp_path: Path) -> None:
    grants = {"ada": ("red", "ada", None), "bob": ("red", "bob", None)}
    async with callers(tmp_path, grants, agents=AGENTS) as (by_name, _):
        path = "/v1/ag-ui/helper"
        frames = frames_of(await by_name["ada"].send("POST", path, run_input(user(ASK_PERSON))))
        [interrupt] = frames[-1]["outcome"]["interrupts"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "yes"}
        refused = await by_name["bob"].send("POST", path, run_input(resume=[answer]))
    assert refused.status == 404


KEYS = st.sampled_from(["role", "content", "id", "type", "text", "toolCallId"])
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
JSON = st.recursive(
    LEAVES, lambda each: st.lists(each, max_size=3) | st.dictionaries(KEYS, each, max_size=3), max_leaves=6
)
ROLE = st.sampled_from(["user", "assistant", "tool", "system", "developer", "activity", "reasoning", "robot"])
MESSAGE = st.fixed_dictionaries(
    {"role": ROLE}, optional={"id": JSON, "content": JSON, "toolCalls": JSON, "toolCallId": JSON, "error": JSON}
)
INPUT = st.fixed_dictionaries(
    {"threadId": st.just("t"), "runId": st.just("r"), "messages": st.lists(MESSAGE, max_size=3) | JSON},
    optional={"tools": JSON, "context": JSON, "state": JSON, "resume": JSON, "protocolVersion": JSON},
)


async def test_no_input_is_an_error_of_the_server() -> None:
    inputs: list[Any] = []

    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(INPUT)
    def collect(found: Any) -> None:
        inputs.append(found)

    collect()
    async with portico(agents=AGENTS) as (served, _):
        for each in inputs:
            answer = await post(served, orjson.dumps(each))
            assert answer.status in {200, 404, 422}, (each, answer.body)


RUN = Run("t", "r", is_version_1=True, messages=[{"id": "m1", "role": "user", "content": "Hi"}], state=None)
CORRELATION = CorrelationContext(RequestId("0" * 32), None, TraceId("0" * 32), SpanId("0" * 16), None)


def test_a_text_that_is_taken_back_is_replaced_by_what_stands() -> None:
    """Two models' words are never joined: the snapshot has the input's messages alone, and the next text is new."""
    reader = TurnReader(Mode.CHAT, DisplayTime.LIVE, ends_at_suspension=True, retracts=True)
    stream = RunStream(reader, RUN, RequestId("0" * 32), Mode.CHAT)
    done = SystemResponse(
        request_id="0" * 32, trace_id="0" * 32, mode=Mode.CHAT, state=State.COMPLETE, content="Good day"
    )
    log: list[StoredEvent | LiveDelta] = [
        LiveDelta(0.0, CORRELATION, InferenceDelta("0/0", 0, text="Hel")),
        StoredEvent(1, 0.0, "0", CORRELATION, InferenceRetracted("0/0")),
        LiveDelta(0.0, CORRELATION, InferenceDelta("0/1", 0, text="Good day")),
        StoredEvent(2, 0.0, "0", CORRELATION, ExecutionCompleted(done)),
    ]
    body = stream.end(log, is_stopping=False)
    frames = frames_of(HttpAnswer(200, {}, body))
    snapshot = next(index for index, frame in enumerate(frames) if frame["type"] == "MESSAGES_SNAPSHOT")
    assert frames[snapshot - 1]["type"] == "TEXT_MESSAGE_END"
    assert frames[snapshot]["messages"] == RUN.messages
    assert text_of(frames[snapshot:]) == "Good day"
    assert len({frame["messageId"] for frame in frames if "messageId" in frame}) == 2


PIECES = st.lists(st.tuples(st.sampled_from(["text", "reasoning"]), st.text(min_size=1, max_size=3)), max_size=4)


@settings(max_examples=60, deadline=None, database=None)
@given(attempts=st.lists(PIECES, min_size=1, max_size=4), cuts=st.lists(st.integers(1, 3), max_size=8))
def test_frames_of_any_attempts_are_of_the_protocol_and_show_the_last_one_alone(
    attempts: list[list[tuple[str, str]]], cuts: list[int]
) -> None:
    log: list[StoredEvent | LiveDelta] = []
    for number, pieces in enumerate(attempts):
        offsets = {"text": 0, "reasoning": 0}
        for kind, piece in pieces:
            delta = InferenceDelta(f"0/{number}", offsets[kind], **{kind: piece})
            log.append(LiveDelta(0.0, CORRELATION, delta))
            offsets[kind] += len(piece)
        if number < len(attempts) - 1:
            log.append(StoredEvent(number + 1, 0.0, "0", CORRELATION, InferenceRetracted(f"0/{number}")))
    content = "".join(piece for kind, piece in attempts[-1] if kind == "text")
    done = SystemResponse(request_id="0" * 32, trace_id="0" * 32, mode=Mode.CHAT, state=State.COMPLETE, content=content)
    log.append(StoredEvent(len(attempts), 0.0, "0", CORRELATION, ExecutionCompleted(done)))
    reader = TurnReader(Mode.CHAT, DisplayTime.LIVE, ends_at_suspension=True, retracts=True, shows_reasoning=True)
    stream = RunStream(reader, RUN, RequestId("0" * 32), Mode.CHAT)
    body = b""
    for cut in cuts:
        body += stream.encode(log[:cut])
        log = log[cut:]
    frames = frames_of(HttpAnswer(200, {}, body + stream.end(log, is_stopping=False)))
    snapshots = [index for index, frame in enumerate(frames) if frame["type"] == "MESSAGES_SNAPSHOT"]
    assert text_of(frames[snapshots[-1] if snapshots else 0 :]) == content


@pytest.mark.parametrize(("is_stopping", "code"), [(True, "REQUEST_IN_PROGRESS"), (False, "REQUEST_OVERLOADED")])
def test_a_stream_that_is_cut_short_ends_with_an_error(is_stopping: bool, code: str) -> None:
    stream = RunStream(TurnReader(Mode.CHAT, DisplayTime.LIVE, retracts=True), RUN, RequestId("0" * 32), Mode.CHAT)
    frames = frames_of(HttpAnswer(200, {}, stream.end([], is_stopping=is_stopping)))
    assert (frames[-1]["type"], frames[-1]["code"]) == ("RUN_ERROR", code)
