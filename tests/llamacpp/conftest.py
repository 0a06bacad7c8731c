"""Models that are written once for all tests. Without the optional packages the modules that need them are left out."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    """`tiny_model`, which only works with the optional packages."""
    return import_module("tests.llamacpp.tiny_model")


@pytest.fixture(scope="session")
def model_file(tiny: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The file of the model with those properties of a `TinyModel`."""
    folder = tmp_path_factory.mktemp("models")
    written: list[tuple[object, Path]] = []

    def file(**properties: object) -> Path:
        model = tiny.TinyModel(**properties)
        for known, path in written:
            if known == model:
                return path
        path: Path = model.write(folder / f"{len(written)}.gguf")
        written.append((model, path))
        return path

    return file
