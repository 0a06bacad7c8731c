"""Shape of files, classes and functions: documented, short and without module state."""

import ast
import re
from collections.abc import Iterator

from tests.architecture.source import Finding, Rule, Source, dotted, product_or_bench, python

MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 40

MUTABLE_LITERALS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
MUTABLE_KINDS = re.compile(
    r"(^|\.)(dict|list|set|bytearray|defaultdict|deque|Counter|OrderedDict|ChainMap|Queue|ContextVar|local"
    r"|Weak(Value|Key)Dictionary|WeakSet)$"
)
READ_ONLY_TYPES = frozenset(
    {"Mapping", "Sequence", "Collection", "Iterable", "Set", "AbstractSet", "frozenset", "tuple"}
)

CONTEXT_VARIABLES = frozenset(
    {"app/portico/ports/current_caller.py", "app/portico/adapters/tools/mcp/credential_auth.py"}
)
"""Modules with a context variable: code that a library calls asks for whom it acts, or in which call."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_docstring(source: Source) -> Iterator[Finding]:
    if not ast.get_docstring(source.tree):
        yield Finding(1, "the module has no docstring")


def class_docstrings(source: Source) -> Iterator[Finding]:
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
            yield Finding(node.lineno, f"{node.name} has no docstring")


def long_functions(source: Source) -> Iterator[Finding]:
    for node in source.functions():
        if (length := body_lines(node)) > MOST_LINES_OF_A_FUNCTION:
            yield Finding(node.lineno, f"{node.name} has a body of {length} lines")


def body_lines(function: Function) -> int:
    """Return the number of lines of the body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def long_files(source: Source) -> Iterator[Finding]:
    length = len(source.text.splitlines())
    if length > MOST_LINES_OF_A_FILE:
        yield Finding(length, f"the file has {length} lines")


def module_state(source: Source) -> Iterator[Finding]:
    for node in source.tree.body if source.path not in CONTEXT_VARIABLES else ():
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_mutable(node.value) and not _is_read_only(node):
            yield Finding(node.lineno, "a module has mutable state")
    for change in source.nodes(ast.Global):
        yield Finding(change.lineno, f"changes {', '.join(change.names)} of its module")


def _is_mutable(value: ast.expr | None) -> bool:
    match value:
        case ast.Call():
            return bool(MUTABLE_KINDS.search(dotted(value.func)))
        case ast.Subscript(value=inner):
            return _is_mutable(inner)
        case _:
            return isinstance(value, MUTABLE_LITERALS)


def _is_read_only(node: ast.Assign | ast.AnnAssign) -> bool:
    """Return True for a constant by name and type, and for names of the language."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [dotted(target) for target in targets]
    if all(name.startswith("__") and name.endswith("__") for name in names):
        return True
    return (
        isinstance(node, ast.AnnAssign)
        and all(name.isupper() for name in names)
        and _is_read_only_type(node.annotation)
    )


def _is_read_only_type(annotation: ast.expr) -> bool:
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    name = dotted(outer).rpartition(".")[2]
    if name == "Final" and isinstance(annotation, ast.Subscript):
        return _is_read_only_type(annotation.slice)
    return name in READ_ONLY_TYPES


ANY = "app/portico/domain/any.py"
LONG_BODY = "    x = 1\n" * (MOST_LINES_OF_A_FUNCTION + 1)
FULL_BODY = "    x = 1\n" * MOST_LINES_OF_A_FUNCTION
RULES = (
    Rule(
        "Every module has a docstring",
        python,
        module_docstring,
        planted=((ANY, "x = 1\n"), (ANY, ""), ("tests/test_any.py", "# no docstring\n")),
        innocent=((ANY, '"""Its job."""\n'),),
    ),
    Rule(
        "Every public class has a docstring",
        product_or_bench,
        class_docstrings,
        planted=((ANY, "class Engine:\n    x = 1\n"),),
        innocent=((ANY, 'class Engine:\n    """A model endpoint."""\n'), (ANY, "class _Hidden:\n    x = 1\n")),
    ),
    Rule(
        f"No function has more than {MOST_LINES_OF_A_FUNCTION} lines",
        product_or_bench,
        long_functions,
        planted=(
            (ANY, f"def f():\n{LONG_BODY}"),
            (ANY, f'async def f():\n    """Says it."""\n{LONG_BODY}'),
            ("bench/any.py", f"def f():\n{LONG_BODY}"),
        ),
        innocent=((ANY, f'def f():\n    """Says\n    more."""\n{FULL_BODY}'),),
    ),
    Rule(
        f"No file has more than {MOST_LINES_OF_A_FILE} lines",
        product_or_bench,
        long_files,
        planted=((ANY, "\n" * (MOST_LINES_OF_A_FILE + 1)),),
        innocent=((ANY, "\n" * MOST_LINES_OF_A_FILE),),
    ),
    Rule(
        "No module has mutable state",
        product_or_bench,
        module_state,
        planted=(
            (ANY, "cache = {}\n"),
            (ANY, "TABLE = {'a': 1}\n"),
            (ANY, "TABLE: dict[str, int] = {}\n"),
            (ANY, "table: Mapping[str, int] = {}\n"),
            (ANY, "NAMES = [name for name in names]\n"),
            (ANY, "SEEN: set[str] = set()\n"),
            (ANY, "import collections\nQUEUE = collections.deque()\n"),
            (ANY, "from contextvars import ContextVar\ncurrent = ContextVar('current')\n"),
            (ANY, "count = 0\ndef f():\n    global count\n    count += 1\n"),
        ),
        innocent=(
            (ANY, "TABLE: Mapping[str, int] = {'a': 1}\n"),
            (ANY, "TABLE: Final[Mapping[str, int]] = {}\n"),
            (ANY, "TABLE = MappingProxyType({'a': 1})\n"),
            (ANY, "NAMES = ('a', 'b')\nSEEN = frozenset({'a'})\n"),
            (ANY, "__all__ = ['f']\n"),
            (ANY, "def f():\n    cache = {}\n    return cache\n"),
        ),
    ),
)
