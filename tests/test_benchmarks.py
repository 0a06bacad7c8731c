"""The benchmarks count the calls of code that is there."""

import sys

import pytest

import portico
from bench import orchestration
from bench.calls import directory_of

LOADED = {file for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None)) is not None}


@pytest.mark.parametrize("directory", [directory_of(portico), *orchestration.CORE])
def test_modules_are_loaded_from_each_directory_whose_calls_are_counted(directory: str) -> None:
    assert any(file.startswith(directory) for file in LOADED)
