"""Interface for modules that extend the service."""

from collections.abc import Mapping
from typing import Any

import pytest

import portico
from portico import plugins
from portico.capabilities.output.rules.rule_set import RuleRegistry
from portico.domain.tools import ToolInfo
from tests.architecture.source import Source, imported, product, repository
from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock


def test_the_interface_has_what_is_promised() -> None:
    promised = {"tool", "SideEffects", "ToolError", "rule", "step", "planner", "PlanningTask"}
    promised |= {
        "AgentConfig",
        "Context",
        "FlowGraph",
        "FlowRuntime",
        "FlowSnapshot",
        "RunOut",
        "flow",
        "scripted_engine",
        "PathEscape",
        "ForbiddenCommand",
        "Io",
        "Missing",
    }
    assert promised <= set(plugins.__all__)
    assert all(getattr(plugins, name) is not None for name in plugins.__all__)


def _imports_the_interface(source: Source) -> bool:
    """Return True for a module that imports the package itself, a name of it, or the module behind it."""
    interface = {"portico", *(f"portico.{name}" for name in ("*", *portico.__all__))}
    return any(name in interface or name.startswith("portico.plugins") for _, name in imported(source))


def test_no_module_of_the_service_imports_it() -> None:
    service = [source for source in repository() if product(source.path) and source.path != "app/portico/__init__.py"]
    assert service
    assert not [source.path for source in service if _imports_the_interface(source)]


@pytest.mark.parametrize(
    "text",
    [
        "import portico",
        "from portico import tool",
        "from portico import __version__",
        "from portico import *",
        "from portico import plugins",
        "from portico.plugins import tool",
        "def f():\n    import portico.plugins",
    ],
)
def test_an_import_of_it_is_noticed(text: str) -> None:
    assert _imports_the_interface(Source("app/portico/domain/any.py", text))


async def test_a_tool_is_a_function() -> None:
    @plugins.tool(side_effects=plugins.SideEffects.READ, idempotent=True)
    async def look_up(name: str) -> str:
        """Look up a name."""
        if name == "unknown":
            raise plugins.ToolError("there is no such name")
        return f"{name} was found"

    context = plugins.ToolContext("call_1", 1.0, VirtualClock(), SeededEntropy(0), "key")
    assert look_up.info() == ToolInfo("look_up", "python", "Look up a name.", plugins.SideEffects.READ, idempotent=True)
    assert await look_up.execute({"name": "Ada"}, context) == "Ada was found"
    with pytest.raises(plugins.ToolError, match="no such name"):
        await look_up.execute({"name": "unknown"}, context)


def test_a_rule_is_a_function_that_returns_the_reason_of_a_violation() -> None:
    @plugins.rule
    def polite(answer: plugins.AnswerContent, _options: Mapping[str, Any]) -> str | None:
        return None if "please" in answer.text else "is not polite"

    rules = RuleRegistry({"polite": polite}).compile(["polite"])
    assert not rules.validate(plugins.AnswerContent("Come in, please.", None)).errors
    assert rules.validate(plugins.AnswerContent("Come in.", None)).errors


def test_a_rule_never_waits() -> None:
    async def waits(*_: object) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        plugins.rule(waits)  # the wrong kind of function


async def test_a_step_type_is_a_function_of_its_input_and_its_options() -> None:
    @plugins.step(side_effects=plugins.SideEffects.NONE, idempotent=True)
    def shorten(text: str, *, to: int = 3) -> list[str]:
        """Shorten a text."""
        return list(text[:to])

    context = plugins.ToolContext("call_1", 1.0, VirtualClock(), SeededEntropy(0), "key")
    assert await shorten.execute({"input": "large", "to": 2}, context) == '["l", "a"]'
    assert shorten.planner_text == (
        'Shorten a text. Input: {"type": "string"}. Further members of the step: {"properties": {"to": {"default": 3, '
        '"type": "integer"}}, "type": "object"}. Output: {"items": {"type": "string"}, "type": "array"}.'
    )
