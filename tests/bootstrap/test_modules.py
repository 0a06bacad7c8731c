"""Python modules that define tools, rules, step types and planners: what is taken of them, what stops the start."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portico.bootstrap.modules import load_plan_modules, load_rules, load_tools
from portico.domain.failures import Code, ConfigurationFailure

FUNCTIONS = '''
from portico import SideEffects, tool
from json import dumps

@tool(side_effects=SideEffects.NONE, idempotent=True)
def count_words(text: str) -> str:
    """Count words."""
    return str(len(text.split()))

@tool(side_effects=SideEffects.READ, idempotent=True)
async def read_order(number: int) -> str:
    """Read an order."""
    return dumps({"number": number})
'''
CLASS = """
from portico import Availability, SideEffects, ToolDefinition, ToolInfo

class Stock:
    def __init__(self{parameter}) -> None:
        self.name = "stock"
    def info(self):
        return ToolInfo(self.name, "python", "Look at the stock.", SideEffects.READ, True)
    def definition(self):
        return ToolDefinition(self.name, "Look at the stock.", {{"type": "object"}})
    def available(self):
        return Availability(True)
    {execute}(self, arguments, context):
        return "12"
"""
RULE = """
from portico import rule

@rule
def {name}(answer, options):
    return None
"""

STEP = """
from portico import SideEffects, planner, step

@step(side_effects=SideEffects.NONE, idempotent=True)
{definition}
    '''Do it.'''
    return text
"""
PLANNER = """
from portico import planner

@planner
def {name}(task):
    return []
"""


@pytest.fixture(autouse=True)
def _imports() -> Iterator[None]:
    path, before = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("acme"):
            del sys.modules[name]


def _names(directory: Path, **modules: str) -> list[str]:
    for name, text in modules.items():
        directory.joinpath(f"{name}.py").write_text(text)
    return [tool.info().name for tool in load_tools(list(modules), directory)]


def test_a_module_gives_the_tools_that_it_defines_itself(tmp_path: Path) -> None:
    other = "from acme_functions import count_words\n" + CLASS.format(parameter="", execute="async def execute")
    assert _names(tmp_path, acme_functions=FUNCTIONS, acme_classes=other) == ["count_words", "read_order", "stock"]


def test_the_objects_that_a_module_makes_of_its_class_take_the_place_of_the_class(tmp_path: Path) -> None:
    made = (
        CLASS.format(parameter=", name", execute="async def execute") + "\nfirst = Stock('a')\nfirst.name = 'first'\n"
    )
    assert _names(tmp_path, acme_made=made) == ["first"]


def test_the_directory_comes_last_on_the_import_path(tmp_path: Path) -> None:
    tmp_path.joinpath("json.py").write_text("raise RuntimeError('shadowed')")
    _names(tmp_path, acme_path=FUNCTIONS)
    assert sys.path[-1] == str(tmp_path)


def test_without_modules_nothing_becomes_importable(tmp_path: Path) -> None:
    assert load_tools([], tmp_path) == []
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import no_such_library", "cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("from portico import tool", "defines no tool; decorate a function with @tool"),
        (CLASS.format(parameter=", url", execute="async def execute"), "cannot make Stock: TypeError: "),
        (CLASS.format(parameter="", execute="def execute"), "defines Stock, whose execute must be `async def`"),
        (
            CLASS.format(parameter="", execute="async def execute").replace("ToolInfo(", "print("),
            "defines Stock, which must return a ToolInfo and a ToolDefinition",
        ),
        (
            CLASS.format(parameter="", execute="async def execute").replace("ToolInfo(", "int("),
            "defines Stock, whose info or definition fails: TypeError",
        ),
    ],
)
def test_a_module_that_cannot_be_used_stops_the_start_with_its_name(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationFailure) as refused:
        _names(tmp_path, acme_broken=text)
    assert refused.value.code is Code.CONFIG_INVALID
    assert refused.value.message.startswith(f"tools.modules: acme_broken {problem}")


def test_a_module_gives_the_rules_that_it_defines_itself(tmp_path: Path) -> None:
    tmp_path.joinpath("acme_own.py").write_text(RULE.format(name="polite"))
    tmp_path.joinpath("acme_other.py").write_text("from acme_own import polite\n" + RULE.format(name="brief"))
    assert load_rules([], tmp_path).names() == ("no_placeholder", "not_empty", "unique_by")
    names = load_rules(["acme_own", "acme_other"], tmp_path).names()
    assert names == ("brief", "no_placeholder", "not_empty", "polite", "unique_by")


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ("1 / 0", "acme_second cannot be imported: ZeroDivisionError: division by zero"),
        ("from portico import rule", "acme_second defines no rule; decorate a function with @rule"),
        (RULE.format(name="polite"), "acme_second defines the rule polite, and so does acme_first"),
        (RULE.format(name="not_empty"), "acme_second defines the rule not_empty, and so does built-in"),
    ],
)
def test_rules_that_cannot_be_used_stop_the_start_with_their_module(tmp_path: Path, second: str, problem: str) -> None:
    tmp_path.joinpath("acme_first.py").write_text(RULE.format(name="polite"))
    tmp_path.joinpath("acme_second.py").write_text(second)
    with pytest.raises(ConfigurationFailure) as refused:
        load_rules(["acme_first", "acme_second"], tmp_path)
    assert (refused.value.code, refused.value.message) == (Code.CONFIG_INVALID, f"rules.modules: {problem}")


def test_a_module_gives_the_step_types_and_planners_that_it_defines_itself(tmp_path: Path) -> None:
    own = STEP.format(definition="def count(text: str) -> str:") + PLANNER.format(name="first")
    tmp_path.joinpath("acme_own.py").write_text(own)
    other = "from acme_own import count, first\n" + PLANNER.format(name="second") + "third = second\n"
    tmp_path.joinpath("acme_other.py").write_text(other)
    assert load_plan_modules([], tmp_path).step_types == {}
    found = load_plan_modules(["acme_own", "acme_other"], tmp_path)
    assert (list(found.step_types), list(found.planners)) == (["count"], ["first", "second"])


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        (
            "from portico import step",
            "defines no step type and no planner; decorate a function with @step or @pl",
        ),
        (STEP.format(definition="def taken(text: str) -> str:"), "defines the step type taken, and so does acme_first"),
        (STEP.format(definition="def infer(text: str) -> str:"), "defines the step type infer, and so does built-in"),
        (PLANNER.format(name="model"), "defines the planner model, and so does built-in"),
        (PLANNER.format(name="mine"), "defines the planner mine, and so does acme_first"),
        (
            "from portico import planner\n@planner\ndef none():\n    return []",
            "cannot be imported: TypeError: none must take one argument, the PlanningTask",
        ),
        *(
            (STEP.format(definition=definition), f"cannot be imported: TypeError: odd{problem}")
            for definition, problem in [
                ("def odd(text: str):", ": annotate its result, which is the output of the step"),
                ("def odd(text) -> str:", ": annotate text"),
                ("def odd(text: str, other: str) -> str:", " must take one input; options follow behind a `*`"),
                ("def odd(*, text: str) -> str:", " must take one input; options follow behind a `*`"),
                ("def odd(text: str, *, name: str) -> str:", ": name is a member of every step: depends_on, "),
                ("def odd(*text: str) -> str:", ": text must be passed by name"),
            ]
        ),
        (STEP.format(definition="def odd(text: object()) -> str:"), "cannot be imported: "),
        (STEP.format(definition="def odd(text: 'Missing') -> str:"), "cannot be imported: NameError: "),
        (STEP.format(definition="def straße(text: str) -> str:"), "cannot be imported: TypeError: straße cannot name"),
        (
            STEP.format(definition="def odd(text: str) -> str:").replace("Do it.", "Do it. " * 2000),
            "cannot be imported: TypeError: odd: its description and its schemas must have at most 8000 characters",
        ),
    ],
)
def test_what_cannot_be_used_of_a_plan_module_stops_the_start(tmp_path: Path, second: str, problem: str) -> None:
    first = STEP.format(definition="def taken(text: str) -> str:") + PLANNER.format(name="mine")
    tmp_path.joinpath("acme_first.py").write_text(first)
    tmp_path.joinpath("acme_second.py").write_text(second)
    with pytest.raises(ConfigurationFailure) as refused:
        load_plan_modules(["acme_first", "acme_second"], tmp_path)
    assert refused.value.code is Code.CONFIG_INVALID
    assert refused.value.message.startswith(f"plan.modules: acme_second {problem}")
