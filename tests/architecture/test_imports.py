"""The import contracts are kept, and each of them would notice an import that breaks it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

BREAKS = [
    ("ladder", "app/domain/access.py", "import app.adapters.system"),
    ("ladder", "app/ports/runtime.py", "import app.capabilities.models.tokens"),
    ("ladder", "app/adapters/system.py", "import app.settings"),
    ("ladder", "app/adapters/system.py", "import app.orchestration.facade"),
    ("ladder", "app/new_room.py", ""),
    ("orchestration", "app/orchestration/execution/execution.py", "import app.orchestration.patterns.agent_loop"),
    ("orchestration", "app/orchestration/new_room.py", ""),
    ("capabilities", "app/capabilities/output/voting.py", "import app.capabilities.models.failover"),
    ("capabilities", "app/capabilities/new_room.py", ""),
    ("cycles", "app/domain/failures.py", "import app.domain.lifecycle"),
    ("pure", "app/domain/access.py", "import asyncio"),
    ("pure", "app/ports/runtime.py", "import os"),
    ("core", "app/capabilities/models/tokens.py", "import logging"),
    ("core", "app/orchestration/facade.py", "import prometheus_client"),
    ("entrances", "app/entrypoints/cli/exits.py", "import app.adapters.system"),
    ("entrances", "app/entrypoints/http/app.py", "import app.orchestration.execution"),
    ("entrances-apart", "app/entrypoints/cli/exits.py", "import app.entrypoints.http.app"),
    ("adapters-apart", "app/adapters/system.py", "import app.adapters.event_bus"),
    ("dialects-apart", "app/adapters/engines/scripted.py", "import app.adapters.engines.rehearsal"),
]


def lint(root: Path, contract: str | None = None) -> subprocess.CompletedProcess[str]:
    """Checks the tree under `root`, all contracts or one."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    limited = ["--contract", contract] if contract else []
    return subprocess.run([*command, *limited], cwd=root, capture_output=True, text=True, timeout=60, check=False)


def test_the_contracts_are_kept() -> None:
    linted = lint(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.parametrize(("contract", "path", "line"), BREAKS)
def test_an_import_that_breaks_the_contract_is_found(tmp_path: Path, contract: str, path: str, line: str) -> None:
    shutil.copytree(ROOT / "app", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    with (tmp_path / path).open("a", encoding="utf-8") as module:
        module.write(f"\n{line}\n")
    linted = lint(tmp_path, contract)
    assert linted.returncode == 1, linted.stdout + linted.stderr
    assert "BROKEN" in linted.stdout or "exhaustive" in linted.stdout


def test_every_contract_is_tried() -> None:
    lines = (ROOT / ".importlinter").read_text(encoding="utf-8").splitlines()
    named = {line.removesuffix("]").rpartition(":")[2] for line in lines if line.startswith("[importlinter:contract:")}
    assert named == {contract for contract, *_ in BREAKS}
