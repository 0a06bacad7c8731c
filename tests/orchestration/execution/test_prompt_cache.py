"""Prompt caches: a provider is asked to keep a prompt only if its prefix will be read again and is long enough."""

from typing import Any

import pytest

from portico.adapters.engines.scripted import ScriptedEngine
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.bootstrap.engines import engine_profile
from portico.domain.model_call import EngineCall, Reply
from portico.ports.model import Progress
from portico.settings import Settings
from tests.support.harness import chat_request, make_harness, profile
from tests.support.virtual_time import VirtualClock

LONG = "word " * 2_000
SYSTEM = {"role": "system", "content": "Be brief."}


class RememberingEngine(ScriptedEngine):
    """Scripted engine that remembers the cache keys that it was given."""

    def __init__(self, clock: VirtualClock, *, caches: bool = True) -> None:
        super().__init__(profile("a", caches_prompts=caches), [{"text": "hi"}] * 4, clock)
        self.keys: list[str | None] = []

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        self.keys.append(call.cache_key)
        return await super().attempt(call, progress, stream=stream)


async def key_of(clock: VirtualClock, text: str = LONG, *, tenant: str = "local", **fields: Any) -> str | None:
    """Return the cache key of the one call that such a request makes."""
    engine = RememberingEngine(clock)
    here = make_harness(clock, engine, tools=BUILTIN_TOOLS)
    messages = [SYSTEM, {"role": "user", "content": text}]
    await here.drive(here.execution(chat_request(messages=messages, **fields), tenant=tenant))
    (key,) = engine.keys
    return key


async def test_a_prompt_is_cached_where_another_inference_begins_with_it(clock: VirtualClock) -> None:
    key = await key_of(clock, tools=["calculate"])
    assert key is not None
    assert len(bytes.fromhex(key)) == 16
    assert await key_of(clock, session_id="s", tools=[]) == key
    assert await key_of(clock, LONG + "Another question.", tools=["calculate"]) == key
    assert await key_of(clock, tools=["calculate"], tenant="other") not in {None, key}


@pytest.mark.parametrize(("text", "tools"), [(LONG, []), ("short", ["now"])])
async def test_a_prompt_that_is_short_or_not_read_again_is_not(
    clock: VirtualClock, text: str, tools: list[str]
) -> None:
    assert await key_of(clock, text, tools=tools) is None


async def test_an_engine_that_caches_nothing_is_given_no_key(clock: VirtualClock) -> None:
    engine = RememberingEngine(clock, caches=False)
    await make_harness(clock, engine, tools=BUILTIN_TOOLS).run(chat_request(LONG, tools=["calculate"]))
    assert engine.keys == [None]


@pytest.mark.parametrize(
    ("engine", "caches"),
    [
        ({"model": "anthropic://claude-haiku-4-5"}, True),
        ({"model": "openai://gpt-4o-mini"}, True),
        ({"model": "openai://gpt-4o-mini", "prompt_cache": "off"}, False),
        ({"model": "openai://some-model", "base_url": "http://127.0.0.1:8000/v1"}, False),
        ({"model": "openai://some-model", "base_url": "http://127.0.0.1:8000/v1", "vendor": "openai"}, True),
        ({"model": "openai://gpt-4o-mini", "base_url": "https://x.openai.azure.com/openai/v1"}, True),
        ({"model": "openai://some-model", "vendor": "groq", "prompt_cache": "auto"}, False),
        ({"model": "anthropic://claude-haiku-4-5", "base_url": "http://127.0.0.1:8000"}, True),
        ({"model": "gemini://gemini-2.5-flash"}, False),
    ],
)
def test_only_vendors_that_take_it_are_asked_to_cache(engine: dict[str, str], caches: bool) -> None:
    settings = Settings.model_validate({"engines": {"a": engine}})
    assert engine_profile("a", settings).caches_prompts is caches
