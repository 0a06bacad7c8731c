"""Contents of files: no leftovers, no paths of one machine, and no tests that cannot fail."""

import ast
import re
from collections.abc import Iterator

from tests.architecture.source import Finding, Rule, Source, called, every_file, imported, python, tests

IGNORED_TYPE = re.compile(r"#\s*type:\s*ignore")
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SILENCED = re.compile(r"#\s*noqa(?!: ?[A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)* - \S)")
MACHINE = re.compile(r"(?<![\w.}/-])/(?:root|work|home/[a-z]+|Users/[A-Za-z]+|tmp/[a-z]+)/")
REGISTRY = re.compile(
    r"pypi\.(?:org|python)|pythonhosted\.|test\.pypi|[-]-(?:(?:extra-)?index-url|find-links|default-index)",
    re.IGNORECASE,
)
SLEEP = re.compile(r"(^|\.)time\.sleep$|^sleep$|^asyncio\.sleep$")
PATCH = re.compile(r"(^|\.)monkeypatch\.(setattr|setitem|delattr|delitem)$|(^|\.)patch(\.(object|dict|multiple))?$")
ESCAPE = re.compile(r"(^|\.)(xfail|skip|skipif)$")


def ignored_types(source: Source) -> Iterator[Finding]:
    for line, comment in source.comments.items():
        if IGNORED_TYPE.search(comment):
            yield Finding(line, "a type is ignored")


def silenced_lint(source: Source) -> Iterator[Finding]:
    for line, comment in source.comments.items():
        if SILENCED.search(comment):
            yield Finding(line, "the linter is silenced without a rule and a reason")


def leftovers(source: Source) -> Iterator[Finding]:
    for line, comment in source.comments.items():
        if LEFTOVER.search(comment):
            yield Finding(line, "something is left to be done")
    for node in (source.tree, *source.nodes(ast.ClassDef), *source.functions()):
        if LEFTOVER.search(ast.get_docstring(node) or ""):
            yield Finding(1 if isinstance(node, ast.Module) else node.lineno, "something is left to be done")


def machine_paths(source: Source) -> Iterator[Finding]:
    yield from _lines_with(source, MACHINE, "names a path of one machine")


def registries(source: Source) -> Iterator[Finding]:
    yield from _lines_with(source, REGISTRY, "names a registry")


def _lines_with(source: Source, pattern: re.Pattern[str], what: str) -> Iterator[Finding]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if pattern.search(line):
            yield Finding(number, what)


def sleeps(source: Source) -> Iterator[Finding]:
    for line, name in imported(source):
        if name in {"time.sleep", "asyncio.sleep"}:
            yield Finding(line, f"imports {name}")
    for call, name in called(source):
        if SLEEP.search(name) and not (
            call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
        ):
            yield Finding(call.lineno, f"calls {name}")


def patches(source: Source) -> Iterator[Finding]:
    for line, name in imported(source):
        if name.split(".")[0] == "mock" or name.startswith("unittest.mock"):
            yield Finding(line, f"imports {name}")
    for call, name in called(source):
        if PATCH.search(name):
            yield Finding(call.lineno, f"calls {name}")


def escapes(source: Source) -> Iterator[Finding]:
    for node in source.nodes(ast.Attribute):
        if not ESCAPE.search(node.attr):
            continue
        statement = ast.get_source_segment(source.text, node) or ""
        if statement.startswith("pytest.") and not _waits_for_others(source, node.lineno):
            yield Finding(node.lineno, f"{statement} lets a test not fail")


def _waits_for_others(source: Source, line: int) -> bool:
    """Return whether the lines around name something that is not part of the repository."""
    lines = source.text.splitlines()[max(0, line - 6) : line + 5]
    return any(name in text for text in lines for name in OUTSIDE)


ANY = "app/portico/domain/any.py"
OUTSIDE = ("CODEX", "RECORDED_TRAFFIC", "NO_PROMETHEUS", "NO_PROGRAM", "NO_ISOLATION", "PORTICO_CHROMIUM", "no Node")
"""Names of what tests need that is neither in the repository nor in its locks."""
TEST = "tests/test_any.py"
RULES = (
    Rule(
        "Types are not ignored",
        python,
        ignored_types,
        planted=((ANY, "x = f()  # type: ignore\n"), (TEST, "x = f()  #type:ignore[arg-type]\n")),
        innocent=((ANY, 'x = "# type: ignore"\n'),),
    ),
    Rule(
        "The linter is silenced by rule and with a reason",
        python,
        silenced_lint,
        planted=((ANY, "x = f()  # noqa\n"), (ANY, "x = f()  # noqa: S101\n"), (ANY, "x = f()  # noqa: S101 -\n")),
        innocent=((ANY, "x = f()  # noqa: A001 - the seed's name\n"), (ANY, "x = f()  # noqa: A001, S101 - why\n")),
    ),
    Rule(
        "Nothing is left to be done",
        python,
        leftovers,
        planted=((ANY, "x = 1  # TODO: more\n"), (ANY, 'def f():\n    """FIXME."""\n'), (TEST, "# XXX\n")),
        innocent=((ANY, 'x = "TODO"\n'),),
    ),
    Rule(
        "No file names a path of the machine it was written on",
        every_file,
        machine_paths,
        planted=tuple(("README.md", f"See /{place}/notes.txt\n") for place in ("root", "work", "home/ada", "tmp/x")),
        innocent=(("README.md", "See /v1/tools, var/portico.db, /tmp and https://example.org/work/x\n"),),
    ),
    Rule(
        "No file names a registry",
        every_file,
        registries,
        planted=(
            ("requirements.lock", "--index" + "-url https://example.org/simple\n"),
            ("README.md", ".".join(("https://pypi", "org")) + "\n"),
            ("Makefile", ".".join(("https://files", "pythonhosted", "org")) + "\n"),
        ),
        innocent=(("Makefile", "uv pip compile --no-emit-index" + "-url\n"),),
    ),
    Rule(
        "Tests do not sleep",
        tests,
        sleeps,
        planted=(
            (TEST, "import time\ntime.sleep(1)\n"),
            (TEST, "from time import sleep\n"),
            (TEST, "async def test():\n    await asyncio.sleep(0.1)\n"),
        ),
        innocent=((TEST, "async def test():\n    await asyncio.sleep(0)\n"), (TEST, "await clock.sleep(5)\n")),
    ),
    Rule(
        "Tests patch nothing: what cannot be passed in is a wrong seam",
        tests,
        patches,
        planted=(
            (TEST, "from unittest.mock import Mock\n"),
            (TEST, "from unittest import mock\nmock.patch('portico.ports.runtime.Clock')\n"),
            (TEST, "def test(monkeypatch):\n    monkeypatch.setattr('portico.ports.runtime.Clock', None)\n"),
        ),
        innocent=((TEST, "def test(monkeypatch):\n    monkeypatch.setenv('A', 'b')\n"),),
    ),
    Rule(
        "Tests are neither skipped nor expected to fail, recorded traffic, Prometheus and browsers aside",
        tests,
        escapes,
        planted=(
            (TEST, "import pytest\n@pytest.mark.xfail\ndef test(): ...\n"),
            (TEST, "import pytest\ndef test():\n    pytest.skip('later')\n"),
            (TEST, "import pytest\n@pytest.mark.skipif(True, reason='x')\ndef test(): ...\n"),
        ),
        innocent=((TEST, "import pytest\ndef test():\n    pytest.skip('RECORDED_TRAFFIC is unset')\n"),),
    ),
)
