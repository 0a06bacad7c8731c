"""Streams that a drain, a cut connection or a slow reader ends: no client takes one for success or shows text twice."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import anthropic
import anyio
import httpx2
import openai
import orjson
import pytest
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.journeys.test_npm_clients import CLAUDE, SDKS, run_claude, run_script
from tests.journeys.test_responses_clients import CODEX, run_codex
from tests.support.portico import portico
from tests.support.replica_processes import run_replicas, wait_until
from tests.support.scripted_provider import streamed
from tests.support.server_state import wait_for_idle
from tests.support.upstream import ScriptedUpstream, UpstreamAction

TEXT: Final = "One two three"
QUESTION: Final[Any] = [{"role": "user", "content": "Count."}]
MORE_THAN_BUFFERS: Final = 5_000_000
"""Characters that no connection takes while its client reads none."""
MORE_THAN_QUEUED: Final = 4_200
"""Deltas that a reader who takes nothing is not waited for."""
Texts = AsyncIterator[str]
AI_SDK: Final = """
import { streamText } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createOpenResponses } from "@ai-sdk/open-responses";

const providers = [
  createOpenAICompatible({ name: "portico", baseURL: "%(url)s/v1", apiKey: "any" }),
  createOpenResponses({ name: "portico", url: "%(url)s/v1/responses", apiKey: "any" }),
];
const read = async (portico) => {
  let failed = false;
  let text = "";
  const stream = streamText({ model: portico("default"), prompt: "Count.", onError: () => { failed = true; } });
  for await (const part of stream.textStream) text += part;
  console.log(failed && "%(text)s".startsWith(text) ? "failed" : `answered ${text}`);
};
await Promise.all(providers.map(read));
"""


class Clients:
    """The SDKs of one service, each of which sends a request once."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        once: dict[str, Any] = {"api_key": "any", "max_retries": 0, "http_client": http}
        self.openai = openai.AsyncOpenAI(base_url=f"{url}/v1", **once)
        self.anthropic = anthropic.AsyncAnthropic(base_url=url, **once)
        self._chain = {"model": "default", "base_url": f"{url}/v1", "api_key": "any", "http_async_client": http}

    async def chat(self) -> Texts:
        async for chunk in await self.openai.chat.completions.create(model="default", messages=QUESTION, stream=True):
            yield chunk.choices[0].delta.content or ""

    async def responses(self) -> Texts:
        async with self.openai.responses.stream(model="default", input="Count.") as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta
            await stream.get_final_response()

    async def messages(self) -> Texts:
        async with self.anthropic.messages.stream(model="default", max_tokens=9, messages=QUESTION) as stream:
            async for text in stream.text_stream:
                yield text
            await stream.get_final_message()

    async def langchain(self, *, by_responses: bool) -> Texts:
        options: dict[str, Any] = {**self._chain, "max_retries": 0, "use_responses_api": by_responses}
        async for chunk in ChatOpenAI(**options).astream("Count."):
            yield chunk.text

    async def pydantic_ai(self, kind: str) -> Texts:
        of_openai = OpenAIProvider(openai_client=self.openai)
        model = {
            "chat": lambda: OpenAIChatModel("default", provider=of_openai),
            "responses": lambda: OpenAIResponsesModel("default", provider=of_openai),
            "messages": lambda: AnthropicModel("default", provider=AnthropicProvider(anthropic_client=self.anthropic)),
        }[kind]()
        async with Agent(model).run_stream("Count.") as stream:
            async for text in stream.stream_text(delta=True, debounce_by=None):
                yield text

    def all(self) -> Mapping[str, Callable[[], Texts]]:
        """Return what reads a stream with each SDK, by name."""
        return MappingProxyType(
            {
                "chat": self.chat,
                "responses": self.responses,
                "messages": self.messages,
                "langchain chat": partial(self.langchain, by_responses=False),
                "langchain responses": partial(self.langchain, by_responses=True),
                **{
                    f"pydantic_ai {kind}": partial(self.pydantic_ai, kind) for kind in ("chat", "responses", "messages")
                },
            }
        )


class BrokenStreams:
    """Streams that are read side by side until something breaks them."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        """What each client makes of its stream: `failed` behind the text of one attempt."""
        self.have_text = 0
        """The number of the streams whose text was read."""

    async def read(self, name: str, texts: Callable[[], Texts]) -> None:
        """Read one stream to its end."""
        text = ""
        try:
            async for each in texts():
                text += each
                self.have_text += text == TEXT and bool(each)
        except Exception:  # noqa: BLE001 - each client fails in its own way
            self.outcomes[name] = "failed" if text == TEXT else f"failed behind {text!r}"
        else:
            self.outcomes[name] = f"answered {text!r}"

    async def have_begun(self, streams: int, provider: ScriptedUpstream, requests: int) -> bool:
        """Return True once the text of so many streams was read, and the provider has got so many requests."""
        return self.have_text == streams and len(provider.requests) == requests

    async def run(self, name: str, program: Callable[[], Awaitable[bool]]) -> None:
        """Run a program that reads a stream; it tells whether it has failed."""
        self.outcomes[name] = "failed" if await program() else "answered"


async def ai_sdk_fails(url: str, folder: Path) -> bool:
    ran = await run_script(AI_SDK % {"url": url, "text": TEXT}, folder)
    return ran.stdout.split(b"\n")[:2] == [b"failed", b"failed"]


async def codex_fails(url: str, folder: Path) -> bool:
    code, _ = await run_codex(url, folder, "Count.")
    return code != 0


async def claude_fails(url: str, folder: Path) -> bool:
    return (await run_claude(url, folder, "Count.")).returncode != 0


PROGRAMS: Final[Mapping[str, tuple[bool, int, Callable[[str, Path], Awaitable[bool]]]]] = MappingProxyType(
    {
        "ai_sdk": ((SDKS / "node_modules").exists(), 2, ai_sdk_fails),
        "codex": (CODEX is not None, 1, codex_fails),
        "claude_code": (CLAUDE.exists(), 1, claude_fails),
    }
)
"""Programs that read streams, each with whether it is installed and the number of its requests."""


async def broken(
    url: str, folder: Path, provider: ScriptedUpstream, cause: Callable[[], None], *programs: str
) -> dict[str, str]:
    """Return what the clients make of streams that the cause breaks once all of them have been answered in part."""
    streams = BrokenStreams()
    async with httpx2.AsyncClient() as http, anyio.create_task_group() as group:
        sdks = Clients(url, http).all()
        wanted = len(provider.requests) + len(sdks)
        for name, texts in sdks.items():
            group.start_soon(streams.read, name, texts)
        for name in programs:
            is_installed, requests, fails = PROGRAMS[name]
            if is_installed:
                wanted += requests
                (folder / name).mkdir()
                group.start_soon(streams.run, name, partial(fails, url, folder / name))
        await wait_until(lambda: streams.have_begun(len(sdks), provider, wanted))
        cause()
    return streams.outcomes


@pytest.mark.timeout(90)
async def test_no_client_takes_a_cut_connection_or_a_drain_for_an_answer(tmp_path: Path) -> None:
    async with ScriptedUpstream(streamed(TEXT, broken=UpstreamAction.HANG)) as provider, AsyncExitStack() as stack:
        engine = f'[engines.primary]\nmodel = "openai://scripted"\nbase_url = "{provider.url}"\n'
        (tmp_path / "portico.toml").write_text(f"[server]\ndrain_seconds = 0.5\n{engine}")
        fleet = await stack.enter_async_context(run_replicas(f"sqlite:///{tmp_path}/portico.db", tmp_path, 1))
        [replica] = fleet.replicas

        def cut() -> None:
            for connection in fleet.passing:
                connection.cancel()

        of_cut = await broken(fleet.proxy.url, tmp_path, provider, cut)
        terminate = partial(replica.process.send_signal, signal.SIGTERM)
        of_drain = await broken(replica.served.url, tmp_path, provider, terminate, *PROGRAMS)
    assert {*of_cut.values(), *of_drain.values()} == {"failed"}, (of_cut, of_drain)


async def test_no_client_takes_a_stream_that_it_read_too_slowly_for_an_answer(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_bytes(orjson.dumps([{"chunks": ["x" * MORE_THAN_BUFFERS, *["y"] * MORE_THAN_QUEUED]}] * 3))
    asked: dict[str, Any] = {"model": "default", "stream": True}
    async with (
        portico(engines={"script": {"model": f"scripted://{script}"}}) as (served, service),
        httpx2.AsyncClient() as http,
    ):
        clients = Clients(served.url, http)
        chat = await clients.openai.chat.completions.create(messages=QUESTION, **asked)
        responses = await clients.openai.responses.create(input="Count.", **asked)
        messages = await clients.anthropic.messages.create(messages=QUESTION, max_tokens=9, **asked)
        await wait_for_idle(service)
        for stream in (chat, responses, messages):
            with pytest.raises((openai.APIError, anthropic.APIError), match="read too slowly"):
                _ = [each async for each in stream]
