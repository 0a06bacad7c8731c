"""A model that only embeds."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.llamacpp.engine_calls import MISSING, ask, local

pytest.importorskip("llama_cpp", reason=MISSING)
pytest.importorskip("gguf", reason=MISSING)
Files = Callable[..., Path]


async def test_a_model_that_only_embeds_does_not_answer(tiny: ModuleType, tmp_path: Path):
    async with local(tiny.write_embedder(tmp_path / "embedder.gguf")) as engine:
        with pytest.raises(EngineError) as caught:
            await ask(engine)
    assert (caught.value.reason, caught.value.message) == (AttemptFailureReason.MODEL_MISSING, "the model only embeds")
