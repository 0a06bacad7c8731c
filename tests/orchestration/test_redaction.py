"""Redaction: a principal without the full history sees no secret of it, and neither does a model on its behalf."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import orjson
import pytest

from portico.bootstrap.service import Service, open_service
from portico.domain.access.principal import LOCAL, Permissions
from portico.domain.contract.messages import Message
from portico.domain.contract.request import SystemRequest
from portico.entrypoints.http.sse import FrameEncoder
from portico.orchestration.facade import CallOptions, ExecutionHandle
from portico.orchestration.runtime.fork import ForkRequest
from portico.orchestration.runtime.resume import ResumeRequest
from portico.orchestration.runtime.step_list import StepView
from portico.ports.storage import ExecutionFilter, SuspensionFilter
from portico.settings import Secret, Settings
from tests.support.emulators import openai_chat
from tests.support.emulators.answers import EmulatedAnswer
from tests.support.emulators.server import KEY, EmulatedServer

SECRETS = {
    "email": "ada@canary.example",
    "password": "hunter2canary",
    "card": "4111 1111 1111 1111",
    "authorization": "QmVhcmVyY2FuYXJ5",
}
INTRODUCTION = "I am ada@canary.example, password: hunter2canary, card 4111 1111 1111 1111, Bearer QmVhcmVyY2FuYXJ5"
ASK = f'Use ask_person: "Is {INTRODUCTION} right?"'
NARROW = replace(LOCAL, permissions=Permissions.of(("can_send_messages", "model:*", "tool:*")))
TABLES = {
    "storage": {"url": "sqlite://"},
    "telemetry": {"log_level": "error"},
    "engines": {"rehearsal": {"model": "rehearsal://"}},
}


@asynccontextmanager
async def service(**tables: Any) -> AsyncIterator[Service]:
    async with open_service(Settings.model_validate(TABLES | tables)) as opened:
        yield opened


def request(text: str, **fields: Any) -> SystemRequest:
    return SystemRequest.model_validate({"messages": [{"role": "user", "content": text}], "session_id": "s", **fields})


async def finished(handle: object) -> ExecutionHandle:
    assert isinstance(handle, ExecutionHandle)
    with anyio.fail_after(60):
        await handle.wait()
    return handle


async def prepared(here: Service, request_id: str) -> Mapping[str, Any]:
    """Return what the model was first asked, as it is stored."""
    [step] = [each for each in (await here.facade.records.steps(LOCAL, request_id)).steps if each.key == "prepare"]
    assert isinstance(step.outcome, dict)
    return step.outcome


def leaked(shown: object) -> set[str]:
    """Return the kinds of the secrets in what was shown, apart from the text of an answer."""
    return {kind for kind, secret in SECRETS.items() if secret in orjson.dumps(_without_answer(shown)).decode()}


def _without_answer(shown: Any) -> Any:
    if isinstance(shown, dict):
        return {name: _without_answer(each) for name, each in shown.items() if name != "content" or "role" in shown}
    return [_without_answer(each) for each in shown] if isinstance(shown, list) else shown


async def test_the_same_conversation_is_given_to_a_model_as_its_principal_may_see_it() -> None:
    async with service() as here:
        await finished(await here.facade.execute(request(INTRODUCTION, request_id="first"), LOCAL))
        own = "And write to bob@canary.example"
        await finished(await here.facade.execute(request(own, request_id="narrow"), NARROW))
        await finished(await here.facade.execute(request("Hello", request_id="whole"), LOCAL))
        narrow, whole = await prepared(here, "narrow"), await prepared(here, "whole")
        assert leaked(narrow) == set()
        assert narrow["messages"][-1]["content"] == own
        # The question and the answer, which repeats it.
        assert narrow["context"]["redacted"] == dict.fromkeys(SECRETS, 2)
        assert leaked(whole) == set(SECRETS)
        assert whole["context"]["redacted"] == {}
        stored = await here.facade.sessions.messages(LOCAL, "s", after=0, limit=10)
        assert leaked([message.model_dump() for message in stored.messages]) == set(SECRETS)
        for request_id in ("narrow", "whole"):
            assert (await here.facade.executions.replay(LOCAL, request_id)).identical


async def test_a_transcript_is_redacted_before_it_goes_on() -> None:
    async with service() as here:
        await finished(await here.facade.execute(request(INTRODUCTION, request_id="first"), LOCAL))
        after = request("Go on", request_id="next", session_id=None, after="first")
        await finished(await here.facade.execute(after, NARROW))
        found = await prepared(here, "next")
        assert leaked(found) == set()
        assert found["context"]["redacted"] == dict.fromkeys(SECRETS, 2)


async def shown_to(here: Service, principal: Any) -> dict[str, object]:
    """Return what each read of the suspended execution shows to the principal."""
    facade = here.facade
    page = await facade.executions.page(principal, ExecutionFilter(), after=None, limit=10)
    questions = await facade.records.suspensions(principal, SuspensionFilter(), after=None, limit=10)
    stored = await facade.executions.events(principal, "q")
    subscription = await facade.executions.read(principal, "q")
    with anyio.fail_after(60):
        frames = FrameEncoder().encode(await subscription.next()).decode()
    subscription.close()
    return {
        "show": (await facade.executions.show(principal, "q")).model_dump(mode="json"),
        "page": [each.model_dump(mode="json") for each in page.executions],
        "suspensions": [each.model_dump(mode="json") for each in questions.suspensions],
        "input": (await facade.records.input(principal, "q")).model_dump(mode="json"),
        "steps": [each.model_dump(mode="json") for each in (await facade.records.steps(principal, "q")).steps],
        "events": [orjson.loads(orjson.dumps(each.event, default=lambda it: it.model_dump())) for each in stored],
        "stream": [orjson.loads(line[6:]) for line in frames.splitlines() if line.startswith("data: ")],
        "messages": [
            each.model_dump() for each in (await facade.sessions.messages(principal, "s", after=0, limit=10)).messages
        ],
    }


async def test_no_read_shows_a_secret_to_a_principal_without_the_full_history() -> None:
    async with service() as here:
        await finished(await here.facade.execute(request(INTRODUCTION), LOCAL))
        await finished(await here.facade.execute(request(ASK, request_id="q"), LOCAL))
        whole, narrow = await shown_to(here, LOCAL), await shown_to(here, NARROW)
        assert {name for name, shown in whole.items() if leaked(shown) != set(SECRETS)} == set()
        assert {name: leaked(shown) for name, shown in narrow.items() if leaked(shown)} == {}


@pytest.mark.parametrize("subscribe", [False, True])
async def test_an_execution_shows_its_caller_the_answer_but_no_secret_of_its_calls(subscribe: bool) -> None:
    async with service() as here:
        options = CallOptions(subscribe=subscribe)
        handle = await finished(await here.facade.execute(request(ASK, request_id="q"), NARROW, options))
        assert handle.response is not None
        [question] = handle.response.suspensions
        assert "[redacted:email]" in str(question.value)
        assert leaked(handle.response.model_dump(mode="json")) == set()
        if handle.subscription is not None:
            frames = FrameEncoder().encode(await handle.subscription.next()).decode()
            assert leaked(frames) == set()
            assert "[redacted:password]" in frames


async def test_a_fork_shows_a_model_what_its_principal_may_see_of_the_origin() -> None:
    own = {"role": "user", "content": "And write to bob@canary.example"}
    async with EmulatedServer(openai_chat.respond, EmulatedAnswer(INTRODUCTION)) as upstream:
        engine = {"model": "openai://some-model", "base_url": upstream.url, "api_key_env": Secret(KEY)}
        async with service(engines={"one": engine}) as here:
            await finished(await here.facade.execute(request(INTRODUCTION, request_id="q", session_id=None), LOCAL))
            for principal, kinds in ((LOCAL, set(SECRETS)), (NARROW, set())):
                forked = ForkRequest.model_validate({"from_step": 0, "overrides": {"messages": [own]}})
                handle = await finished(await here.facade.fork("q", forked, principal))
                assert handle.response is not None
                assert handle.response.error is None
                asked = orjson.loads(upstream.requests[-1].body)["messages"]
                assert leaked(asked) == kinds
                assert asked[-1]["content"] == own["content"]
                assert (await here.facade.executions.replay(LOCAL, handle.request_id)).identical


CLIENT_TOOL = {
    "name": "send_file",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


@pytest.mark.parametrize("way", ["end", "suspend"])
async def test_the_arguments_of_client_calls_reach_the_client_as_the_model_wrote_them(way: str) -> None:
    """A client that was given `[redacted:email]` would write it into a file."""
    whole = {"text": INTRODUCTION}
    left = [whole] if way == "end" else []
    async with service() as here:
        asked = request(f'Use send_file: "{INTRODUCTION}"', client_tools=[CLIENT_TOOL], on_client_call=way)
        options = CallOptions(subscribe=True)
        handle = await finished(await here.facade.execute(asked, NARROW, options))
        shown = [handle.response, (await here.facade.executions.show(NARROW, handle.request_id)).response]
        last = (await here.facade.executions.events(NARROW, handle.request_id))[-1].event
        for response in (*shown, last.response):
            assert response is not None
            assert [made.arguments for made in response.tool_calls_made] == [whole]
            assert [call.arguments for message in response.messages for call in message.tool_calls or ()] in (
                [whole],
                [],
            )
            assert [call.arguments for call in response.client_calls] == left
            assert [each.value for each in response.suspensions] == ([whole] if way == "suspend" else [])
        steps = (await here.facade.records.steps(NARROW, handle.request_id)).steps
        called = [step.outcome["tool_calls"] for step in steps if isinstance(step, StepView) and step.kind == "attempt"]
        assert [call["arguments"] for calls in called for call in calls] == [whole]
        if way == "suspend":
            assert handle.subscription is not None
            published = [item.event for item in handle.subscription.take()]
            assert [each.arguments for each in published if each.type == "tool.content"] == [whole]
            page = await here.facade.records.suspensions(NARROW, SuspensionFilter(), after=None, limit=9)
            assert [each.value for each in page.suspensions] == [whole]
            given = ResumeRequest(tool_id="send_file", payload={"result": "written"})
            await finished(await here.facade.executions.resume(NARROW, handle.request_id, given, subscribe=False))
            steps = (await here.facade.records.steps(NARROW, handle.request_id)).steps
            asked_of = [step.request for step in steps if isinstance(step, StepView) and isinstance(step.request, dict)]
            sent = [message for request in asked_of for message in request.get("messages", ())]
            again = [call["arguments"] for message in sent for call in message.get("tool_calls") or ()]
            assert again == [whole] * len(again) != []
        shown_page = await here.facade.sessions.messages(NARROW, "s", after=0, limit=10)
        said = [*shown_page.messages, *(await transcribed(here, handle.request_id))]
        assert [call.arguments for message in said for call in message.tool_calls or ()] == [whole, whole]
        assert leaked([message.model_dump(exclude={"tool_calls"}) for message in said]) == set()


async def transcribed(here: Service, request_id: str) -> Sequence[Message]:
    """Return the outermost conversation of the execution as it is shown to a principal without the full history."""
    [branch] = await here.facade.records.transcripts(NARROW, request_id)
    return [Message.model_validate(each) for each in branch.messages]


async def test_a_call_of_the_service_stays_redacted_beside_client_calls_of_its_session() -> None:
    async with service() as here:
        asked = request(f'Use calculate: "{INTRODUCTION}"', request_id="server", tools=["calculate"])
        await finished(await here.facade.execute(asked, NARROW))
        asked = request(f'Use send_file: "{INTRODUCTION}"', client_tools=[CLIENT_TOOL], on_client_call="end")
        await finished(await here.facade.execute(asked, NARROW))
        page = await here.facade.sessions.messages(NARROW, "s", after=0, limit=10)
        calls = {call.name: call.arguments for message in page.messages for call in message.tool_calls or ()}
        assert (leaked(calls["send_file"]), leaked(calls["calculate"])) == (set(SECRETS), set())
