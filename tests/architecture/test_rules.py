"""Architecture rules: the repository satisfies them, and each one notices a violation."""

from functools import cache

import pytest

from tests.architecture import banned, classes, naming, shape, words
from tests.architecture.source import Rule, Source, repository

RULES = (*banned.RULES, *classes.RULES, *naming.RULES, *shape.RULES, *words.RULES)
PLANTED = [(rule, *file) for rule in RULES for file in rule.planted]
INNOCENT = [(rule, *file) for rule in RULES for file in rule.innocent]


@cache
def sources() -> tuple[Source, ...]:
    return tuple(repository())


def says(value: object) -> str | None:
    return value.says if isinstance(value, Rule) else None


@pytest.mark.parametrize("rule", RULES, ids=says)
def test_the_repository_keeps_the_rule(rule: Rule) -> None:
    broken = [f"{source.path}:{found.line} {found.what}" for source in sources() for found in rule.broken_by(source)]
    assert not broken, "\n".join([rule.says, *broken])


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED, ids=says)
def test_a_planted_violation_is_found(rule: Rule, path: str, text: str) -> None:
    assert rule.broken_by(Source(path, text))


@pytest.mark.parametrize(("rule", "path", "text"), INNOCENT, ids=says)
def test_an_innocent_file_breaks_no_rule(rule: Rule, path: str, text: str) -> None:
    assert not rule.broken_by(Source(path, text))


@pytest.mark.parametrize("rule", RULES, ids=says)
def test_every_rule_has_a_planted_violation_and_applies_to_some_file(rule: Rule) -> None:
    assert rule.planted
    assert any(rule.reads(source.path) for source in sources())


def test_the_whole_repository_is_read() -> None:
    paths = {source.path for source in sources()}
    named = {
        "app/portico/ports/runtime.py",
        "bench/__main__.py",
        "tests/architecture/source.py",
        "Makefile",
        "README.md",
    }
    assert named <= paths
    assert not any(path.startswith((".venv/", ".git/")) for path in paths)


def test_no_public_class_name_is_defined_twice() -> None:
    assert not naming.repeated_classes(sources())


def test_a_class_name_that_is_defined_twice_is_found() -> None:
    planted = [
        Source(f"app/portico/{name}.py", "class Page: ...\nclass State: ...\nclass _Hidden: ...\n") for name in "ab"
    ]
    assert naming.repeated_classes(planted) == {"Page": ["app/portico/a.py", "app/portico/b.py"]}
