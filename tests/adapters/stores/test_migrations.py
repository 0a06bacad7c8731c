"""Migrations after the baseline only add, so that a version runs on the schema of the next one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from portico.adapters.stores import migrations

VERSIONS = sorted((Path(migrations.__file__).parent / "versions").glob("v*.py"))
ADDING = frozenset({"create_table", "create_index", "add_column", "get_bind", "get_context", "f"})


def not_adding(text: str) -> Iterator[str]:
    """Yield the operations of a migration that more than add a table, an index or a column with a default."""
    for call in (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)):
        match call.func:
            case ast.Attribute(value=ast.Name(id="op"), attr=name) if name not in ADDING:
                yield name
            case ast.Attribute(value=ast.Name(id="op"), attr="create_index") if _is(call, "unique", True):
                yield "a unique index"
            case ast.Attribute(value=ast.Name(id="op"), attr="add_column") if not any(map(_may_be_absent, call.args)):
                yield "a column that the version before does not fill"


def _may_be_absent(column: ast.expr) -> bool:
    """Return whether a row of a version that does not know this column can be stored."""
    if not isinstance(column, ast.Call):
        return False
    return _is(column, "nullable", True) or any(each.arg == "server_default" for each in column.keywords)


def _is(call: ast.Call, name: str, value: object) -> bool:
    return any(
        each.arg == name and isinstance(each.value, ast.Constant) and each.value.value is value
        for each in call.keywords
    )


def test_the_first_version_is_the_baseline_and_each_later_one_only_adds() -> None:
    baseline, *later = VERSIONS
    assert baseline.name == "v1_baseline.py"
    assert {path.name: [*not_adding(path.read_text(encoding="utf-8"))] for path in later} == {
        path.name: [] for path in later
    }


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ('op.drop_column("executions", "title")', ["drop_column"]),
        ('op.alter_column("executions", "title", nullable=False)', ["alter_column"]),
        ('op.rename_table("a", "b")', ["rename_table"]),
        ('op.execute("DELETE FROM executions")', ["execute"]),
        ('op.create_index("i", "a", ["b"], unique=True)', ["a unique index"]),
        ('op.add_column("a", Column("b", Text, nullable=False))', ["a column that the version before does not fill"]),
        ('op.add_column("a", Column("b", Text, nullable=False, server_default=""))', []),
        ('op.add_column("a", Column("b", Text, nullable=True))', []),
        ('op.create_table("a", Column("b", Text, nullable=False))', []),
    ],
)
def test_an_operation_that_more_than_adds_is_noticed(statement: str, found: list[str]) -> None:
    assert [*not_adding(f"def upgrade():\n    {statement}\n")] == found
