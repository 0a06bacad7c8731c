"""OpenAI's two APIs: the official client and our engine hear the same from one server, and both are understood."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI, BadRequestError
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from portico.domain.contract.messages import Message, ModelMessage
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineError
from tests.adapters.engines.cases import CASES, DICE, NOW, SCHEMA
from tests.adapters.engines.dialects import DIALECTS
from tests.adapters.engines.engine_calls import call
from tests.support.emulators import openai_chat, openai_responses
from tests.support.emulators.answers import ANSWERS, EmulatedAnswer, EmulatedCall, EmulatedUsage, answer_of_reply
from tests.support.emulators.server import KEY, EmulatedServer, Respond, engine_at
from tests.support.engine_calls import RecordedProgress

ANSWERED = {
    **ANSWERS,
    "thought_in_two_paragraphs": EmulatedAnswer("42", reasoning="Six times seven.\n\nThat is forty-two."),
    "reasoning_text_and_calls": replace(ANSWERS["text_and_parallel_calls"], reasoning="Two dice are needed."),
}
ANSWERING = pytest.mark.parametrize("answer", ANSWERED.values(), ids=ANSWERED.keys())
STREAMING = pytest.mark.parametrize("stream", [True, False])
FILTERED = EmulatedAnswer("Never said.", finish="filtered")
RESPOND: dict[str, Respond] = {
    "openai": openai_chat.respond,
    "openai_compatible": openai_chat.respond,
    "openai_responses": openai_responses.respond,
}
COMING = [
    (name, title) for name in RESPOND for title, case in CASES.items() if case.applies_to(DIALECTS[name].capabilities)
]
UNKNOWN_OPTIONS = {("openai", "options"), ("openai_responses", "options")}
FUNCTIONS = [
    {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in (DICE, NOW)
]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0) as asker:
        yield asker


def completed(reply: ChatCompletion) -> EmulatedAnswer:
    """Return the client's reading of a whole reply of chat completions."""
    TypeAdapter(ChatCompletion).validate_json(reply.model_dump_json(), strict=True)
    message, usage = reply.choices[0].message, reply.usage
    return EmulatedAnswer(
        text=message.content or "",
        reasoning=getattr(message, "reasoning_content", ""),
        calls=tuple(_emulated(call.id, call.function) for call in message.tool_calls or ()),
        finish="length" if reply.choices[0].finish_reason == "length" else "stop",
        usage=EmulatedUsage(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.completion_tokens_details.reasoning_tokens,
        ),
        model=reply.model,
    )


def joined(chunks: Iterable[ChatCompletionChunk]) -> ChatCompletion:
    """Put the chunks together by position, which the client leaves to its user."""
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning_content": ""}
    calls: dict[int, dict[str, Any]] = {}
    finish = None
    for chunk in chunks:
        TypeAdapter(ChatCompletionChunk).validate_json(chunk.model_dump_json(), strict=True)
        whole |= chunk.model_dump(exclude={"choices", "object"}, exclude_none=True)
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            message["content"] += choice.delta.content or ""
            message["reasoning_content"] += getattr(choice.delta, "reasoning_content", "")
            for piece in choice.delta.tool_calls or ():
                known = calls.setdefault(piece.index, {"type": "function", "function": {"arguments": ""}})
                known |= {"id": piece.id} if piece.id else {}
                known["function"] |= {"name": piece.function.name} if piece.function.name else {}
                known["function"]["arguments"] += piece.function.arguments
    message |= {"tool_calls": list(calls.values())} if calls else {}
    choices = [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}]
    return ChatCompletion.model_validate(whole | {"object": "chat.completion", "choices": choices})


def responded(reply: Response) -> EmulatedAnswer:
    """Return the client's reading of a response."""
    TypeAdapter(Response).validate_json(reply.model_dump_json(by_alias=True), strict=True)
    usage = reply.usage
    thoughts = [part.text for item in reply.output if item.type == "reasoning" for part in item.summary]
    return EmulatedAnswer(
        text=reply.output_text,
        reasoning="\n\n".join(thoughts),
        calls=tuple(_emulated(item.call_id, item) for item in reply.output if item.type == "function_call"),
        finish="length" if reply.status == "incomplete" else "stop",
        usage=EmulatedUsage(
            usage.input_tokens,
            usage.output_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.output_tokens_details.reasoning_tokens,
        ),
        model=reply.model,
    )


def _emulated(call_id: str, function: Any) -> EmulatedCall:
    return EmulatedCall(call_id, function.name, orjson.loads(function.arguments))


@ANSWERING
async def test_the_official_client_hears_the_scripted_completion(answer: EmulatedAnswer):
    asked: dict[str, Any] = {
        "model": "some-model",
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"type": "function", "function": function} for function in FUNCTIONS],
    }
    async with EmulatedServer(openai_chat.respond, answer) as server, client(server.url) as asker:
        whole = await asker.chat.completions.create(**asked)
        usage = {"include_usage": True}
        chunks = [
            chunk async for chunk in await asker.chat.completions.create(**asked, stream=True, stream_options=usage)
        ]
    assert completed(whole) == completed(joined(chunks)) == answer


@ANSWERING
async def test_the_official_client_hears_the_scripted_response(answer: EmulatedAnswer):
    asked: dict[str, Any] = {
        "model": "gpt-5-codex",
        "input": "Hello",
        "tools": [{"type": "function", "strict": False, **function} for function in FUNCTIONS],
    }
    async with EmulatedServer(openai_responses.respond, answer) as server, client(server.url) as asker:
        whole = await asker.responses.create(**asked)
        events = [event async for event in await asker.responses.create(**asked, stream=True)]
        async with asker.responses.stream(**asked) as stream:
            accumulated = [event async for event in stream][-1].response
    for event in events:
        EVENT.validate_json(event.model_dump_json(by_alias=True), strict=True)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == answer.text
    assert responded(whole) == responded(events[-1].response) == responded(accumulated) == answer


@ANSWERING
@STREAMING
@pytest.mark.parametrize("name", ["openai_compatible", "openai_responses"])
async def test_our_engine_hears_the_same(name: str, answer: EmulatedAnswer, stream: bool):
    row, listener = DIALECTS[name], RecordedProgress()
    async with (
        EmulatedServer(RESPOND[name], answer) as server,
        engine_at(server.url, row.dialect, model=row.model) as asker,
    ):
        reply = await asker.attempt(call(tools=(DICE, NOW)), listener, stream=stream)
    assert answer_of_reply(reply) == answer
    assert "".join(listener.texts) == (answer.text if stream else "")
    assert "".join(listener.reasonings) == (answer.reasoning if stream else "")
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in server.requests[0].path


@pytest.mark.parametrize(("name", "title"), [case for case in COMING if case not in UNKNOWN_OPTIONS])
async def test_the_server_takes_every_case(name: str, title: str):
    row, case = DIALECTS[name], CASES[title]
    await _taken(name, row.model, case.call(row.kept), stream=case.stream, options=case.options)


@pytest.mark.parametrize("model", ["gpt-5-mini", "o4-mini", "gpt-4o", "gpt-5.1"])
@pytest.mark.parametrize("title", ["all_hints", "zero_is_not_absent", "schema", "schema_that_leaves_open", "tools"])
@pytest.mark.parametrize("name", ["openai", "openai_responses"])
async def test_every_model_of_openai_takes_what_it_is_asked(name: str, model: str, title: str):
    await _taken(name, model, CASES[title].call(()), stream=False)


async def _taken(name: str, model: str, asked: EngineCall, *, stream: bool, options: frozenset[str] = frozenset()):
    row, answer = DIALECTS[name], ANSWERS["text"]
    listed: dict[str, Any] = {"model": model, "capabilities": row.capabilities, "options": options}
    async with EmulatedServer(RESPOND[name], answer) as server, engine_at(server.url, row.dialect, **listed) as asker:
        reply = await asker.attempt(asked, RecordedProgress(), stream=stream)
    assert server.refusals == []
    assert reply.text == answer.text


@pytest.mark.parametrize(("name", "title"), sorted(UNKNOWN_OPTIONS))
async def test_an_option_that_openai_does_not_know_is_its_refusal(name: str, title: str):
    row, case = DIALECTS[name], CASES[title]
    listed: dict[str, Any] = {"model": row.model, "options": case.options}
    async with (
        EmulatedServer(RESPOND[name], ANSWERS["text"]) as server,
        engine_at(server.url, row.dialect, **listed) as asker,
    ):
        with pytest.raises(EngineError) as caught:
            await asker.attempt(case.call(()), RecordedProgress(), stream=False)
    assert caught.value.reason is AttemptFailureReason.REFUSED


@STREAMING
@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["filtered", "refused"])
@pytest.mark.parametrize("name", ["openai", "openai_responses"])
async def test_what_the_provider_filters_or_the_model_refuses_is_a_fault(
    name: str, schema: dict[str, Any] | None, stream: bool
):
    row = DIALECTS[name]
    asked = EngineCall(call().messages, (), ExecutionHints(), schema)
    async with (
        EmulatedServer(RESPOND[name], FILTERED) as server,
        engine_at(server.url, row.dialect, model=row.model) as asker,
    ):
        with pytest.raises(EngineError) as caught:
            await asker.attempt(asked, RecordedProgress(), stream=stream)
    assert caught.value.reason is AttemptFailureReason.CONTENT_FILTERED


@STREAMING
@pytest.mark.parametrize(
    ("name", "model"),
    [("openai_compatible", "deepseek-reasoner"), ("openai_compatible", "gemini-3-pro"), ("openai_responses", "gpt-5")],
)
async def test_an_answer_that_is_sent_back_is_accepted(name: str, model: str, stream: bool):
    """DeepSeek demands its reasoning, OpenAI that an item of reasoning is followed by what it led to."""
    row, answer = DIALECTS[name], ANSWERED["reasoning_text_and_calls"]
    conversation = [Message(role="user", content="Roll two dice.")]
    async with (
        EmulatedServer(RESPOND[name], answer) as server,
        engine_at(server.url, row.dialect, model=model) as asker,
    ):
        for _ in range(3):
            reply = await asker.attempt(call(conversation, (DICE,)), RecordedProgress(), stream=stream)
            results = [Message(role="tool", content="4", tool_call_id=asked.id) for asked in reply.tool_calls]
            conversation += [reply.message("primary"), *results, *([] if len(conversation) < 3 else [conversation[0]])]
    assert server.refusals == []
    assert all(isinstance(message, ModelMessage) for message in conversation if message.role == "assistant")


async def test_the_responses_api_gets_back_what_it_sent():
    """The client's own way of going on is to send the output as it came; ours says the same of every item."""
    answer, row = ANSWERED["reasoning_text_and_calls"], DIALECTS["openai_responses"]
    async with (
        EmulatedServer(openai_responses.respond, answer) as server,
        engine_at(server.url, row.dialect, model=row.model) as ours,
        client(server.url) as theirs,
    ):
        reply = await ours.attempt(call(tools=(DICE,)), RecordedProgress(), stream=True)
        include = ["reasoning.encrypted_content"]
        output = (await theirs.responses.create(model=row.model, input="Hello", include=include)).to_dict()["output"]
    sent = row.dialect.encode(call([reply.message("primary")]), row.profile(), stream=False).body["input"]
    for item in output:
        item.pop("status", None)
        if item["type"] == "function_call":
            del item["id"]
        if item["type"] == "message":
            item["content"] = item["content"][0]["text"]
            del item["id"], item["type"]
    assert sent == output


async def test_the_signature_of_a_call_comes_back_with_it():
    row = DIALECTS["openai_compatible"]
    async with (
        EmulatedServer(openai_chat.respond, ANSWERS["call"]) as server,
        engine_at(server.url, row.dialect, model="gemini-3-pro") as asker,
    ):
        replies = [
            await asker.attempt(call(tools=(DICE,)), RecordedProgress(), stream=stream) for stream in (True, False)
        ]
    for reply in replies:
        sent = row.dialect.encode(call([reply.message("primary")]), row.profile(), stream=False).body["messages"]
        extra = {"google": {"thought_signature": openai_chat.SIGNATURE}}
        assert sent[0]["tool_calls"][0]["extra_content"] == extra


async def test_the_emulated_server_refuses_as_the_real_one_does():
    wrong: list[dict[str, Any]] = [
        {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5},
        {"model": "gpt-4o", "messages": [{"role": "tool", "content": "4", "tool_call_id": "x"}]},
        {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}], "tool_choice": "auto"},
        {"model": "gpt-4o", "messages": []},
    ]
    async with EmulatedServer(openai_chat.respond, ANSWERS["text"]) as server, client(server.url) as asker:
        for request in wrong:
            with pytest.raises(BadRequestError):
                await asker.chat.completions.create(**request)
