"""Python modules of the configuration: their import, and the tools, rules, step types and planners they define."""

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from portico.capabilities.output.rules.custom import BUILT_IN_RULES
from portico.capabilities.output.rules.rule_set import RuleRegistry, rules_of
from portico.capabilities.tools.definition import FunctionTool
from portico.capabilities.tools.planner_function import PlannerFunction
from portico.capabilities.tools.step_function import StepFunction
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.journal.outcomes import PLANNER_IDS
from portico.domain.plan.steps import StepType
from portico.domain.tools import ToolDefinition, ToolInfo
from portico.domain.value import value
from portico.ports.tool import Tool

_METHODS: Final = ("info", "definition", "execute", "available")
"""Methods of the `Tool` port."""


def import_modules(names: Sequence[str], *, key: str, directory: Path) -> list[ModuleType]:
    """Import the modules that a setting names; the last place where they are looked for is `directory`.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a module that cannot be imported, with its error.
    """
    path = str(directory.resolve())
    if names and path not in sys.path:
        sys.path.append(path)
    return [_import(name, key) for name in names]


def load_tools(names: Sequence[str], directory: Path) -> list[Tool]:
    """Import the modules of `tools.modules` and return the tools that they define themselves.

    Those are functions with `@tool`, and classes with the four methods of a tool, or the objects that the module makes
    of such a class. Raises: ConfigurationFailure (CONFIG_INVALID) for a module that cannot be used.
    """
    found: list[Tool] = []
    for module in import_modules(names, key="tools.modules", directory=directory):
        tools = list(_tools(module))
        if not tools:
            raise invalid_module("tools.modules", module.__name__, "defines no tool; decorate a function with @tool")
        found += tools
    return found


def load_rules(names: Sequence[str], directory: Path) -> RuleRegistry:
    """Import the modules of `rules.modules` and return the built-in rules with those that they define themselves.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a module that cannot be used, and for two rules of one name.
    """
    key = "rules.modules"
    sources = dict.fromkeys(BUILT_IN_RULES.names(), "built-in")
    found = []
    for module in import_modules(names, key=key, directory=directory):
        rules = rules_of(module)
        if not rules:
            raise invalid_module(key, module.__name__, "defines no rule; decorate a function with @rule")
        for each in rules:
            if each.name in sources:
                problem = f"defines the rule {each.name}, and so does {sources[each.name]}"
                raise invalid_module(key, module.__name__, problem)
            sources[each.name] = module.__name__
        found += rules
    return BUILT_IN_RULES.with_rules(found)


@value
class PlanModules:
    """Step types and planners of the modules of `plan.modules`, by name."""

    step_types: Mapping[str, StepFunction] = field(default_factory=dict)
    planners: Mapping[str, PlannerFunction] = field(default_factory=dict)


def load_plan_modules(names: Sequence[str], directory: Path) -> PlanModules:
    """Import the modules of `plan.modules` and return the step types and planners that they define themselves.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a module that cannot be used, and for two of one name.
    """
    key = "plan.modules"
    sources = {f"step type {name}": "built-in" for name in StepType}
    sources |= {f"planner {name}": "built-in" for name in PLANNER_IDS}
    found = list[StepFunction | PlannerFunction]()
    for module in import_modules(names, key=key, directory=directory):
        members = [each for each in vars(module).values() if isinstance(each, StepFunction | PlannerFunction)]
        own = list(dict.fromkeys(each for each in members if each.module == module.__name__))
        if not own:
            problem = "defines no step type and no planner; decorate a function with @step or @planner"
            raise invalid_module(key, module.__name__, problem)
        for each in own:
            defined = f"step type {each.step_type}" if isinstance(each, StepFunction) else f"planner {each.name}"
            if defined in sources:
                problem = f"defines the {defined}, and so does {sources[defined]}"
                raise invalid_module(key, module.__name__, problem)
            sources[defined] = module.__name__
        found += own
    return PlanModules(
        {each.step_type: each for each in found if isinstance(each, StepFunction)},
        {each.name: each for each in found if isinstance(each, PlannerFunction)},
    )


def invalid_module(key: str, module: str, problem: str) -> ConfigurationFailure:
    """Return the failure of a module that cannot be used."""
    return ConfigurationFailure(Code.CONFIG_INVALID, f"{key}: {module} {problem}")


def _import(name: str, key: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # other people's code may raise anything
        raise invalid_module(key, name, f"cannot be imported: {type(error).__name__}: {error}") from error


def _tools(module: ModuleType) -> Iterator[Tool]:
    members = list({id(each): each for each in vars(module).values()}.values())
    yield from (each for each in members if isinstance(each, FunctionTool) and each.module == module.__name__)
    classes = [each for each in members if inspect.isclass(each) and _is_tool_class(each, module)]
    for kind in classes:
        objects: list[Any] = [each for each in members if type(each) is kind]
        for tool in objects or [_instance(kind, module)]:
            _check_methods(tool, module)
            yield tool


def _is_tool_class(kind: type, module: ModuleType) -> bool:
    has_methods = all(callable(getattr(kind, name, None)) for name in _METHODS)
    return kind.__module__ == module.__name__ and has_methods and not inspect.isabstract(kind)


def _instance(kind: type, module: ModuleType) -> object:
    try:
        return kind()
    except (Exception, SystemExit) as error:  # other people's code may raise anything
        problem = f"cannot make {kind.__name__}: {type(error).__name__}: {error}"
        raise invalid_module("tools.modules", module.__name__, problem) from error


def _check_methods(tool: Any, module: ModuleType) -> None:
    """Raise ConfigurationFailure (CONFIG_INVALID) for an object whose methods cannot be those of a tool."""
    name = type(tool).__name__
    if not inspect.iscoroutinefunction(tool.execute):
        raise invalid_module("tools.modules", module.__name__, f"defines {name}, whose execute must be `async def`")
    try:
        info, definition = tool.info(), tool.definition()
    except (Exception, SystemExit) as error:  # other people's code may raise anything
        problem = f"defines {name}, whose info or definition fails: {type(error).__name__}: {error}"
        raise invalid_module("tools.modules", module.__name__, problem) from error
    if not isinstance(info, ToolInfo) or not isinstance(definition, ToolDefinition):
        problem = f"defines {name}, which must return a ToolInfo and a ToolDefinition"
        raise invalid_module("tools.modules", module.__name__, problem)
