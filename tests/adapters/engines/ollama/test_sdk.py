"""Ollama: its official client and our engine hear the same from one server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from ollama import AsyncClient, ChatResponse, ResponseError
from ollama._types import ChatRequest
from ollama._types import Message as OllamaMessage

from portico.adapters.engines.dialect import EncodedRequest
from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.domain.contract.messages import Message, ModelMessage, ToolCall
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineError
from tests.adapters.engines.cases import CASES, DICE
from tests.adapters.engines.dialects import DIALECTS
from tests.adapters.engines.engine_calls import call, profile
from tests.support.emulators.answers import ANSWERS, USED, EmulatedAnswer, EmulatedCall, answer_of_reply
from tests.support.emulators.ollama import respond
from tests.support.emulators.server import KEY, EmulatedServer, engine_at
from tests.support.engine_calls import RecordedProgress

ROW = DIALECTS["ollama"]
HELLO = [{"role": "user", "content": "Hello"}]
SAID = ModelMessage(
    role="assistant",
    content="Rolling.",
    tool_calls=[ToolCall(id="call_1", name="roll_dice", arguments={"sides": 6})],
    provider="primary",
    kept=[{"thinking": "hm"}],
)
OFFERED = {"type": "function", "function": {"name": "now", "description": "Now", "parameters": {"type": "object"}}}


@asynccontextmanager
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(host=url, headers={"Authorization": f"Bearer {KEY}"}, trust_env=False) as asker:
        yield asker


def heard(*parts: ChatResponse) -> EmulatedAnswer:
    """Return the client's reading. Its types have no ids of calls."""
    for part in parts:
        ChatResponse.model_validate(part.model_dump(), strict=True)
    calls = [call.function for part in parts for call in part.message.tool_calls or ()]
    last = parts[-1]
    assert last.done
    return EmulatedAnswer(
        text="".join(part.message.content or "" for part in parts),
        reasoning="".join(part.message.thinking or "" for part in parts),
        calls=tuple(EmulatedCall("", call.name, call.arguments) for call in calls),
        finish="length" if last.done_reason == "length" else "stop",
        usage=USED._replace(input=last.prompt_eval_count or 0, output=last.eval_count or 0, cached=0, reasoning=0),
        model=last.model or "",
    )


def counted(answer: EmulatedAnswer) -> EmulatedAnswer:
    """The answer without what Ollama does not count."""
    return replace(answer, usage=answer.usage._replace(cached=0, reasoning=0))


def without_ids(answer: EmulatedAnswer) -> EmulatedAnswer:
    return replace(answer, calls=tuple(call._replace(id="") for call in answer.calls))


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_the_official_client_hears_the_scripted_answer(answer: EmulatedAnswer):
    async with EmulatedServer(respond, answer) as server, client(server.url) as asker:
        whole = await asker.chat("some-model", HELLO, tools=[OFFERED])
        parts = [part async for part in await asker.chat("some-model", HELLO, tools=[OFFERED], stream=True)]
    assert heard(whole) == heard(*parts) == without_ids(counted(answer))


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("stream", [True, False])
async def test_our_engine_hears_the_same(answer: EmulatedAnswer, stream: bool):
    listener = RecordedProgress()
    async with EmulatedServer(respond, answer) as server, engine_at(server.url, ROW.dialect) as asker:
        reply = await asker.attempt(call(tools=(DICE,)), listener, stream=stream)
    assert answer_of_reply(reply) == counted(answer)
    assert "".join(listener.texts) == (answer.text if stream else "")
    assert "".join(listener.reasonings) == (answer.reasoning if stream else "")
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("title", [title for title, case in CASES.items() if case.applies_to(ROW.capabilities)])
async def test_the_server_takes_every_case(title: str):
    case = CASES[title]
    listed = {"capabilities": ROW.capabilities, "options": case.options}
    async with (
        EmulatedServer(respond, ANSWERS["text"]) as server,
        engine_at(server.url, ROW.dialect, **listed) as asker,
    ):
        assert (await asker.attempt(case.call(ROW.kept), RecordedProgress(), stream=case.stream)).text == ANSWERS[
            "text"
        ].text
    assert server.refusals == []


async def test_what_the_official_client_sends_is_what_we_send():
    rolls = {"function": {"name": "roll_dice", "arguments": {"sides": 6}}}
    conversation: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Roll."},
        {"role": "assistant", "content": "Rolling.", "thinking": "hm", "tool_calls": [rolls]},
        {"role": "tool", "content": "4", "tool_name": "roll_dice"},
    ]
    function = {"name": DICE.name, "description": DICE.description, "parameters": DICE.parameters}
    async with EmulatedServer(respond, ANSWERS["text"]) as server, client(server.url) as asker:
        options = {"temperature": 0, "stop": ["END"], "num_ctx": 128_000}
        await asker.chat("qwen3:8b", conversation, tools=[{"function": function}], options=options, format="json")
    theirs = server.requests[0]
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="user", content="Roll."),
        SAID,
        Message(role="tool", content="4", tool_call_id="call_1"),
    ]
    hints = ExecutionHints(temperature=0, stop="END")
    ours = OllamaDialect().encode(EngineCall(messages, (DICE,), hints, schema={}), profile("qwen3:8b"), stream=False)
    assert ours.path == theirs.path
    assert as_the_client_knows_it(ours) == theirs.json()


def as_the_client_knows_it(sent: EncodedRequest) -> dict[str, Any]:
    messages = [OllamaMessage.model_validate(message) for message in sent.body["messages"]]
    return ChatRequest.model_validate(sent.body | {"messages": messages}).model_dump(exclude_none=True)


async def test_both_are_refused_alike():
    async with EmulatedServer(respond, ANSWERS["text"]) as server, client(server.url) as theirs:
        with pytest.raises(ResponseError) as caught:
            await theirs.chat("some-model", HELLO, options={"stop": "END"})
        assert caught.value.status_code == 400
        async with engine_at(server.url, OllamaDialect(), options=frozenset({"top_k"})) as ours:
            hints = ExecutionHints(options={"top_k": "many"})
            with pytest.raises(EngineError) as refused:
                await ours.attempt(call(hints=hints), RecordedProgress(), stream=True)
    assert refused.value.reason is AttemptFailureReason.REFUSED


async def test_the_server_is_reached_without_asking_a_model():
    async with EmulatedServer(respond, ANSWERS["text"]) as server, engine_at(server.url, OllamaDialect()) as asker:
        assert await asker.ping()
        async with client(server.url) as theirs:
            assert len((await theirs.list()).models) == 1
    assert [(request.method, request.path) for request in server.requests] == [("GET", "/api/tags")] * 2
