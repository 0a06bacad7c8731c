"""Without its optional packages `llamacpp://` is a configuration error, and all the rest is as usable as ever."""

import subprocess
import sys
from pathlib import Path

PACKAGES = ("llama_cpp", "llguidance", "numpy", "jinja2")
SCRIPT = """
import sys
from pathlib import Path

import portico.bootstrap.service
from portico.adapters.engines.llama_cpp.engine import LlamaCppEngine
from portico.adapters.engines.timeouts import Timeouts
from portico.domain.failures import ConfigurationFailure
from portico.ports.model import EngineProfile

profile = EngineProfile("local", sys.argv[1], "llamacpp", 2048, 200, frozenset())
packages = sys.argv[2:]
for absent in packages:
    for name in packages:
        sys.modules.pop(name, None)
    sys.modules[absent] = None
    try:
        LlamaCppEngine(profile, Timeouts())
    except ConfigurationFailure as failure:
        print(failure.code, failure.message)
"""


def test_missing_packages_are_named_with_the_engine_that_needs_them(tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    command = [sys.executable, "-c", SCRIPT, str(path), *PACKAGES]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    message = "CONFIG_INVALID engines.local.model: llamacpp:// needs optional packages: install portico[llamacpp]\n"
    assert ran.stdout == message * len(PACKAGES)
