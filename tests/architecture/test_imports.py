"""Import contracts: the tree satisfies them, and each one notices a violation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

BREAKS = [
    ("ladder", "portico.domain.access.principal", "portico.adapters.system"),
    ("ladder", "portico.ports.journal", "portico.capabilities.models.context_window"),
    ("ladder", "portico.adapters.system", "portico.settings"),
    ("ladder", "portico.adapters.system", "portico.orchestration.facade"),
    ("orchestration", "portico.orchestration.execution.execution", "portico.orchestration.facade"),
    ("capabilities", "portico.capabilities.output.extract", "portico.capabilities.models.failover"),
    ("domain", "portico.domain.contract.messages", "portico.domain.journal.outcomes"),
    ("pure", "portico.domain.access.principal", "asyncio"),
    ("pure", "portico.ports.journal", "os"),
    ("core", "portico.capabilities.models.context_window", "logging"),
    ("core", "portico.orchestration.facade", "prometheus_client"),
    ("entrances", "portico.entrypoints.cli.exit_codes", "portico.adapters.system"),
    ("entrances", "portico.entrypoints.http.app", "portico.orchestration.execution.execution"),
    ("entrances-apart", "portico.entrypoints.cli.exit_codes", "portico.entrypoints.http.app"),
    ("adapters-apart", "portico.adapters.system", "portico.adapters.event_bus"),
    ("client-apis-apart", "portico.entrypoints.http.client_apis.ids", "portico.adapters.engines.timeouts"),
    ("dialects-apart", "portico.adapters.engines.scripted", "portico.adapters.engines.rehearsal.engine"),
]
UNPLACED = [("ladder", "app/portico/new_module.py"), ("orchestration", "app/portico/orchestration/new_module.py")]
UNPLACED += [("capabilities", "app/portico/capabilities/new_module.py"), ("domain", "app/portico/domain/new_module.py")]


def lint(root: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    """Check the tree under `root`: all contracts or some."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    limited = [part for contract in contracts for part in ("--contract", contract)]
    environment = os.environ | {"PYTHONPATH": str(root / "app")}
    return subprocess.run(
        [*command, *limited], cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def copied(root: Path) -> Path:
    shutil.copytree(ROOT / "app", root / "app", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", root)
    return root


def test_the_contracts_are_kept() -> None:
    linted = lint(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the report on a tree in which every contract is broken."""
    root = copied(tmp_path_factory.mktemp("broken"))
    for _, importer, imported in [*BREAKS, ("cycles", "portico.domain.failures", "portico.domain.lifecycle")]:
        with (root / "app" / importer.replace(".", "/")).with_suffix(".py").open("a", encoding="utf-8") as module:
            module.write(f"\nimport {imported}\n")
    return lint(root).stdout


@pytest.mark.parametrize(("contract", "importer", "imported"), BREAKS)
def test_an_import_that_breaks_the_contract_is_found(broken: str, contract: str, importer: str, imported: str) -> None:
    assert f"{importer} -> {imported}" in broken
    assert f"{title_of(contract)} BROKEN" in broken


def test_a_cycle_is_found(broken: str) -> None:
    assert f"{title_of('cycles')} BROKEN" in broken


@pytest.mark.parametrize(("contract", "path"), UNPLACED)
def test_a_module_that_is_not_on_the_ladder_is_found(tmp_path: Path, contract: str, path: str) -> None:
    (copied(tmp_path) / path).write_text('"""A module."""\n', encoding="utf-8")
    linted = lint(tmp_path, contract)
    assert linted.returncode == 1
    assert "exhaustive" in linted.stdout


def title_of(contract: str) -> str:
    lines = (ROOT / ".importlinter").read_text(encoding="utf-8").splitlines()
    return lines[lines.index(f"[importlinter:contract:{contract}]") + 1].removeprefix("name = ")


def test_every_contract_is_broken_by_a_test() -> None:
    lines = (ROOT / ".importlinter").read_text(encoding="utf-8").splitlines()
    named = {line.removesuffix("]").rpartition(":")[2] for line in lines if line.startswith("[importlinter:contract:")}
    assert named == {contract for contract, *_ in BREAKS} | {"cycles"}
