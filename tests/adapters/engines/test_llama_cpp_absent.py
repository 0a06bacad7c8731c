"""Without its optional packages `llamacpp://` is a configuration error, and all the rest is as usable as ever."""

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({absent!r}))
import app.bootstrap.service
from app.adapters.engines.timeouts import Timeouts
from app.adapters.engines.llama_cpp.engine import LlamaCppEngine
from app.domain.failures import ConfigurationFailure
from app.ports.model import EngineProfile

try:
    LlamaCppEngine(EngineProfile("local", {path!r}, "llamacpp", 2048, 200, frozenset()), Timeouts())
except ConfigurationFailure as failure:
    print(failure.code, failure.message)
"""


@pytest.mark.parametrize("absent", [["llama_cpp"], ["llguidance"], ["numpy"], ["jinja2"]])
def test_missing_packages_are_named_with_the_engine_that_needs_them(tmp_path: Path, absent: list[str]):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    script = WITHOUT.format(absent=absent, path=str(path))
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == (
        "CONFIG_INVALID engines.local.model: llamacpp:// needs optional packages: install portico[llamacpp]\n"
    )
