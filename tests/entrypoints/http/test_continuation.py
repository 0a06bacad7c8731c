"""Continuations: executions that begin with the whole transcript of another one, over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from portico.domain.access.principal import LOCAL
from portico.settings import Secret
from tests.entrypoints.http.test_fork import fork
from tests.support.emulators import openai_chat
from tests.support.emulators.answers import EmulatedAnswer
from tests.support.emulators.server import KEY, EmulatedServer
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes
from tests.support.portico import ASK_PERSON, EVENTS, QUOTE, RESPOND_ASYNC, chat, events, portico, resume, send_command
from tests.support.server_state import wait_for_idle, wait_for_running

CALCULATE = "Please calculate 17*3"
SYSTEM = {"role": "system", "content": "Be brief."}
FORMS = [{}, EVENTS, RESPOND_ASYNC]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[RunningServer, EmulatedServer]]:
    """Run a service with one engine, whose requests are recorded; it has answered `q`."""
    async with EmulatedServer(openai_chat.respond, EmulatedAnswer("Hello.")) as upstream:
        engine = {"model": "openai://some-model", "base_url": upstream.url, "api_key_env": Secret(KEY)}
        async with portico(engines={"only": engine}) as (served, _):
            await served.post(orjson.dumps({"request_id": "q", "messages": [SYSTEM, user("I am Ada.")]}))
            yield served, upstream


def sent(upstream: EmulatedServer) -> list[tuple[str, str]]:
    """Return the messages of the last provider request."""
    return [(each["role"], each["content"]) for each in orjson.loads(upstream.requests[-1].body)["messages"]]


async def continued(served: RunningServer, after: str = "q", text: str = "Who am I?", **changes: Any) -> HttpAnswer:
    return await served.post(chat(text, after=after, **changes))


async def first_event(served: RunningServer, request_id: str) -> dict[str, Any]:
    return events(await served.get(f"/v1/executions/{request_id}/events"))[0]


async def test_an_execution_begins_with_the_transcript_of_the_one_it_comes_after() -> None:
    async with listening() as (served, upstream):
        first = await continued(served, request_id="r-1")
        second = await continued(served, after="r-1", text="Thanks.", request_id="r-2")
        assert sent(upstream) == [
            ("system", "Be brief."),
            ("user", "I am Ada."),
            ("assistant", "Hello."),
            ("user", "Who am I?"),
            ("assistant", "Hello."),
            ("user", "Thanks."),
        ]
        began = await first_event(served, "r-2")
        replayed = await send_command(served, "replay", "r-2")
        shown = (await served.get("/v1/executions/r-2")).json
    assert [each.status for each in (first, second)] == [200, 200]
    assert (began["sequence_number"], began["caused_by"]) == (1, "r-1")
    assert replayed.json["identical"] is True
    assert shown["response"]["token_usage"] == second.json["token_usage"]
    assert second.json["token_usage"]["total_tokens"] < 2 * first.json["token_usage"]["total_tokens"]
    assert second.json["messages"] == [{"role": "assistant", "content": "Hello."}]


async def test_two_executions_after_the_same_one_do_not_see_each_other() -> None:
    async with listening() as (served, upstream):
        await continued(served, text="I like tea.")
        await continued(served, text="I like coffee.")
        assert sent(upstream)[-1:] + sent(upstream)[:-1] == [
            ("user", "I like coffee."),
            ("system", "Be brief."),
            ("user", "I am Ada."),
            ("assistant", "Hello."),
        ]


async def test_a_new_system_message_replaces_that_of_the_transcript() -> None:
    async with listening() as (served, upstream):
        messages = [{"role": "system", "content": "Be verbose."}, user("Who am I?")]
        await served.post(orjson.dumps({"after": "q", "messages": messages}))
        assert sent(upstream)[:2] == [("system", "Be verbose."), ("user", "I am Ada.")]
        assert ("system", "Be brief.") not in sent(upstream)


async def test_tool_rounds_are_part_of_the_transcript_and_do_not_run_again() -> None:
    async with portico() as (served, _):
        first = await served.post(chat(CALCULATE, request_id="q"))
        answer = await continued(served, text="Hello", request_id="r-1")
        asked = (await served.get("/v1/executions/r-1/input")).json
        third = await continued(served, after="r-1", text="Hello", tools=[])
    assert [each["role"] for each in first.json["messages"]] == ["assistant", "tool", "assistant"]
    assert (answer.json["state"], answer.json["tool_calls_made"]) == ("COMPLETE", [])
    assert (asked["after"], asked["messages"]) == ("q", [user("Hello")])
    assert third.json["state"] == "COMPLETE"


async def test_an_execution_after_a_turn_of_a_session_has_the_session_so_far_and_leaves_it_unchanged() -> None:
    async with listening() as (served, upstream):
        for number in (1, 2, 3):
            await served.post(chat(f"Turn {number}", session_id="s", request_id=f"t-{number}"))
        await continued(served, after="t-2", text="And then?")
        assert [text for role, text in sent(upstream) if role == "user"] == ["Turn 1", "Turn 2", "And then?"]
        assert (await served.get("/v1/sessions/s")).json["messages"] == 6


async def test_an_execution_after_a_fork_has_the_messages_of_both() -> None:
    async with listening() as (served, upstream):
        forked = await fork(served, 0, messages=[user("I am Bob.")])
        await continued(served, after=forked.json["request_id"])
        assert [text for role, text in sent(upstream) if role == "user"] == ["I am Ada.", "I am Bob.", "Who am I?"]


async def test_an_execution_that_waits_in_the_queue_has_its_own_copy_of_the_transcript() -> None:
    async with listening() as (served, upstream):
        answer = await continued(served, background=True, request_id="r-1")
        assert answer.status == 202
        while (await served.get("/v1/executions/r-1")).json["response"] is None:
            await served.get("/livez")
        assert ("user", "I am Ada.") in sent(upstream)


async def test_a_long_transcript_is_cut_where_a_turn_begins_and_stays_whole_for_the_next() -> None:
    async with EmulatedServer(openai_chat.respond, EmulatedAnswer("Hello.")) as upstream:
        engine = {"model": "openai://some-model", "base_url": upstream.url, "api_key_env": Secret(KEY)}
        async with portico(engines={"only": engine}, limits={"history_messages": 2}) as (served, service):
            await served.post(chat("One", request_id="r-1"))
            await continued(served, after="r-1", text="Two", request_id="r-2")
            answer = await continued(served, after="r-2", text="Three", request_id="r-3")
            assert sent(upstream) == [("user", "Two"), ("assistant", "Hello."), ("user", "Three")]
            whole = (await service.facade.records.predecessor(LOCAL, "r-3")).transcript
    assert answer.json["metadata"]["truncated_history"] is True
    assert [each.content for each in whole.messages] == ["One", "Hello.", "Two", "Hello.", "Three", "Hello."]


@pytest.mark.parametrize("mode", ["plan", "structured"])
async def test_the_other_modes_continue_after_an_execution_too(mode: str) -> None:
    schema = {"type": "object", "properties": {"size": {"enum": ["small"]}}, "required": ["size"]}
    output = {"output": {"schema": schema}} if mode == "structured" else {}
    async with portico() as (served, _):
        await served.post(chat(CALCULATE, request_id="q"))
        answer = await continued(served, text=CALCULATE, mode=mode, request_id="r-1", **output)
        replayed = await send_command(served, "replay", "r-1")
    assert (answer.status, answer.json["state"]) == (200, "COMPLETE")
    assert replayed.json["identical"] is True


@pytest.mark.parametrize(
    ("after", "text", "status", "code"),
    [
        ("unheard-of", "", 404, "REQUEST_NOT_FOUND"),
        ("q", "[[refuse]] Hello", 409, "REQUEST_RESUME_UNEXPECTED"),
        ("q", ASK_PERSON, 409, "REQUEST_RESUME_REQUIRED"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/execute", QUOTE])
async def test_only_an_ended_execution_whose_input_was_not_refused_is_continued(
    after: str, text: str, status: int, code: str, path: str
) -> None:
    async with portico(guardrails={"careful": {"type": "judge", "intent": "Ask for secrets."}}) as (served, _):
        await served.post(chat(text or "Hello", request_id="q", hints={"timeout": 0.2}))
        refused = await served.post(chat("Hello", after=after, request_id="r-1"), path=path)
        assert (await served.get("/v1/executions/r-1")).status == 404
    assert (refused.status, refused.json["code"]) == (status, code)


@pytest.mark.parametrize("session", [{}, {"session_id": "s"}])
async def test_a_failed_turn_is_continued_after_what_it_began_with_and_its_rounds(session: dict[str, Any]) -> None:
    async with portico() as (served, _):
        await served.post(chat("I am Ada.", request_id="first", **session))
        failed = await served.post(chat(CALCULATE, request_id="q", limits={"tool_rounds": 0}, **session))
        stored = (await served.get("/v1/sessions/s/messages")).json
        answer = await continued(served, request_id="r-1")
        replayed = [await send_command(served, "replay", each) for each in ("q", "r-1")]
        whole = (await served.get("/v1/executions/r-1/transcript")).json["data"]
    assert (failed.json["state"], answer.json["state"]) == ("ERROR", "COMPLETE"), failed.json
    assert [each["role"] for each in failed.json["messages"]] == ["assistant", "tool"]
    assert [each.json["identical"] for each in replayed] == [True, True]
    begun = [user("I am Ada."), {"role": "assistant"}] if session else []
    assert [each["role"] for each in whole[0]["messages"]] == [
        *[each["role"] for each in begun], "user", "assistant", "tool", "user", "assistant",
    ]  # fmt: skip
    if session:
        assert [each["role"] for each in stored["data"]] == ["user", "assistant"]


async def test_a_transcript_has_the_outermost_conversation_then_those_of_steps_and_is_redacted() -> None:
    steps = [
        {"name": "one", "type": "infer", "input": {"messages": [user("Write to ada@example.com")]}},
        {"name": "two", "type": "tool", "input": {"name": "calculate", "arguments": {"expression": "1+1"}}},
    ]
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q", mode="plan", plan={"steps": steps}))
        await served.post(chat(CALCULATE, request_id="c"))
        planned, asked = [(await served.get(f"/v1/executions/{each}/transcript")).json["data"] for each in "qc"]
        unknown = await served.get("/v1/executions/unknown/transcript")
    assert [(each["step_name"], each["messages"][-2]["content"]) for each in planned] == [
        ("one", "Write to ada@example.com")
    ]
    assert [each["branch"] for each in asked] == ["outermost"]
    assert [each["role"] for each in asked[0]["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert (unknown.status, unknown.json["code"]) == (404, "REQUEST_NOT_FOUND")


async def test_a_running_execution_is_not_continued() -> None:
    async with portico() as (served, service):
        await served.post(chat("[[slow:60]] Hello", request_id="q"), RESPOND_ASYNC)
        await wait_for_running(service)
        refused = [await continued(served), await fork(served, "end", messages=[user("Hello")])]
        await send_command(served, "cancel")
        await wait_for_idle(service)
    for each in refused:
        assert (each.status, each.json["code"]) == (409, "REQUEST_IN_PROGRESS")
        assert each.headers["retry-after"] == "1"


async def test_after_does_not_go_with_a_session() -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q"))
        refused = await continued(served, session_id="s")
    assert (refused.status, refused.json["code"]) == (422, "REQUEST_INVALID")
    assert refused.json["details"]["errors"][0]["field"] == "after"


@pytest.mark.parametrize("form", FORMS)
async def test_a_fork_from_the_end_asks_its_messages_after_the_transcript(form: dict[str, str]) -> None:
    async with listening() as (served, upstream):
        await fork(served, "end", form, messages=[user("Who am I?")])
        newest = (await served.get("/v1/executions?limit=1")).json["data"][0]["request_id"]
        while (await served.get(f"/v1/executions/{newest}")).json["response"] is None:
            await served.get("/livez")
        assert sent(upstream)[1:] == [("user", "I am Ada."), ("assistant", "Hello."), ("user", "Who am I?")]
        assert (await first_event(served, newest))["caused_by"] == "q"
        assert (await send_command(served, "replay", newest)).json["identical"] is True


async def test_a_fork_from_the_end_has_the_settings_of_its_origin_and_its_overrides() -> None:
    async with portico() as (served, _):
        await served.post(chat(CALCULATE, request_id="q", hints={"seed": 7, "max_tokens": 900}, metadata={"a": "b"}))
        overrides = {"messages": [user("Hello")], "hints": {"max_tokens": 800}, "tools": []}
        forked = await fork(served, "end", **overrides)
        asked = (await served.get(f"/v1/executions/{forked.json['request_id']}/input")).json
    assert (asked["after"], asked["tools"], asked["metadata"]) == ("q", [], {"a": "b"})
    assert (asked["hints"]["seed"], asked["hints"]["max_tokens"]) == (7, 800)


async def test_a_fork_from_the_end_adds_to_a_session_only_what_is_new() -> None:
    async with listening() as (served, _):
        await fork(served, "end", session_id="s", messages=[user("Who am I?")])
        page = (await served.get("/v1/sessions/s/messages")).json["data"]
    assert [each["content"] for each in page] == ["Who am I?", "Hello."]


@pytest.mark.parametrize("from_step", ["End", "", "0", None, -1, 1.0, True])
async def test_a_step_that_is_neither_a_number_nor_the_end_is_refused(from_step: Any) -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q"))
        refused = await fork(served, from_step, messages=[user("Hello")])
    assert (refused.status, refused.json["code"]) == (422, "REQUEST_INVALID")
    assert refused.json["details"]["errors"][0]["field"].startswith("from_step")


async def test_a_fork_from_the_end_without_messages_has_nothing_to_ask() -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q"))
        refused = await fork(served, "end")
    assert (refused.status, refused.json["code"]) == (422, "REQUEST_INVALID")
    assert refused.json["details"]["errors"][0]["field"] == "overrides.messages"


async def test_the_input_of_a_fork_has_its_overrides() -> None:
    async with portico() as (served, _):
        await served.post(chat(CALCULATE, request_id="q"))
        forked = await fork(served, 0, messages=[user("Hello")], tools=["roll_dice"])
        shown = (await served.get(f"/v1/executions/{forked.json['request_id']}/input")).json
    assert (shown["messages"], shown["tools"]) == ([user(CALCULATE), user("Hello")], ["roll_dice"])


async def test_the_messages_of_a_response_are_what_a_session_stores_for_the_turn() -> None:
    async with portico() as (served, _):
        alone = await served.post(chat(CALCULATE))
        turn = await served.post(chat(CALCULATE, session_id="s", request_id="t-1"))
        stored = (await served.get("/v1/sessions/s/messages")).json["data"]
        shown = (await served.get("/v1/executions/t-1")).json["response"]
        log = events(await served.get("/v1/executions/t-1/events"))
    assert alone.json["messages"] == turn.json["messages"] == shown["messages"] == stored[1:]
    assert log[-1]["response"]["messages"] == turn.json["messages"]
    assert stored[0] == user(CALCULATE)


@pytest.mark.parametrize("text", ["[[fail:400]] Hello", ASK_PERSON])
async def test_an_execution_without_an_answer_adds_no_messages(text: str) -> None:
    async with portico() as (served, _):
        assert (await served.post(chat(text))).json["messages"] == []


async def test_the_input_of_an_execution_is_its_request_as_it_was_admitted() -> None:
    async with portico() as (served, _):
        body = {"request_id": "q", "messages": [user("Hello")], "hints": {"seed": 7}, "metadata": {"a": "b"}}
        await served.post(orjson.dumps(body))
        shown = await served.get("/v1/executions/q/input")
        again = await served.post(orjson.dumps(shown.json | {"request_id": "r"}))
        unknown = await served.ask(request_bytes("GET", "/v1/executions/unheard-of/input", {}))
    assert (shown.status, again.status, unknown.status) == (200, 200, 404)
    assert {name: shown.json[name] for name in ("request_id", "messages", "metadata", "mode")} == {
        "request_id": "q",
        "messages": [user("Hello")],
        "metadata": {"a": "b"},
        "mode": "chat",
    }
    assert shown.json["hints"]["seed"] == 7


async def test_the_steps_of_a_suspended_and_resumed_execution_are_listed_with_question_and_answer() -> None:
    async with portico() as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        before = (await served.get("/v1/executions/q/steps")).json["data"]
        await resume(served)
        after = (await served.get("/v1/executions/q/steps")).json["data"]
        unknown = await served.get("/v1/executions/unheard-of/steps")
    assert unknown.status == 404
    assert after[: len(before)] == before
    assert [each["kind"] for each in before] == ["prepare", "inference", "attempt", "tool_call"]
    answer = next(each for each in after if each["kind"] == "answer")
    assert (answer["request"]["value"], answer["outcome"]) == ({"question": "May I?"}, {"payload": "yes"})


async def test_the_steps_of_a_plan_name_it_and_those_of_a_running_execution_end_where_it_is() -> None:
    call = {"name": "calculate", "arguments": {"expression": "17*3"}}
    steps = [{"name": "first", "type": "tool", "input": call}]
    async with portico() as (served, service):
        await served.post(chat("Hello", request_id="p", mode="plan", plan={"steps": steps}))
        planned = (await served.get("/v1/executions/p/steps")).json["data"]
        await served.post(chat("[[slow:60]] Hello", request_id="q"), RESPOND_ASYNC)
        await wait_for_running(service)
        while len(running := (await served.get("/v1/executions/q/steps")).json["data"]) < 2:
            await served.get("/livez")
        await send_command(served, "cancel")
        await wait_for_idle(service)
    [called] = [each for each in planned if each["kind"] == "tool_call"]
    assert (called["step_name"], called["request"]["name"]) == ("first", "calculate")
    assert [each["kind"] for each in running] == ["prepare", "inference"]
    assert running[1]["request"]["messages"] == [user("[[slow:60]] Hello")]
