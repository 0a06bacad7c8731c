"""Import contracts: the tree satisfies them, and each one notices a violation."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

BREAKS = [
    ("ladder", "app.domain.access.principal", "app.adapters.system"),
    ("ladder", "app.ports.journal", "app.capabilities.models.context_window"),
    ("ladder", "app.adapters.system", "app.settings"),
    ("ladder", "app.adapters.system", "app.orchestration.facade"),
    ("orchestration", "app.orchestration.execution.execution", "app.orchestration.facade"),
    ("capabilities", "app.capabilities.output.extract", "app.capabilities.models.failover"),
    ("domain", "app.domain.contract.messages", "app.domain.journal.outcomes"),
    ("pure", "app.domain.access.principal", "asyncio"),
    ("pure", "app.ports.journal", "os"),
    ("core", "app.capabilities.models.context_window", "logging"),
    ("core", "app.orchestration.facade", "prometheus_client"),
    ("entrances", "app.entrypoints.cli.exit_codes", "app.adapters.system"),
    ("entrances", "app.entrypoints.http.app", "app.orchestration.execution.execution"),
    ("entrances-apart", "app.entrypoints.cli.exit_codes", "app.entrypoints.http.app"),
    ("adapters-apart", "app.adapters.system", "app.adapters.event_bus"),
    ("dialects-apart", "app.adapters.engines.scripted", "app.adapters.engines.rehearsal.engine"),
]
UNPLACED = [("ladder", "app/new_module.py"), ("orchestration", "app/orchestration/new_module.py")]
UNPLACED += [("capabilities", "app/capabilities/new_module.py"), ("domain", "app/domain/new_module.py")]


def lint(root: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    """Check the tree under `root`: all contracts or some."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    limited = [part for contract in contracts for part in ("--contract", contract)]
    return subprocess.run([*command, *limited], cwd=root, capture_output=True, text=True, timeout=120, check=False)


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
    for _, importer, imported in [*BREAKS, ("cycles", "app.domain.failures", "app.domain.lifecycle")]:
        with (root / importer.replace(".", "/")).with_suffix(".py").open("a", encoding="utf-8") as module:
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
