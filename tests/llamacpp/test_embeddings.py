"""Texts as vectors, by models that write and by one that only embeds."""

from collections.abc import Callable
from math import hypot
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from app.adapters.engines.timeouts import Timeouts
from app.domain.model_call import AttemptFailureReason
from app.ports.model import EngineError
from tests.llamacpp.engine_calls import MISSING, ask, loaded, local

pytest.importorskip("llama_cpp", reason=MISSING)
pytest.importorskip("gguf", reason=MISSING)
Files = Callable[..., Path]


@pytest.fixture(params=["writes", "writes bytes", "only embeds"])
def path(request: pytest.FixtureRequest, model_file: Files, tiny: ModuleType, tmp_path: Path) -> Path:
    if request.param == "only embeds":
        return tiny.write_embedder(tmp_path / "embedder.gguf")
    return model_file() if request.param == "writes" else model_file(expression="gpt-2")


async def test_equal_texts_have_equal_vectors_of_length_1_in_their_order(path: Path):
    async with local(path) as engine:
        vectors = await engine.embed(["hello world", "hello", "hello world", "a"])
        alone = await engine.embed(["hello"])
    assert vectors[0] == vectors[2]
    assert alone == [vectors[1]]
    assert len({tuple(vector) for vector in vectors}) == 3
    assert {len(vector) for vector in vectors} == {64}
    assert all(hypot(*vector) == pytest.approx(1) for vector in vectors)


async def test_no_texts_have_no_vectors(path: Path):
    async with local(path) as engine:
        assert await engine.embed([]) == []


async def test_a_text_that_is_too_long_exceeds_the_context(path: Path):
    async with local(path) as engine:
        for text in ("a " * 3_000, "a" * 500_000):
            with pytest.raises(EngineError) as caught:
                await engine.embed(["hello", text])
            assert caught.value.reason is AttemptFailureReason.CONTEXT_EXCEEDED
        assert len(await engine.embed(["hello"])) == 1


async def test_embedding_leaves_answers_as_they_are(model_file: Files):
    async with local(model_file()) as engine:
        before = await ask(engine, seed=1)
        await engine.embed(["hello"])
        assert await ask(engine, seed=1) == before


async def test_a_model_that_only_embeds_does_not_answer(tiny: ModuleType, tmp_path: Path):
    async with local(tiny.write_embedder(tmp_path / "embedder.gguf")) as engine:
        with pytest.raises(EngineError) as caught:
            await ask(engine)
    assert (caught.value.reason, caught.value.message) == (AttemptFailureReason.MODEL_MISSING, "the model only embeds")


async def test_many_texts_are_left_between_two(model_file: Files):
    texts = [f"number {number} " * 50 for number in range(100_000)]
    async with local(model_file(), timeouts=Timeouts(attempt_seconds=0.5)) as engine:
        await loaded(engine)
        with pytest.raises(EngineError) as caught:
            await engine.embed(texts)
        assert caught.value.reason is AttemptFailureReason.TIMED_OUT
        with anyio.fail_after(5):
            await engine.embed(["hello"])
