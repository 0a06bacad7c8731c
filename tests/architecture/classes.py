"""Classes: few public methods, few attributes, and values that are not changed."""

import ast
from collections.abc import Iterator

from tests.architecture.source import Finding, Rule, Source, called, dotted, product, product_or_bench

MAX_PUBLIC_METHODS = 12
MAX_ATTRIBUTES = 12
LARGER_CLASSES = {"Facade": 15, "LogSink": 13, "RunContext": 20, "ToolCallState": 14}
"""A kind of line in the log is a method, a pattern has no other door than its context, and a call is so many facts."""
VALUE_BASES = ("BaseModel", "Table", "NamedTuple", "StrEnum", "Enum", "Protocol", "Exception")


def large_classes(source: Source) -> Iterator[Finding]:
    values = _value_classes(source)
    for node in source.nodes(ast.ClassDef):
        methods, attributes = public_methods(node), attributes_of(node)
        most = LARGER_CLASSES.get(node.name, MAX_PUBLIC_METHODS)
        if len(methods) > most:
            yield Finding(node.lineno, f"{node.name} has {len(methods)} public methods")
        most = LARGER_CLASSES.get(node.name, MAX_ATTRIBUTES)
        if len(attributes) > most and node.name not in values:
            yield Finding(node.lineno, f"{node.name} has {len(attributes)} attributes")


def public_methods(node: ast.ClassDef) -> set[str]:
    """Return the names of the methods and properties that other modules may use."""
    functions = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return {each.name for each in functions if not each.name.startswith("_")}


def attributes_of(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's fields, and of what its methods assign to `self`."""
    fields = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and _is_field(each)}
    assigned = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and dotted(each.value) == "self"
    }
    return fields | assigned


def _is_field(node: ast.AnnAssign) -> bool:
    return isinstance(node.target, ast.Name) and "ClassVar" not in ast.unparse(node.annotation)


def _value_classes(source: Source) -> set[str]:
    """Return the names of wire models, settings and frozen values, and of the classes that inherit from them."""
    values: set[str] = set()
    for node in source.nodes(ast.ClassDef):
        bases = {dotted(base).rpartition(".")[2] for base in node.bases}
        if bases & {*VALUE_BASES, *values} or any(map(_is_frozen, node.decorator_list)):
            values.add(node.name)
    return values


def changed_values(source: Source) -> Iterator[Finding]:
    """Yield what changes an attribute behind the type checker, which alone keeps values from being changed."""
    for call, name in called(source):
        if name in {"setattr", "delattr"} or name.endswith((".__setattr__", ".__delattr__")):
            yield Finding(call.lineno, f"calls {name}")
    for node in source.nodes(ast.Subscript):
        is_written = isinstance(node.ctx, ast.Store | ast.Del)
        if is_written and (dotted(node.value) == "vars()" or dotted(node.value).endswith("__dict__")):
            yield Finding(node.lineno, "writes into the dict of an object")


def _is_frozen(decorator: ast.expr) -> bool:
    if dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) == "value":
        return True
    if not isinstance(decorator, ast.Call) or not dotted(decorator.func).endswith("dataclass"):
        return False
    return any(each.arg == "frozen" and ast.unparse(each.value) == "True" for each in decorator.keywords)


ANY = "app/portico/domain/any.py"
METHODS = "".join(f"    def m{number}(self): ...\n" for number in range(MAX_PUBLIC_METHODS + 1))
FIELDS = "".join(f"    f{number}: int\n" for number in range(MAX_ATTRIBUTES + 1))
ASSIGNED = "    def __init__(self):\n" + "".join(
    f"        self.a{number} = 1\n" for number in range(MAX_ATTRIBUTES + 1)
)
RULES = (
    Rule(
        f"No class has more than {MAX_PUBLIC_METHODS} public methods and {MAX_ATTRIBUTES} attributes",
        product_or_bench,
        large_classes,
        planted=(
            (ANY, f"class Hub:\n{METHODS}"),
            (ANY, f"class Hub:\n{ASSIGNED}"),
            (ANY, f"@dataclass\nclass Hub:\n{FIELDS}"),
            (ANY, f"class Wire(BaseModel):\n{METHODS}"),
        ),
        innocent=(
            (ANY, f"class Wire(BaseModel):\n{FIELDS}"),
            (ANY, f"class Table(BaseModel): ...\nclass Settings(Table):\n{FIELDS}"),
            (ANY, f"@dataclass(frozen=True, slots=True)\nclass Value:\n{FIELDS}"),
            (ANY, f"@value\nclass Value:\n{FIELDS}"),
            (ANY, f"@value(slots=False)\nclass Value:\n{FIELDS}"),
            (ANY, f"class RunContext:\n{METHODS}"),
        ),
    ),
    Rule(
        "Values are not changed behind the type checker",
        product,
        changed_values,
        planted=(
            (ANY, "object.__setattr__(step, 'name', 'b')\n"),
            (ANY, "super().__delattr__('name')\n"),
            (ANY, "setattr(step, name, 'b')\n"),
            (ANY, "vars(step)['name'] = 'b'\n"),
            (ANY, "del step.__dict__['name']\n"),
        ),
        innocent=((ANY, "names = vars(step)['name'], replace(step, name='b')\nreplies['name'] = 'b'\n"),),
    ),
)
