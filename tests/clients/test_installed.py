"""The Python client as its wheel installs it in an empty project, and its examples under strict type checkers."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "python"
PYRIGHT = ROOT / ".clients" / "checkers" / "node_modules" / "pyright" / "index.js"
SECONDS = 60.0
EXAMPLES = [
    example
    for page in (ROOT / "docs" / "clients.md", PACKAGE / "README.md")
    for example in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    if "portico_client" in example
]


def run(*command: str | Path, folder: Path) -> str:
    """Return what a command prints."""
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with the wheel in its environment, beside its dependencies, and the examples."""
    folder = tmp_path_factory.mktemp("project")
    source, environment = folder / "source", folder / "environment"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    pip = (sys.executable, "-m", "pip", "--quiet")
    offline = ("--no-index", "--no-deps")
    run(*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", folder, source, folder=folder)
    run(sys.executable, "-m", "venv", "--without-pip", environment, folder=folder)
    [wheel] = folder.glob("*.whl")
    run(*pip, "--python", environment / "bin" / "python", "install", *offline, wheel, folder=folder)
    paths = sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)})
    Path(paths, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    shutil.rmtree(source)
    for number, example in enumerate(EXAMPLES):
        (folder / f"example{number}.py").write_text(example, encoding="utf-8")
    return folder


def test_the_wheel_has_its_types_and_its_license(project: Path) -> None:
    program = "import portico_client; print(portico_client.__file__); print(portico_client.Client().request)"
    printed = run(project / "environment" / "bin" / "python", "-c", program, folder=project)
    package = Path(printed.splitlines()[0]).parent
    assert package.is_relative_to(project / "environment")
    assert (package / "py.typed").exists()
    assert [*package.parent.glob("portico_client-*.dist-info/licenses/LICENSE")]


def test_the_examples_pass_strict_mypy(project: Path) -> None:
    python, names = project / "environment" / "bin" / "python", sorted(each.name for each in project.glob("example*"))
    assert len(names) == 5
    run(sys.executable, "-m", "mypy", "--strict", "--python-executable", python, *names, folder=project)


@pytest.mark.skipif(
    not PYRIGHT.exists() or shutil.which("node") is None, reason="no Node packages: make clients installs them"
)
def test_the_examples_pass_strict_pyright(project: Path) -> None:
    configuration = {"typeCheckingMode": "strict", "venvPath": ".", "venv": "environment", "include": ["example*.py"]}
    (project / "pyrightconfig.json").write_text(json.dumps(configuration), encoding="utf-8")
    assert "0 errors, 0 warnings" in run("node", PYRIGHT, folder=project)
