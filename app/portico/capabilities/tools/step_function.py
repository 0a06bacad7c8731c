"""Step types made of typed Python functions.

The function's name is the type, and the first paragraph of its docstring describes it to the planner. The first
parameter takes the input of a step, by its annotation; parameters that are passed by name are further members
of a step, its options; one that is annotated `ToolContext` gets the context. The result is written as JSON by its
annotation. Such a function runs as a tool does, under the name `step:NAME`, which no model and no request can call.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticSerializationError

from portico.capabilities.prompting.prompts.planning import MAX_DESCRIPTION
from portico.capabilities.tools.definition import (
    FunctionTool,
    Signature,
    default_of,
    first_paragraph,
    model_of,
    schema_of,
)
from portico.domain import strict_json
from portico.domain.contract.messages import TOOL_NAME_PATTERN
from portico.domain.tools import STEP_PREFIX, SideEffects, ToolInfo
from portico.ports.tool import ToolContext, ToolError

_INPUT: Final = "input"
_TAKEN: Final = frozenset({"name", "type", _INPUT, "depends_on", "timeout"})
"""Members that a step of any type has."""
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def step(
    *, side_effects: SideEffects, idempotent: bool, timeout: float | None = None
) -> Callable[[Callable[..., Any]], "StepFunction"]:
    """Return a decorator that makes a step type of a function; `timeout` is in seconds.

    Raises: TypeError, saying what is missing, for a function that cannot be one.
    """

    def decorate(function: Callable[..., Any]) -> StepFunction:
        name, description = function.__name__, first_paragraph(function, "tells the planner what the step does")
        if re.fullmatch(TOOL_NAME_PATTERN, name) is None:
            raise TypeError(f"{name} cannot name a step type: use {TOOL_NAME_PATTERN}")
        info = ToolInfo(STEP_PREFIX + name, "step", description, side_effects, idempotent, timeout=timeout)
        return StepFunction(function, info)

    return decorate


class StepFunction(FunctionTool):
    """A function as a step type; implements `ports.Tool`, with the output as JSON."""

    __slots__ = ("_result", "input_schema", "options_schema", "output_schema", "planner_text", "step_type")

    def __init__(self, function: Callable[..., Any], info: ToolInfo) -> None:
        signature, self._result = _read(function)
        super().__init__(function, info, signature)
        self.step_type = info.name.removeprefix(STEP_PREFIX)
        """The type of the steps that it runs."""
        self.input_schema = _input_schema(signature.arguments)
        """JSON Schema of the input."""
        self.options_schema = _schema_of_some(signature.arguments, is_input=False)
        """JSON Schema of the object of all options."""
        self.output_schema: Mapping[str, Any] = self._result.json_schema(mode="serialization")
        """JSON Schema of the output."""
        self.planner_text = self._described()
        """What a planner reads about the type."""
        if len(self.planner_text) > MAX_DESCRIPTION or _UNPRINTABLE.search(self.planner_text):
            problem = f"must have at most {MAX_DESCRIPTION} characters, all of them printable"
            raise TypeError(f"{self.step_type}: its description and its schemas {problem}")

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Call the function with typed values and return its output as JSON. Raises: as for a tool; ToolError."""
        output = await super().execute(arguments, context)
        try:
            value = self._result.dump_python(output, mode="json", by_alias=True, warnings="error")
            text = json.dumps(value, allow_nan=False, ensure_ascii=False)
            strict_json.loads(text.encode())
        except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
            raise ToolError("it returned what its annotation does not describe, or what JSON does not have") from error
        return text

    def _described(self) -> str:
        parts = [f"{self.info().description} Input: {_as_text(self.input_schema)}."]
        if self.options_schema["properties"]:
            parts.append(f"Further members of the step: {_as_text(self.options_schema)}.")
        return " ".join([*parts, f"Output: {_as_text(self.output_schema)}."])


def _read(function: Callable[..., Any]) -> tuple[Signature, TypeAdapter[Any]]:
    """Return the signature of a function whose first parameter is the input, and its result. Raises: TypeError."""
    hints = get_type_hints(function, include_extras=True)
    name = function.__name__
    if "return" not in hints:
        raise TypeError(f"{name}: annotate its result, which is the output of the step")
    context, inputs, options = None, list[inspect.Parameter](), list[inspect.Parameter]()
    for each in inspect.signature(function).parameters.values():
        if each.name not in hints:
            raise TypeError(f"{name}: annotate {each.name}")
        if hints[each.name] is ToolContext:
            context = each.name
        elif each.kind is each.POSITIONAL_OR_KEYWORD:
            inputs.append(each)
        elif each.kind is each.KEYWORD_ONLY and each.name not in _TAKEN:
            options.append(each)
        else:
            taken = f"is a member of every step: {', '.join(sorted(_TAKEN))}"
            raise TypeError(f"{name}: {each.name} {taken if each.name in _TAKEN else 'must be passed by name'}")
    if len(inputs) != 1:
        raise TypeError(f"{name} must take one input; options follow behind a `*`")
    fields = {each.name: (hints[each.name], default_of(each)) for each in options}
    [first] = inputs
    arguments = model_of(name, {_INPUT: (hints[first.name], ...), **fields})
    return Signature(arguments, context, {_INPUT: first.name}), TypeAdapter(hints["return"])


def _schema_of_some(arguments: type[BaseModel], *, is_input: bool) -> dict[str, Any]:
    """Return the JSON Schema of the object with the input alone, or with the options alone."""
    fields = {
        name: (each.annotation, each) for name, each in arguments.model_fields.items() if (name == _INPUT) is is_input
    }
    schema = schema_of(model_of(arguments.__name__, fields))
    del schema["additionalProperties"]
    return schema


def _input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    whole = _schema_of_some(arguments, is_input=True)
    definitions = {"$defs": whole["$defs"]} if "$defs" in whole else {}
    return {**whole["properties"][_INPUT], **definitions}


def _as_text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, sort_keys=True)
