"""Calls to one model wait in line, a cancelled one is dropped at once, and two models work side by side."""

from collections.abc import Callable
from pathlib import Path
from threading import enumerate as threads
from types import ModuleType

import anyio
import pytest

from portico.adapters.engines.llama_cpp.engine import LlamaCppEngine
from portico.adapters.engines.timeouts import Timeouts
from portico.domain.contract.messages import Message
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.llamacpp.engine_calls import MISSING, PATIENCE, StartedProgress, ask, call, loaded, local
from tests.support.engine_calls import RecordedProgress

pytest.importorskip("llama_cpp", reason=MISSING)
pytest.importorskip("gguf", reason=MISSING)
Files = Callable[..., Path]
LONG = 30_000
"""Minutes of writing for no caller."""


@pytest.fixture
def endless(model_file: Files, tiny: ModuleType) -> Path:
    return model_file(favour=tiny.ENDLESS, context=LONG)


def patient(path: Path, timeouts: Timeouts = PATIENCE) -> LlamaCppEngine:
    return local(path, window=LONG, reserve=0, timeouts=timeouts)


async def test_a_cancelled_attempt_frees_the_model_at_once(endless: Path):
    async with patient(endless) as engine:
        left = StartedProgress()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: engine.attempt(call(), left, stream=True))
                await left.heard.wait()
                scope.cancel()
        texts_before = list(left.texts)
        with anyio.fail_after(5):
            assert (await ask(engine, max_tokens=5)).usage.output_tokens == 5
    assert left.texts == texts_before
    assert 0 < left.usages[-1].output_tokens < LONG / 10


async def test_a_cancelled_attempt_counts_what_it_has_read_and_written(endless: Path):
    async with patient(endless) as engine:
        whole = (await ask(engine, max_tokens=1)).usage.input_tokens
        left = StartedProgress()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: engine.attempt(call(), left, stream=True))
            await left.heard.wait()
            group.cancel_scope.cancel()
    (usage,) = left.usages
    assert usage.input_tokens == whole
    assert usage.output_tokens >= len(left.texts) > 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


async def test_a_long_prompt_is_left_between_its_parts(endless: Path):
    long = Message(role="user", content="q" * (LONG - 100))
    async with patient(endless) as engine:
        await engine.ping()
        left = RecordedProgress()
        with anyio.move_on_after(0.1):
            await engine.attempt(call(long), left, stream=True)
        with anyio.fail_after(5):
            await ask(engine, max_tokens=5)
    (usage,) = left.usages
    assert usage.input_tokens < LONG - 100
    assert usage.input_tokens % 256 == 0
    assert usage.output_tokens == 0


async def test_who_gives_up_waiting_is_never_asked_for(endless: Path):
    async with patient(endless) as engine:
        first, second, third = StartedProgress(), StartedProgress(), StartedProgress()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: engine.attempt(call(max_tokens=3000), first, stream=True))
            await first.heard.wait()
            with anyio.move_on_after(0.01):
                await engine.attempt(call(), second, stream=True)
            await engine.attempt(call(max_tokens=3), third, stream=True)
    assert second.texts == []
    assert second.usages == [TokenUsage()]
    assert first.usages[-1].output_tokens == 3000
    assert third.usages[-1].output_tokens == 3


async def test_all_are_answered_in_the_order_of_asking(endless: Path):
    answered: list[int] = []

    async def one(number: int) -> None:
        await ask(engine, max_tokens=20)
        answered.append(number)

    async with patient(endless) as engine, anyio.create_task_group() as group:
        await engine.ping()
        for number in range(20):
            group.start_soon(one, number)
    assert answered == list(range(20))


async def test_many_at_once_get_what_each_would_get_alone(model_file: Files):
    said = [Message(role="user", content=f"Number {number}") for number in range(12)]
    async with local(model_file()) as engine:
        alone = [await ask(engine, message, seed=1) for message in said]
        together: dict[int, object] = {}

        async def one(number: int) -> None:
            together[number] = await ask(engine, said[number], seed=1)

        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(one, number)
    assert [together[number] for number in range(12)] == alone
    assert len({reply.text for reply in alone}) == 12


async def test_two_models_write_at_once(endless: Path, model_file: Files):
    async with patient(endless) as one, local(model_file()) as other:
        first = StartedProgress()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: one.attempt(call(), first, stream=True))
            await first.heard.wait()
            before = len(first.texts)
            replies = [await ask(other, seed=seed) for seed in range(3)]
            assert len(first.texts) > before
            group.cancel_scope.cancel()
    assert all(reply.text for reply in replies)


async def test_an_attempt_that_takes_too_long_times_out_with_what_it_has_used(endless: Path):
    async with patient(endless, Timeouts(attempt_seconds=0.5)) as engine:
        await loaded(engine)
        heard = RecordedProgress()
        with pytest.raises(EngineError) as caught:
            await engine.attempt(call(), heard, stream=False)
        assert caught.value.reason is AttemptFailureReason.TIMED_OUT
        assert heard.usages[-1].output_tokens > 0
        assert (await ask(engine, max_tokens=3)).text


async def test_waiting_in_line_counts_towards_the_first_token(endless: Path):
    async with patient(endless, Timeouts(attempt_seconds=300, first_token_seconds=0.3, idle_seconds=300)) as engine:
        await loaded(engine)
        first, second = StartedProgress(), RecordedProgress()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: engine.attempt(call(), first, stream=True))
            await first.heard.wait()
            with pytest.raises(EngineError) as caught:
                await engine.attempt(call(), second, stream=True)
            assert caught.value.reason is AttemptFailureReason.TIMED_OUT
            group.cancel_scope.cancel()
    assert second.usages == [TokenUsage()]


async def test_a_model_that_is_loaded_is_reached_although_it_writes(endless: Path):
    async with patient(endless) as engine:
        first = StartedProgress()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: engine.attempt(call(), first, stream=True))
            await first.heard.wait()
            with anyio.fail_after(5):
                assert await engine.ping() == f"loaded, with a context of {LONG} tokens"
            group.cancel_scope.cancel()


async def test_nothing_is_left_of_an_engine_that_is_over(endless: Path):
    async with patient(endless) as engine:
        await ask(engine, max_tokens=3)
        assert any(thread.name.startswith("llamacpp local") for thread in threads())
    assert not any(thread.name.startswith("llamacpp local") for thread in threads())


async def test_an_unused_engine_loads_nothing(endless: Path):
    async with patient(endless) as engine:
        assert engine.profile.name == "local"


async def test_a_load_continues_without_its_caller(endless: Path):
    async with patient(endless, Timeouts(attempt_seconds=0.05)) as engine:
        with pytest.raises(EngineError) as caught:
            await engine.ping()
        assert caught.value.reason is AttemptFailureReason.TIMED_OUT
        await loaded(engine)
