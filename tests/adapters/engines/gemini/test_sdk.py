"""Gemini: its official client and our engine hear the same from one server."""

import base64
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import aiohttp
import orjson
import pytest
from google import genai
from google.genai import types
from google.genai.errors import ClientError

from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineError
from tests.adapters.engines.cases import CASES, DICE, NOW, SCHEMA
from tests.adapters.engines.dialects import DIALECTS
from tests.adapters.engines.engine_calls import call, profile
from tests.support.emulators.answers import ANSWERS, EmulatedAnswer, EmulatedCall, EmulatedUsage, answer_of_reply
from tests.support.emulators.gemini import respond
from tests.support.emulators.server import KEY, EmulatedServer, engine_at
from tests.support.engine_calls import RecordedProgress

ROW = DIALECTS["gemini"]
DIALECT = GeminiDialect()
MODEL = "gemini-3-flash-preview"
FUNCTIONS = [
    types.FunctionDeclaration(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
    for tool in (DICE, NOW)
]
OFFERED = types.GenerateContentConfig(tools=[types.Tool(function_declarations=FUNCTIONS)])
HELLO = Message(role="user", content="Hello")
CAMEL = re.compile(r"_([a-z])")
SENT_BACK = {
    name: replace(ANSWERS[name], calls=tuple(asked._replace(id=f"fc-{asked.id}") for asked in ANSWERS[name].calls))
    for name in ("text", "call", "text_and_parallel_calls", "reasoning_and_call")
}
FILTERED = EmulatedAnswer("Never said.", finish="filtered")


@asynccontextmanager
async def client(url: str, key: str = KEY) -> AsyncIterator[genai.client.AsyncClient]:
    async with aiohttp.ClientSession() as session:
        options = types.HttpOptions(base_url=url, api_version="v1beta", aiohttp_client=session)
        async with genai.Client(api_key=key, http_options=options).aio as asker:
            yield asker


def heard(*replies: types.GenerateContentResponse) -> EmulatedAnswer:
    """Return the client's reading."""
    for reply in replies:
        types.GenerateContentResponse.model_validate(reply.model_dump(), strict=True)
    parts = [part for reply in replies for part in reply.candidates[0].content.parts]
    calls = [part.function_call for part in parts if part.function_call]
    last = replies[-1]
    return EmulatedAnswer(
        text="".join(part.text or "" for part in parts if not part.thought),
        reasoning="".join(part.text or "" for part in parts if part.thought),
        calls=tuple(EmulatedCall(call.id, call.name, call.args) for call in calls),
        finish="length" if last.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS else "stop",
        usage=_used(last.usage_metadata),
        model=last.model_version,
    )


def _used(usage: types.GenerateContentResponseUsageMetadata) -> EmulatedUsage:
    thought = usage.thoughts_token_count or 0
    written = (usage.candidates_token_count or 0) + thought
    return EmulatedUsage(usage.prompt_token_count, written, usage.cached_content_token_count or 0, thought)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_the_official_client_hears_the_scripted_answer(answer: EmulatedAnswer):
    async with EmulatedServer(respond, answer) as server, client(server.url) as asker:
        whole = await asker.models.generate_content(model=MODEL, contents="Hello", config=OFFERED)
        stream = await asker.models.generate_content_stream(model=MODEL, contents="Hello", config=OFFERED)
        pieces = [piece async for piece in stream]
    assert heard(whole) == heard(*pieces) == answer


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("stream", [True, False])
async def test_our_engine_hears_the_same(answer: EmulatedAnswer, stream: bool):
    listener = RecordedProgress()
    async with EmulatedServer(respond, answer) as server, engine_at(server.url, DIALECT, model=MODEL) as asker:
        reply = await asker.attempt(call(tools=(DICE, NOW)), listener, stream=stream)
    assert answer_of_reply(reply) == answer
    assert "".join(listener.texts) == (answer.text if stream else "")
    assert "".join(listener.reasonings) == (answer.reasoning if stream else "")
    assert server.requests[0].headers["x-goog-api-key"] == KEY
    assert KEY not in server.requests[0].path


@pytest.mark.parametrize("title", [title for title, case in CASES.items() if case.applies_to(ROW.capabilities)])
@pytest.mark.parametrize("model", [MODEL, "gemini-2.5-flash"])
async def test_the_server_takes_every_case(title: str, model: str):
    case = CASES[title]
    listed = {"model": model, "capabilities": ROW.capabilities, "options": case.options}
    async with EmulatedServer(respond, ANSWERS["text"]) as server, engine_at(server.url, DIALECT, **listed) as asker:
        assert (await asker.attempt(case.call(ROW.kept), RecordedProgress(), stream=case.stream)).text == ANSWERS[
            "text"
        ].text
    assert server.refusals == []


@pytest.mark.parametrize("answer", SENT_BACK.values(), ids=SENT_BACK.keys())
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_is_sent_back_as_the_official_client_sends_it(answer: EmulatedAnswer, stream: bool):
    async with EmulatedServer(respond, answer) as server, engine_at(server.url, DIALECT, model=MODEL) as asker:
        reply = await asker.attempt(call(tools=(DICE, NOW)), RecordedProgress(), stream=stream)
        results = [
            Message(role="tool", content="4", tool_call_id=asked.id, name=asked.name) for asked in reply.tool_calls
        ]
        messages = [HELLO, reply.message("primary"), *results, Message(role="user", content="And?")]
        await asker.attempt(call(messages, (DICE, NOW)), RecordedProgress(), stream=stream)
        ours = server.requests[-1].json()
        async with client(server.url) as theirs:
            chat = theirs.chats.create(model=MODEL, config=OFFERED)
            await said_by(chat, "Hello", stream=stream)
            responses = [
                types.FunctionResponse(id=asked.id, name=asked.name, response={"output": "4"}) for asked in answer.calls
            ]
            parts = [types.Part(function_response=response) for response in responses]
            await said_by(chat, [*parts, types.Part(text="And?")], stream=stream)
    assert comparable(ours) == comparable(server.requests[-1].json())
    assert server.refusals == []


async def said_by(chat: Any, message: Any, *, stream: bool) -> None:
    if stream:
        async for _ in await chat.send_message_stream(message):
            pass
    else:
        await chat.send_message(message)


def comparable(request: dict[str, Any]) -> list[Any]:
    """Return the contents in turn, with signatures in one alphabet, unsigned texts joined, and no unsigned thoughts,
    which the client tells again without need; of a stream it makes every chunk a content.
    """
    turns = groupby(request["contents"], key=itemgetter("role"))
    return [(role, list(_joined([part for said in turn for part in said["parts"]]))) for role, turn in turns]


def _joined(parts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    text = ""
    for part in parts:
        if part.keys() == {"text"}:
            text += part["text"]
            continue
        if text:
            yield {"text": text}
        text = ""
        if "thoughtSignature" in part:
            signature = base64.b64encode(base64.urlsafe_b64decode(part["thoughtSignature"])).decode()
            yield part | {"thoughtSignature": signature}
        elif not part.get("thought"):
            yield part
    if text:
        yield {"text": text}


async def test_what_the_official_client_sends_is_what_we_send():
    asked = types.GenerateContentConfig(
        system_instruction="Be brief.",
        temperature=0,
        stop_sequences=["END"],
        max_output_tokens=9,
        thinking_config=types.ThinkingConfig(thinking_level=types.ThinkingLevel.LOW),
        tools=OFFERED.tools,
        tool_config=types.ToolConfig(
            function_calling_config=types.FunctionCallingConfig(
                mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["now"]
            )
        ),
        response_mime_type="application/json",
        response_json_schema=dict(SCHEMA),
    )
    hints = ExecutionHints(
        temperature=0,
        stop="END",
        max_tokens=9,
        tool_choice=NamedTool(name="now"),
        options={"thinkingConfig": {"thinkingLevel": "LOW"}},
    )
    messages = (Message(role="system", content="Be brief."), HELLO)
    ours = DIALECT.encode(
        EngineCall(messages, (DICE, NOW), hints, schema=SCHEMA), profile(MODEL, frozenset(hints.options)), stream=True
    )
    async with EmulatedServer(respond, ANSWERS["text"]) as server, client(server.url) as asker:
        stream = await asker.models.generate_content_stream(model=MODEL, contents="Hello", config=asked)
        assert [piece async for piece in stream]
    assert ours.path == server.requests[0].path
    assert ours.body == camel(server.requests[0].json())


def camel(value: Any) -> Any:
    """The client spells some members of a request as Python does; the reference knows both."""
    if isinstance(value, dict):
        return {CAMEL.sub(lambda found: found[1].upper(), key): camel(member) for key, member in value.items()}
    return [camel(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("stream", [True, False])
async def test_a_filtered_answer_is_none(stream: bool):
    async with EmulatedServer(respond, FILTERED) as server, engine_at(server.url, DIALECT) as ours:
        with pytest.raises(EngineError) as caught:
            await ours.attempt(call(), RecordedProgress(), stream=stream)
        assert caught.value.reason is AttemptFailureReason.CONTENT_FILTERED
        async with client(server.url) as theirs:
            reply = await theirs.models.generate_content(model=MODEL, contents="Hello")
    assert reply.candidates[0].finish_reason is types.FinishReason.SAFETY


@pytest.mark.parametrize("stream", [True, False])
async def test_both_are_refused_alike(stream: bool):
    async with EmulatedServer(respond, ANSWERS["text"]) as server, client(server.url) as theirs:
        with pytest.raises(ClientError) as refused:
            await theirs.models.generate_content(model=MODEL, contents="Hello", config={"stop_sequences": [*"abcdef"]})
        assert refused.value.status == "INVALID_ARGUMENT"
        async with engine_at(server.url, DIALECT) as ours:
            with pytest.raises(EngineError) as caught:
                await ours.attempt(call(hints=ExecutionHints(stop=[*"abcdef"])), RecordedProgress(), stream=stream)
    assert caught.value.reason is AttemptFailureReason.REFUSED


async def test_a_wrong_key_is_known_as_one():
    async with EmulatedServer(respond, ANSWERS["text"]) as server, client(server.url, key="other") as theirs:
        with pytest.raises(ClientError, match="API key not valid"):
            await theirs.models.generate_content(model=MODEL, contents="Hello")
    assert DIALECT.failure_reason(*server.refusals[0]) is AttemptFailureReason.CREDENTIALS


async def test_the_server_is_reached_without_asking_a_model():
    async with EmulatedServer(respond, ANSWERS["text"]) as server, engine_at(server.url, DIALECT) as asker:
        assert await asker.ping()
    assert [(request.method, request.path) for request in server.requests] == [("GET", "/v1beta/models?pageSize=1")]


TEXT = {"role": "user", "parts": [{"text": "Hello"}]}
CALL = {"role": "model", "parts": [{"functionCall": {"name": "now", "args": {}}, "thoughtSignature": "YQ=="}]}
RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "now", "response": {}}}]}
TOOLS = [{"functionDeclarations": [{"name": "now", "description": "Now."}]}]


def asked(*contents: Any, **members: Any) -> dict[str, Any]:
    return {"contents": list(contents), **members}


def answered(request: Any, model: str = MODEL) -> int:
    path = f"/v1beta/models/{model}:generateContent"
    return respond(path, {"x-goog-api-key": KEY}, orjson.dumps(request), ANSWERS["text"]).status


@pytest.mark.parametrize(
    "request_",
    [
        asked(),
        asked(TEXT, safety=[]),
        asked(TEXT | {"role": "system"}),
        asked(TEXT | {"parts": []}),
        asked(TEXT | {"parts": [{"text": ""}]}),
        asked(TEXT | {"parts": [{"text": "a", "inlineData": {"mimeType": "image/png", "data": "YQ=="}}]}),
        asked(TEXT | {"parts": [{"inlineData": {"mimeType": "image/png", "data": "?"}}]}),
        asked(TEXT, CALL, TEXT),
        asked(TEXT, RESULT),
        asked(TEXT, CALL, RESULT | {"parts": RESULT["parts"] * 2}),
        asked(TEXT, CALL, {"role": "user", "parts": [{"functionResponse": {"name": "then", "response": {}}}]}),
        asked(TEXT, CALL, {"role": "user", "parts": [{"functionResponse": {"name": "now", "response": "noon"}}]}),
        asked(TEXT, CALL | {"parts": [{"functionCall": {"name": "now"}}]}, RESULT),
        asked(TEXT, toolConfig={"functionCallingConfig": {"mode": "ANY"}}),
        asked(TEXT, tools=TOOLS, toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["x"]}}),
        asked(TEXT, tools=[{"functionDeclarations": [{"name": "1st"}]}]),
        asked(TEXT, tools=[{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"const": 1}}]}]),
        asked(TEXT, generationConfig={"seed": 2**31}),
        asked(TEXT, generationConfig={"responseJsonSchema": {"type": "object"}}),
        asked(
            TEXT,
            generationConfig={"responseMimeType": "application/json", "responseJsonSchema": {"required": ["a"]}},
        ),
    ],
)
def test_the_server_refuses_what_the_reference_forbids(request_: Any):
    assert answered(request_) == 400


def test_the_server_takes_what_the_reference_allows():
    assert answered(asked(TEXT, CALL, RESULT, tools=TOOLS)) == 200
    unsigned = CALL | {"parts": [{"functionCall": {"name": "now"}}]}
    assert answered(asked(TEXT, unsigned, RESULT), "gemini-2.5-flash") == 200
    as_json = {"response_mime_type": "application/json", "response_json_schema": {"type": "object"}}
    assert answered(asked(TEXT, tools=TOOLS, generation_config=as_json)) == 200
    assert answered(asked(TEXT, tools=TOOLS, generation_config=as_json), "gemini-2.5-flash") == 400
