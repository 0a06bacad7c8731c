"""Anthropic: its official client and our engine hear the same from one server, and the server takes all we send."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message as TheirMessage

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.domain.contract.messages import Message, ModelMessage, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineError
from tests.adapters.engines.cases import (
    CASES,
    DICE,
    HELLO,
    IMAGE,
    NOW,
    OPEN_SCHEMA,
    PARALLEL,
    ROLL,
    ROLL_SIX,
    SCHEMA,
    OpaqueBlocks,
    assistant,
    result,
    system,
    thought,
    user,
)
from tests.adapters.engines.dialects import DIALECTS
from tests.adapters.engines.engine_calls import call, profile
from tests.support.emulators.answers import ANSWERS, EmulatedAnswer, EmulatedCall, EmulatedUsage
from tests.support.emulators.answers import answer_of_reply as understood
from tests.support.emulators.anthropic import respond, signature
from tests.support.emulators.server import KEY, EmulatedServer, engine_at
from tests.support.engine_calls import RecordedProgress

ROW = DIALECTS["anthropic_4_5"]
MODEL, NEW, BOUND = ROW.model, "claude-opus-4-8", DIALECTS["anthropic"].model
HI: list[Any] = [{"role": "user", "content": "Hello"}]
SIGNED: OpaqueBlocks = (
    {"type": "thinking", "thinking": "hm", "signature": signature("hm")},
    {"type": "redacted_thinking", "data": "c2VhbA==", "index": 1},
)
THINK: dict[str, Any] = {"type": "enabled", "budget_tokens": 2048}
ADAPTIVE: dict[str, Any] = {"type": "adaptive"}


@asynccontextmanager
async def client(url: str) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as asker:
        yield asker


def heard(message: TheirMessage) -> EmulatedAnswer:
    """Return the client's reading, checked against its types."""
    parsed = TheirMessage.model_validate(message.model_dump(), strict=True)
    usage, finish = parsed.usage, parsed.stop_reason
    cached = usage.cache_read_input_tokens or 0
    reasoned = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else 0
    for block in parsed.content:
        assert block.type != "thinking" or block.signature == signature(block.thinking)
    return EmulatedAnswer(
        text="".join(block.text for block in parsed.content if block.type == "text"),
        reasoning="".join(block.thinking for block in parsed.content if block.type == "thinking"),
        calls=tuple(
            EmulatedCall(block.id, block.name, block.input) for block in parsed.content if block.type == "tool_use"
        ),
        finish="length" if finish == "max_tokens" else "filtered" if finish == "refusal" else "stop",
        usage=EmulatedUsage(usage.input_tokens + cached, usage.output_tokens, cached, reasoned),
        model=str(parsed.model),
    )


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_the_official_client_hears_the_scripted_answer(answer: EmulatedAnswer):
    async with EmulatedServer(respond, answer) as server, client(server.url) as asker:
        whole = await asker.messages.create(model=MODEL, max_tokens=64, messages=HI)
        async with asker.messages.stream(model=MODEL, max_tokens=64, messages=HI) as stream:
            streamed = await stream.get_final_message()
    assert heard(whole) == heard(streamed) == answer


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("stream", [True, False])
async def test_our_engine_hears_the_same(answer: EmulatedAnswer, stream: bool):
    listener = RecordedProgress()
    async with EmulatedServer(respond, answer) as server, engine_at(server.url, ROW.dialect, model=MODEL) as asker:
        reply = await asker.attempt(call(tools=(DICE, NOW)), listener, stream=stream)
    assert understood(reply) == answer
    assert "".join(listener.texts) == (answer.text if stream else "")
    assert "".join(listener.reasonings) == (answer.reasoning if stream else "")
    signed = {"type": "thinking", "thinking": answer.reasoning, "signature": signature(answer.reasoning)}
    assert reply.kept == ((signed,) if answer.reasoning else ())
    assert server.requests[0].headers["x-api-key"] == KEY


@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_is_heard_by_both(stream: bool):
    refusal = EmulatedAnswer("I can't", finish="filtered")
    async with EmulatedServer(respond, refusal) as server, client(server.url) as theirs:
        assert heard(await theirs.messages.create(model=MODEL, max_tokens=64, messages=HI)) == refusal
        async with engine_at(server.url, ROW.dialect, model=MODEL) as ours:
            with pytest.raises(EngineError) as caught:
                await ours.attempt(call(), RecordedProgress(), stream=stream)
    assert caught.value.reason is AttemptFailureReason.CONTENT_FILTERED


SAMPLED = (MODEL, "claude-3-7-sonnet-latest")
COMING = [
    (title, model)
    for title, case in CASES.items()
    for model in (*SAMPLED, NEW, "claude-sonnet-5", BOUND)
    if case.applies_to(ROW.capabilities if model != BOUND else DIALECTS["anthropic"].capabilities)
    and not (title == "options" and model not in SAMPLED)
    and not (title == "thought_before_results" and model == BOUND)
]
"""Every case, but for an option that new models refuse and a thought that was not signed with what was before it."""


@pytest.mark.parametrize(("title", "model"), COMING)
async def test_the_server_takes_every_case(title: str, model: str):
    case = CASES[title]
    listed = {"capabilities": ROW.capabilities, "options": case.options, "model": model}
    async with (
        EmulatedServer(respond, ANSWERS["text"]) as server,
        engine_at(server.url, ROW.dialect, **listed) as asker,
    ):
        assert (await asker.attempt(case.call(SIGNED), RecordedProgress(), stream=case.stream)).text == ANSWERS[
            "text"
        ].text
    assert server.refusals == []


ODD = ToolCall(id="functions.roll:0", name="no such/tool", arguments={})
STRANGE: dict[str, tuple[Message, ...]] = {
    "blanks": (user(" "), assistant(""), HELLO, assistant("\n"), user([TextPart(type="text", text="")]), user("Hm?")),
    "ids of others": (ROLL, assistant("", ODD), result(ODD, ""), assistant("", ODD), result(ODD, " ")),
    "only a thought": (ROLL, thought(SIGNED, ""), user("Well?")),
    "system last": (HELLO, assistant("Hi."), system("Be brief.")),
    "system amid results": (*PARALLEL, system("Be brief."), user("Thanks."), system("In verse.")),
    "system behind an answer": (HELLO, assistant("Hi."), system("Be brief."), assistant("Hm."), user("What?")),
}


@pytest.mark.parametrize("model", [MODEL, NEW])
@pytest.mark.parametrize("messages", STRANGE.values(), ids=STRANGE.keys())
async def test_the_server_takes_conversations_that_it_would_refuse_word_by_word(
    messages: tuple[Message, ...], model: str
):
    async with (
        EmulatedServer(respond, ANSWERS["text"]) as server,
        engine_at(server.url, ROW.dialect, model=model) as asker,
    ):
        await asker.attempt(call(messages), RecordedProgress(), stream=False)
    assert server.refusals == []


@pytest.mark.parametrize(
    "asked",
    [
        call((ROLL,), (DICE,), ExecutionHints(tool_choice="required", temperature=0.3)),
        call((ROLL,), (DICE,), ExecutionHints(tool_choice=NamedTool(name="roll_dice"))),
        call((HELLO,), (), ExecutionHints(temperature=0.3, top_p=0.5, stop=["\n", "END"], seed=7)),
        call((ROLL, thought(SIGNED, "", ROLL_SIX), result(ROLL_SIX, "4")), (DICE,)),
        call((ROLL, assistant("Rolling.", ROLL_SIX), result(ROLL_SIX, "4")), (DICE,)),
        call((ROLL, assistant("", ROLL_SIX), result(ROLL_SIX, "4"), user("Now?")), (DICE,)),
        call((ROLL, assistant("", ROLL_SIX), result(ROLL_SIX, "4"), assistant("A four."), user("Now?")), (DICE,)),
        EngineCall((HELLO,), (), ExecutionHints(temperature=0.3), schema=SCHEMA),
        EngineCall((HELLO,), (), ExecutionHints(), schema=OPEN_SCHEMA),
    ],
)
async def test_the_server_takes_a_thinking_budget_beside_every_other_parameter(asked: EngineCall):
    hints = asked.hints.model_copy(update={"options": {"thinking": THINK}})
    listed = {"model": MODEL, "options": frozenset({"thinking"})}
    async with (
        EmulatedServer(respond, ANSWERS["text"]) as server,
        engine_at(server.url, ROW.dialect, **listed) as asker,
    ):
        await asker.attempt(replace(asked, hints=hints), RecordedProgress(), stream=True)
    assert server.refusals == []


@pytest.mark.parametrize(("model", "option"), [(MODEL, THINK), (BOUND, ADAPTIVE)])
async def test_what_was_thought_is_taken_back_with_the_results_of_its_calls(model: str, option: dict[str, Any]):
    listed = {"model": model, "options": frozenset({"thinking"})}
    hints = ExecutionHints(options={"thinking": option})
    answer = ANSWERS["reasoning_and_call"]
    async with EmulatedServer(respond, answer) as server, engine_at(server.url, ROW.dialect, **listed) as asker:
        reply = await asker.attempt(call((ROLL,), (DICE,), hints), RecordedProgress(), stream=True)
        said = reply.message("primary")
        await asker.attempt(
            call((ROLL, said, result(reply.tool_calls[0], "4")), (DICE,), hints), RecordedProgress(), stream=True
        )
    assert isinstance(said, ModelMessage)
    assert server.refusals == []
    assert server.requests[1].json()["thinking"] == option
    assert server.requests[1].json()["messages"][1]["content"][0]["thinking"] == answer.reasoning


@pytest.mark.parametrize("model", [MODEL, NEW, BOUND])
async def test_what_was_thought_does_not_forbid_to_change_what_was_before_it(model: str):
    answer = ANSWERS["reasoning_and_call"]
    async with EmulatedServer(respond, answer) as server, engine_at(server.url, ROW.dialect, model=model) as asker:
        reply = await asker.attempt(call((system("Be brief."), HELLO, ROLL), (DICE,)), RecordedProgress(), stream=False)
        turn = (reply.message("primary"), result(reply.tool_calls[0], "4"), assistant("A four."))
        await asker.attempt(
            call((system("Be polite."), ROLL, *turn, user("Again.")), (NOW,)), RecordedProgress(), stream=False
        )
    assert server.refusals == []


async def test_what_the_official_client_sends_is_what_we_send():
    image = {"type": "base64", "media_type": "image/png", "data": IMAGE.data}
    conversation: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Roll this."}, {"type": "image", "source": image}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": signature("hm")},
                {"type": "tool_use", "id": "call_1", "name": "roll_dice", "input": {"sides": 6}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "4"}]},
    ]
    tool: Any = {"name": DICE.name, "description": DICE.description, "input_schema": dict(DICE.parameters)}
    async with EmulatedServer(respond, ANSWERS["text"]) as server, client(server.url) as asker:
        await asker.messages.create(
            model=MODEL,
            max_tokens=4_096,
            system="Be brief.",
            messages=conversation,
            tools=[tool],
            tool_choice={"type": "auto"},
            stop_sequences=["END"],
            output_config={"format": {"type": "json_schema", "schema": {"type": "string"}}},
            stream=False,
        )
    theirs = server.requests[0]
    messages = [
        system("Be brief."),
        user([TextPart(type="text", text="Roll this."), IMAGE]),
        thought(SIGNED[:1], "", ROLL_SIX),
        result(ROLL_SIX, "4"),
    ]
    hints = ExecutionHints(stop="END", tool_choice="auto")
    asked = EngineCall(messages, (DICE,), hints, schema={"type": "string"})
    ours = AnthropicDialect().encode(asked, profile(MODEL), stream=False)
    assert (ours.path, ours.body) == (theirs.path, theirs.json())


async def test_both_are_refused_alike():
    async with EmulatedServer(respond, ANSWERS["text"]) as server, client(server.url) as theirs:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await theirs.messages.create(model=MODEL, max_tokens=64, messages=HI, extra_body={"temperature": 1.5})
        assert caught.value.type == "invalid_request_error"
        async with engine_at(server.url, ROW.dialect, model=MODEL) as ours:
            with pytest.raises(EngineError) as refused:
                await ours.attempt(call(hints=ExecutionHints(temperature=1.5)), RecordedProgress(), stream=True)
    assert refused.value.reason is AttemptFailureReason.REFUSED
