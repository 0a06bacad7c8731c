"""Files of the repository as the rules see them."""

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
HIDDEN_SOURCES = frozenset({".ci", ".dockerignore", ".gitignore", ".importlinter"})
GENERATED = frozenset({"build", "dist", "var", "results", "__pycache__"})


Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Source:
    """File: its path from the repository's root, with slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def comments(self) -> dict[int, str]:
        """Return comments by line number."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}

    def nodes(self, kind: type[Node]) -> Iterator[Node]:
        """Yield all nodes of this type, at any depth."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kind))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Yield all functions, methods and inner functions."""
        yield from self.nodes(ast.FunctionDef)
        yield from self.nodes(ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Finding:
    """Violation of a rule at a line."""

    line: int
    what: str


@dataclass(frozen=True)
class Rule:
    """Architecture rule: its text, the files it applies to, and its violations.

    `reads` takes a path from the repository's root. `planted` are files, as (path, text), with a violation; `innocent`
    are files without one.
    """

    says: str
    reads: Callable[[str], bool]
    findings: Callable[[Source], Iterator[Finding]]
    planted: tuple[tuple[str, str], ...]
    innocent: tuple[tuple[str, str], ...] = ()

    def broken_by(self, source: Source) -> list[Finding]:
        return list(self.findings(source)) if self.reads(source.path) else []


def repository() -> Iterator[Source]:
    """Yield every text file of the repository."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if not path.is_file() or any(map(_is_generated_or_hidden, parts)):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        yield Source("/".join(parts), text)


def _is_generated_or_hidden(part: str) -> bool:
    hidden = part.startswith(".") and part not in HIDDEN_SOURCES
    return hidden or part in GENERATED or part.endswith(".egg-info")


def product(path: str) -> bool:
    """Return True for code that is shipped."""
    return path.startswith("app/portico/") and path.endswith(".py")


def product_or_bench(path: str) -> bool:
    """Return True for code that is not a test."""
    return path.startswith(("app/portico/", "bench/")) and path.endswith(".py")


def tests(path: str) -> bool:
    """Return True for tests and their support code."""
    return path.startswith("tests/") and path.endswith(".py")


def python(path: str) -> bool:
    """Return True for Python code."""
    return path.endswith(".py")


def every_file(path: str) -> bool:
    """Return True for all files."""
    return bool(path)


def dotted(node: ast.AST | None) -> str:
    """Return `a.b.c` for a chain of names, with `()` for calls in between; an empty text for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted(value)}.{name}"
        case ast.Call(func=function):
            return f"{dotted(function)}()"
        case ast.Await(value=value):
            return dotted(value)
        case _:
            return ""


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """Yield every import as (line, dotted name); `from a import b` counts as `a.b`."""
    for plain in source.nodes(ast.Import):
        yield from ((plain.lineno, alias.name) for alias in plain.names)
    for chosen in source.nodes(ast.ImportFrom):
        yield from ((chosen.lineno, f"{chosen.module}.{alias.name}") for alias in chosen.names)


def called(source: Source) -> Iterator[tuple[ast.Call, str]]:
    """Yield every call with the dotted name of the function."""
    for node in source.nodes(ast.Call):
        yield node, dotted(node.func)
