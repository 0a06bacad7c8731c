"""The Python client package: its types are those of the description, its version the product's, and it stays small."""

import ast
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_sync import SOURCE, TARGET, blocking_client
from tests.support.client_types import DESCRIPTION, ROOT, TYPES, types_text

PACKAGE = ROOT / "clients" / "python"
STATEMENT_LINES = 895


def test_the_types_are_those_of_the_description() -> None:
    assert types_text(json.loads(DESCRIPTION.read_bytes())) == TYPES.read_text(encoding="utf-8"), "make clients-types"


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "string", "enum": ["a", "b"]}, 'X: TypeAlias = Literal["a", "b"]'),
        (
            {"type": "object", "properties": {"from": {"type": ["string", "null"]}}, "required": ["from"]},
            '"from": "str | None"',
        ),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, "n: NotRequired[int]"),
        (
            {"type": "object", "properties": {"n": {"type": "array", "items": {"$ref": "#/a/Y"}}}, "required": ["n"]},
            "n: list[Y]",
        ),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "X: TypeAlias = dict[str, float]"),
    ],
)
def test_a_schema_becomes_a_type(schema: dict[str, Any], written: str) -> None:
    assert written in types_text({"components": {"schemas": {"X": schema}}})


def test_the_version_is_that_of_the_product() -> None:
    versions = {tomllib.loads((each / "pyproject.toml").read_text())["project"]["version"] for each in (ROOT, PACKAGE)}
    assert len(versions) == 1


def test_the_blocking_client_is_written_from_the_other_one() -> None:
    written = blocking_client(SOURCE.read_text(encoding="utf-8"))
    assert written == TARGET.read_text(encoding="utf-8"), "make clients-types"
    assert not {"async", "await", "anyio"} & {*written.split()}


def test_what_is_written_by_hand_stays_small() -> None:
    modules = sorted((PACKAGE / "portico_client").glob("*.py"))
    assert sum(_statement_lines(each) for each in modules if each not in {TYPES, TARGET}) <= STATEMENT_LINES


def _statement_lines(module: Path) -> int:
    """Return the number of lines with code: without blank ones, comments, docstrings and imports."""
    source = module.read_text(encoding="utf-8")
    lines = {
        number for number, line in enumerate(source.split("\n"), 1) if line.strip() and not line.strip().startswith("#")
    }
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Import() | ast.ImportFrom():
                lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)
