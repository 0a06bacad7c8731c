"""A file that is no usable model is said so, as configuration or as a fault, and ends nothing else."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from portico.adapters.engines.llama_cpp.engine import LlamaCppEngine
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.llamacpp.engine_calls import MISSING, ask, local

pytest.importorskip("llama_cpp", reason=MISSING)
pytest.importorskip("gguf", reason=MISSING)
Files = Callable[..., Path]


async def missed(engine: LlamaCppEngine) -> str:
    """Return the fault of an unusable model, the same for calls and pings."""
    with pytest.raises(EngineError) as reached:
        await engine.ping()
    with pytest.raises(EngineError) as asked:
        await ask(engine)
    assert reached.value.reason is asked.value.reason is AttemptFailureReason.MODEL_MISSING
    assert reached.value.message == asked.value.message
    return asked.value.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b"", "is not a model in the GGUF format"),
        (b"GGU", "is not a model in the GGUF format"),
        (b"PK\x03\x04 something else", "is not a model in the GGUF format"),
    ],
)
def test_a_file_that_cannot_be_a_model_is_a_configuration_error(tmp_path: Path, content: bytes | None, said: str):
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationFailure, match=rf"engines\.local\.model: .*{said}") as caught:
        local(path)
    assert caught.value.code is Code.CONFIG_INVALID


def test_a_folder_is_no_model(tmp_path: Path):
    with pytest.raises(ConfigurationFailure, match=r"engines\.local\.model: the file cannot be read"):
        local(tmp_path)


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.5, 0.999])
async def test_a_file_that_was_cut_is_no_model(model_file: Files, tmp_path: Path, share: float):
    whole = model_file().read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: max(4, int(len(whole) * share))])
    async with local(path) as engine:
        assert "llama.cpp cannot" in await missed(engine)


async def test_a_file_of_nothing_but_noise_is_no_model(tmp_path: Path):
    path = tmp_path / "noise.gguf"
    path.write_bytes(b"GGUF" + bytes(range(256)) * 20)
    async with local(path) as engine:
        await missed(engine)


@pytest.mark.parametrize("properties", [{"words": ("the", "the")}, {"has_bytes": False}])
async def test_a_file_that_makes_llama_cpp_abort_ends_another_process(
    tiny: ModuleType, tmp_path: Path, properties: dict[str, object]
):
    path = tiny.TinyModel(**properties).write(tmp_path / "aborts.gguf")
    async with local(path) as engine:
        assert await missed(engine) == "llama.cpp cannot read the model file"


async def test_a_template_that_is_no_template_makes_a_model_unusable(model_file: Files):
    async with local(model_file(template="{% for %}")) as engine:
        assert await missed(engine) == "the model's chat template cannot be read"


async def test_a_file_that_was_mended_is_loaded_after_all(model_file: Files, tmp_path: Path):
    path = tmp_path / "mended.gguf"
    path.write_bytes(model_file().read_bytes()[:5_000])
    async with local(path) as engine:
        await missed(engine)
        path.write_bytes(model_file().read_bytes())
        assert (await ask(engine, max_tokens=3)).text


def test_nothing_is_written_between_the_lines_of_the_log(model_file: Files, tmp_path: Path):
    script = f"""
import asyncio
from pathlib import Path
from portico.ports.model import EngineError
from tests.llamacpp.engine_calls import ask, local

async def main():
    for path in ({str(model_file())!r}, {str(tmp_path / "noise.gguf")!r}):
        async with local(Path(path)) as engine:
            try:
                await ask(engine, max_tokens=3)
            except EngineError:
                pass

asyncio.run(main())
"""
    (tmp_path / "noise.gguf").write_bytes(b"GGUF" + bytes(range(256)) * 20)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
