"""Names and English: modules are nouns, a public class has one meaning, and prose is plain."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.architecture.source import Finding, Rule, Source, product, python, tests

ALLOWED_GERUNDS = frozenset(
    {
        *("planning", "prompting", "settings", "logging", "pricing", "routing", "streaming", "sampling", "voting"),
        *("batching", "tracing", "reranking", "embedding", "encoding", "mapping"),
    }
)
NOUNS_IN_ING = frozenset({"string", "spelling", "meaning", "naming"})
SHARED_CLASS_NAMES = frozenset({"State"})
NUMBERED_TEST = re.compile(r"test_[a-z]\d+_")
QUESTION = re.compile(r"(What|Whether|Who|Where|When|Which|How|Why)\b")
RIDDLES = ("told", "unsaid", "untold", "whoever", "whatever", "somebody", "nobody")
RIDDLE = re.compile(rf"(?<![a-z])({'|'.join(RIDDLES)})(?![a-z])(?! answered in time)", re.IGNORECASE)
"""The result of an approval that has expired is a fixed text, too."""
FIXED_TEXTS = (
    "app/portico/adapters/stores/codec.py",
    "app/portico/capabilities/prompting/definition.py",
    "tests/adapters/stores/test_codec.py",
    "tests/architecture/naming.py",
    "tests/capabilities/prompting/test_definition.py",
    "tests/support/examples.py",
)
"""Stored names and texts, and a prompt that is part of fingerprints, stay as they are."""


def gerund_modules(source: Source) -> Iterator[Finding]:
    path = PurePosixPath(source.path)
    name = path.parent.name if path.name == "__init__.py" else path.stem
    for word in name.split("_"):
        if word.endswith("ing") and word not in ALLOWED_GERUNDS | NOUNS_IN_ING:
            yield Finding(1, f"the module {name} is named by a gerund")


def question_docstrings(source: Source) -> Iterator[Finding]:
    for node in (source.tree, *source.nodes(ast.ClassDef), *source.functions()):
        if found := QUESTION.match(ast.get_docstring(node) or ""):
            line = 1 if isinstance(node, ast.Module) else node.lineno
            yield Finding(line, f"the docstring begins with {found[1]}")


def riddles(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.text.splitlines(), 1):
        for found in RIDDLE.finditer(line):
            yield Finding(number, f"says {found[0]}")


def numbered_tests(source: Source) -> Iterator[Finding]:
    for node in source.functions():
        if NUMBERED_TEST.match(node.name):
            yield Finding(node.lineno, f"{node.name} begins with the number of a list")


def repeated_classes(sources: Iterable[Source]) -> dict[str, list[str]]:
    """Return the paths of the product that define a public class of the same name, by that name."""
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for source in filter(lambda each: product(each.path), sources):
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths[node.name].append(source.path)
    return {name: found for name, found in paths.items() if len(found) > 1 and name not in SHARED_CLASS_NAMES}


def prose(path: str) -> bool:
    """Return True for code and for the pages that people read."""
    if path in FIXED_TEXTS:
        return False
    pages = path in {"README.md", "CHANGELOG.md"} or (path.startswith("docs/") and path.endswith(".md"))
    return pages or python(path)


ANY = "app/portico/domain/any.py"
ANY_TEST = "tests/domain/test_any.py"
RULES = (
    Rule(
        "A module is named by a noun",
        python,
        gerund_modules,
        planted=(
            ("app/portico/domain/keeping.py", ""),
            ("bench/event_telling.py", ""),
            ("app/portico/making/__init__.py", ""),
        ),
        innocent=(("app/portico/settings/__init__.py", ""), ("app/portico/domain/lenient_string.py", ""), (ANY, "")),
    ),
    Rule(
        "A docstring does not begin with a question word",
        python,
        question_docstrings,
        planted=((ANY, '"""What is kept."""\n'), (ANY, 'def f():\n    """Whether it is."""\n')),
        innocent=((ANY, '"""Storage ports."""\n'), (ANY, 'def f():\n    """Return whether it is."""\n')),
    ),
    Rule(
        "Prose and names are plain",
        prose,
        riddles,
        planted=((ANY, "def _told(): ...\n"), (ANY, '"""Nobody owns it."""\n'), ("README.md", "Whoever asks\n")),
        innocent=((ANY, "retold = stolder = 1\n"),),
    ),
    Rule(
        "The name of a test is a sentence without a number of a list",
        tests,
        numbered_tests,
        planted=(
            (ANY_TEST, "def test_b4_84_a_commit_is_kept() -> None: ...\n"),
            (ANY_TEST, "class TestAny:\n    async def test_i10_state_is_bounded(self) -> None: ...\n"),
        ),
        innocent=(
            (ANY_TEST, "def test_a_commit_is_kept() -> None: ...\n"),
            (ANY_TEST, "def test_utf8_or_400_characters() -> None: ...\n"),
            (ANY, "def test_b4_84_a_commit_is_kept() -> None: ...\n"),
        ),
    ),
)
