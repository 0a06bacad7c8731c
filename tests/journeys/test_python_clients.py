"""Clients from PyPI, unmodified, in front of a live service and a scripted provider: a tool, a stream, an error."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.scripted_provider import ScriptedService, answered, scripted_service, streamed
from tests.support.upstream import UpstreamAction

CALL = ("p1", "look", {"at": "ü"})
ONCE = {"max_retries": 0}
"""The service tries each provider once."""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the clients would read from the environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "LANGSMITH_TRACING"):
        monkeypatch.delenv(name, raising=False)


def results(scripted: ScriptedService) -> list[tuple[str, str]]:
    """Return the ids and the texts of the results of calls that the provider got last."""
    sent = scripted.sent_messages()
    return [(each["tool_call_id"], each["content"]) for each in sent if each["role"] == "tool"]


async def test_anthropics_sdk_runs_a_tool_streams_counts_and_raises() -> None:
    scripts = (
        answered("I look.", CALL),
        answered("Seen."),
        streamed("One two."),
        streamed("One two", broken=UpstreamAction.CLOSE),
    )
    async with (
        scripted_service(*scripts, failover=ONCE) as scripted,
        anthropic.AsyncAnthropic(base_url=scripted.served.url, api_key="any", max_retries=0) as client,
    ):
        asked: dict[str, Any] = {
            "model": "default",
            "max_tokens": 64,
            "system": "Be brief.",
            "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}],
        }
        question: Any = {"role": "user", "content": "Look."}
        first = await client.messages.create(messages=[question], **asked)
        assert (first.stop_reason, [block.type for block in first.content]) == ("tool_use", ["text", "tool_use"])
        call = first.content[-1]
        assert isinstance(call, anthropic.types.ToolUseBlock)
        result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "gone", "is_error": True}
        turns: Any = [question, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second = await client.messages.create(messages=turns, **asked)
        assert [block.type for block in second.content] == ["text"]
        assert results(scripted) == [("p1", "Error: gone")]
        async with client.messages.stream(messages=[question], **asked) as stream:
            assert "".join([text async for text in stream.text_stream]) == "One two."
        counted = await client.messages.count_tokens(model="default", messages=[question])
        assert counted.input_tokens > 0
        with pytest.raises(anthropic.APIStatusError) as broken:
            async with client.messages.stream(messages=[question], **asked) as stream:
                await stream.get_final_message()
        assert broken.value.body is not None
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.create(messages=[question], **asked | {"model": "claude-9"})
        assert len(scripted.provider.requests) == 4


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


@pytest.mark.parametrize("by_responses", [False, True])
async def test_langchain_runs_a_tool_streams_and_raises(by_responses: bool) -> None:
    scripts = (
        answered("", CALL),
        answered("Done."),
        streamed("One two."),
        streamed("One two", broken=UpstreamAction.CLOSE),
    )
    async with scripted_service(*scripts, failover=ONCE) as scripted, httpx2.AsyncClient() as http:
        options: dict[str, Any] = {"model": "default", "max_retries": 0, "use_responses_api": by_responses}
        options |= {"base_url": f"{scripted.served.url}/v1", "api_key": "any", "http_async_client": http}
        model = ChatOpenAI(**options)
        question = HumanMessage("Look.")
        called = await model.bind_tools([look]).ainvoke([question])
        [call] = called.tool_calls
        result = ToolMessage(look.invoke(call["args"]), tool_call_id=call["id"])
        done = await model.bind_tools([look]).ainvoke([question, called, result])
        assert done.text == "Done."
        assert results(scripted) == [("p1", "seen ü")]
        assert "".join([chunk.text async for chunk in model.astream("Count.")]) == "One two."
        read: list[AIMessageChunk] = []
        with pytest.raises(openai.APIError):
            read += [chunk async for chunk in model.astream("Count.")]
        assert len(scripted.provider.requests) == 4


class Town(BaseModel):
    """A town."""

    name: str


@asynccontextmanager
async def pydantic_model(kind: str, scripted: ScriptedService) -> AsyncIterator[Model]:
    """Open a model of Pydantic AI that speaks this API."""
    url = scripted.served.url
    once: dict[str, Any] = {"max_retries": 0, "api_key": "any"}
    async with (
        anthropic.AsyncAnthropic(base_url=url, **once) as of_anthropic,
        openai.AsyncOpenAI(base_url=f"{url}/v1", **once) as of_openai,
    ):
        if kind == "messages":
            yield AnthropicModel("default", provider=AnthropicProvider(anthropic_client=of_anthropic))
        else:
            provider = OpenAIProvider(openai_client=of_openai)
            yield (OpenAIChatModel if kind == "chat" else OpenAIResponsesModel)("default", provider=provider)


@pytest.mark.parametrize("kind", ["chat", "responses", "messages"])
async def test_pydantic_ai_runs_a_tool_returns_a_value_streams_and_raises(kind: str) -> None:
    value = answered("", ("p2", "final_result", {"name": "Ulm"}))
    scripts = (answered("", CALL), value, streamed("One two."), answered("", finish="content_filter"))
    async with scripted_service(*scripts, failover=ONCE) as scripted, pydantic_model(kind, scripted) as model:
        agent = Agent(model, output_type=Town)
        seen: list[str] = []

        @agent.tool_plain(name="look")
        def look_at(at: str) -> str:
            seen.append(at)
            return "a town"

        assert (await agent.run("Look.")).output == Town(name="Ulm")
        assert (seen, results(scripted)) == (["ü"], [("p1", "a town")])
        async with Agent(model).run_stream("Count.") as stream:
            assert await stream.get_output() == "One two."
        with pytest.raises(ModelHTTPError) as refused:
            await Agent(model).run("Something.")
        assert refused.value.status_code == 400
