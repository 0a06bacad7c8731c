"""Files of the repository as the rules read them."""

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
OURS_THOUGH_HIDDEN = frozenset({".ci", ".dockerignore", ".gitignore", ".importlinter"})
NOT_OURS = frozenset({"build", "var", "results", "__pycache__"})


Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Source:
    """One file: its path from the repository's root, with slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def comments(self) -> dict[int, str]:
        """Comments by line number."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}

    def nodes(self, kind: type[Node]) -> Iterator[Node]:
        """All nodes of this kind, however deep."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kind))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions, methods and inner functions."""
        yield from self.nodes(ast.FunctionDef)
        yield from self.nodes(ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Finding:
    """A rule broken at a line."""

    line: int
    what: str


@dataclass(frozen=True)
class Rule:
    """One rule of the house: what it says, which files it speaks of, and where a file breaks it.

    `reads` takes a path from the repository's root. `planted` are files, as (path, text), that must be found, and
    `innocent` ones that must not.
    """

    says: str
    reads: Callable[[str], bool]
    findings: Callable[[Source], Iterator[Finding]]
    planted: tuple[tuple[str, str], ...]
    innocent: tuple[tuple[str, str], ...] = ()

    def broken_by(self, source: Source) -> list[Finding]:
        return list(self.findings(source)) if self.reads(source.path) else []


def repository() -> Iterator[Source]:
    """Every text file that belongs to the repository."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if not path.is_file() or any(map(_is_made_or_kept_elsewhere, parts)):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        yield Source("/".join(parts), text)


def _is_made_or_kept_elsewhere(part: str) -> bool:
    hidden = part.startswith(".") and part not in OURS_THOUGH_HIDDEN
    return hidden or part in NOT_OURS or part.endswith(".egg-info")


def product(path: str) -> bool:
    """Whether the path is code that is shipped."""
    return path.startswith("app/") and path.endswith(".py")


def product_or_bench(path: str) -> bool:
    """Whether the path is code that is not a test."""
    return path.startswith(("app/", "bench/")) and path.endswith(".py")


def tests(path: str) -> bool:
    """Whether the path is a test or something only tests use."""
    return path.startswith("tests/") and path.endswith(".py")


def python(path: str) -> bool:
    """Whether the path is code of ours."""
    return path.endswith(".py")


def every_file(path: str) -> bool:
    """All of it."""
    return bool(path)


def dotted(node: ast.AST | None) -> str:
    """`a.b.c` for a chain of names, with `()` for calls in between; empty for anything else."""
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
    """Everything the file imports, as (line, dotted name); `from a import b` counts as `a.b`."""
    for plain in source.nodes(ast.Import):
        yield from ((plain.lineno, alias.name) for alias in plain.names)
    for chosen in source.nodes(ast.ImportFrom):
        yield from ((chosen.lineno, f"{chosen.module}.{alias.name}") for alias in chosen.names)


def called(source: Source) -> Iterator[tuple[ast.Call, str]]:
    """Every call with the dotted name of what is called."""
    for node in source.nodes(ast.Call):
        yield node, dotted(node.func)
