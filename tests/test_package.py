"""The package as it is installed from its wheel, and what a module that extends it imports."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest

import portico
from portico import plugins

ROOT = Path(__file__).parents[1]
TOOLS = """
from app.orders import total

from portico import SideEffects, tool


@tool(side_effects=SideEffects.READ, idempotent=True)
def order_total(number: int) -> str:
    \"\"\"Return the total of an order.\"\"\"
    return total(number)
"""
CONFIGURATION = """
[tools]
modules = ["acme_tools"]

[engines.rehearsal]
model = "rehearsal://"
"""


@dataclass(frozen=True)
class Installation:
    """An environment with the wheel, and the dependencies of the one that the tests run in."""

    wheel: Path
    environment: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def run(self, directory: Path, *command: str | Path) -> "subprocess.CompletedProcess[str]":
        """Run a command of the environment, with the directory as the working one."""
        program = self.environment / "bin" / command[0]
        return _run(program, *command[1:], directory=directory)


def _run(*command: str | Path, directory: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=directory, env=_variables(), capture_output=True, text=True, timeout=100, check=False
    )


def _variables() -> Mapping[str, str]:
    """Return the variables of the environment without those that name modules or configure the service."""
    ours = ("PORTICO", "PYTHONPATH", "OPENAI_API_KEY")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    directory = tmp_path_factory.mktemp("package")
    wheel, environment = _built(directory), directory / "environment"
    pip = (sys.executable, "-m", "pip", "--quiet")
    ended = [
        _run(sys.executable, "-m", "venv", "--without-pip", environment, directory=directory),
        _run(
            *(*pip, "--python", environment / "bin" / "python"),
            *("install", "--no-index", "--no-deps", wheel),
            directory=directory,
        ),
    ]
    assert [each.returncode for each in ended] == [0, 0], ended
    paths = sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)})
    Path(paths, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return Installation(wheel, environment)


def _built(directory: Path) -> Path:
    """Return the wheel of a copy of the sources, since a build writes beside them."""
    source = directory / "source"
    copytree(ROOT / "app", source / "app", ignore=ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY_NOTICES"):
        copy(ROOT / name, source)
    pip = (sys.executable, "-m", "pip", "--quiet", "wheel")
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", directory)
    ended = _run(*pip, *options, source, directory=directory)
    assert ended.returncode == 0, ended
    (wheel,) = directory.glob("*.whl")
    return wheel


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the directory of a user: a tool, the configuration that names it, and a package `app` of the user."""
    tmp_path.joinpath("app").mkdir()
    tmp_path.joinpath("app", "__init__.py").touch()
    tmp_path.joinpath("app", "orders.py").write_text('def total(number: int) -> str:\n    return f"{number}: 19.50"\n')
    tmp_path.joinpath("acme_tools.py").write_text(TOOLS)
    tmp_path.joinpath("portico.toml").write_text(CONFIGURATION)
    return tmp_path


def test_the_wheel_installs_one_package_and_its_marker_of_types(installation: Installation) -> None:
    names = zipfile.ZipFile(installation.wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"portico", f"portico-{portico.__version__}.dist-info"}
    assert "portico/py.typed" in names
    assert "portico/settings/models/openai.json" in names
    console = "portico/entrypoints/http/console/static"
    assert {
        f"{console}/{name}" for name in ("index.html", "pages/now.js", "vendor/preact.js", "vendor/htm.LICENSE")
    } <= set(names)


def test_the_installed_command_prints_its_version(installation: Installation, tmp_path: Path) -> None:
    ended = installation.run(tmp_path, "portico", "--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"portico {portico.__version__}\n", "")


def test_an_image_prints_the_revision_that_it_was_built_from(installation: Installation, tmp_path: Path) -> None:
    [information] = installation.environment.glob("lib/python3*/site-packages/portico-*.dist-info")
    (information / "REVISION").write_text("0123abc\n")
    try:
        ended = installation.run(tmp_path, "portico", "--version")
    finally:
        (information / "REVISION").unlink()
    assert ended.stdout == f"portico {portico.__version__} (0123abc)\n"


def test_a_tool_imports_a_package_app_of_its_user(installation: Installation, project: Path) -> None:
    listed = installation.run(project, "portico", "tools", "list")
    assert "order_total" in listed.stdout, listed.stderr
    called = installation.run(project, "portico", "tools", "call", "order_total", "--args", '{"number": 7}')
    assert (called.returncode, called.stdout) == (0, "7: 19.50\n"), called.stderr


def test_a_type_checker_knows_the_names_of_the_package_and_no_others(installation: Installation, project: Path) -> None:
    with project.joinpath("acme_tools.py").open("a", encoding="utf-8") as module:
        module.write("\nreveal_type(tool)\ntool(side_effects=1, idempotent=True)\nfrom portico import tol\n")
    command = ("-m", "mypy", "--strict", "--python-executable", installation.python, "acme_tools.py")
    revealed, *errors, _ = _run(sys.executable, *command, directory=project).stdout.splitlines()
    assert 'Revealed type is "def (*, side_effects: portico.domain.tools.SideEffects, idempotent: bool' in revealed
    assert [error.rpartition("  ")[2] for error in errors] == ["[arg-type]", "[attr-defined]"], errors


def test_the_package_has_the_names_of_the_stable_interface_and_a_version() -> None:
    assert set(portico.__all__) == {*plugins.__all__, "__version__"}
    assert all(getattr(portico, name) is getattr(plugins, name) for name in plugins.__all__)
    with pytest.raises(AttributeError, match="module 'portico' has no attribute 'tol'"):
        getattr(portico, "tol")  # noqa: B009 - a type checker would refuse the attribute


def test_importing_the_package_loads_nothing_else() -> None:
    program = "import sys, portico; print(*(name for name in sys.modules if name.startswith(('portico', 'pydantic'))))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.split() == ["portico"]
