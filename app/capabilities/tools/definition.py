"""Tools made of typed Python functions.

The function's name, the first paragraph of its docstring and its annotated parameters are the definition; pydantic
derives the JSON Schema and turns raw arguments into typed values. What it returns is a text for the model, or a value
that the model is shown as JSON. A parameter annotated `ToolContext` gets the context and is not an argument. An
`async def` function runs on the event loop, a plain one on a thread of its own, which nothing can stop: past its limit
it is abandoned. A tool that is not always available is a small class with the four methods of `ports.Tool` instead.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from app.domain.tools import ArgumentViolation, Availability, SideEffects, ToolDefinition, ToolInfo
from app.ports.tool import ToolContext, ToolError

ToolFunction = Callable[..., Any]
_ALWAYS = Availability(available=True)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ToolArgumentError(ToolError):
    """The arguments do not fit, for these reasons. The same arguments never fit."""

    def __init__(self, violations: tuple[ArgumentViolation, ...]) -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in violations))
        self.violations = violations


def tool(
    *,
    side_effects: SideEffects,
    idempotent: bool,
    requires: tuple[str, ...] = (),
    timeout: float | None = None,
) -> Callable[[ToolFunction], "FunctionTool"]:
    """Return a decorator that makes a tool of a function; `timeout` is in seconds.

    Raises: TypeError, saying what is missing, for a function that cannot be a tool.
    """

    def decorate(function: ToolFunction) -> FunctionTool:
        name = function.__name__
        description = _first_paragraph(function)
        info = ToolInfo(name, "python", description, side_effects, idempotent, requires, timeout)
        return FunctionTool(function, info)

    return decorate


class FunctionTool:
    """A function as a tool; implements `ports.Tool` and is always available."""

    __slots__ = ("_context", "_definition", "_function", "_info", "_parameters", "is_blocking", "module")

    def __init__(self, function: ToolFunction, info: ToolInfo) -> None:
        self._function = function
        self.is_blocking = not inspect.iscoroutinefunction(function)
        """True for a plain function, which needs a thread."""
        self.module = function.__module__
        """Name of the module that defines the function."""
        self._info = info
        self._parameters, self._context = _parameters(function)
        self._definition = ToolDefinition(info.name, info.description, _schema(self._parameters))

    def info(self) -> ToolInfo:
        return self._info

    def definition(self) -> ToolDefinition:
        return self._definition

    def available(self) -> Availability:
        return _ALWAYS

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Call the function with typed values. Raises: ToolArgumentError, and the ToolError of the function itself."""
        values = self._typed(arguments)
        if self._context is not None:
            values[self._context] = context
        if not self.is_blocking or context.threads is None:
            result = self._function(**values)
        else:
            result = await context.threads.run(partial(self._function, **values))
        return await result if inspect.isawaitable(result) else result

    def _typed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            typed = self._parameters.model_validate(arguments)
        except ValidationError as invalid:
            errors = invalid.errors(include_url=False, include_context=False, include_input=False)
            raise ToolArgumentError(tuple((_path(error["loc"]), error["msg"]) for error in errors)) from None
        return {name: getattr(typed, name) for name in self._parameters.model_fields}


class _Untitled(GenerateJsonSchema):
    """Generator of schemas without titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _schema(parameters: type[BaseModel]) -> dict[str, Any]:
    schema = parameters.model_json_schema(schema_generator=_Untitled)
    del schema["title"]
    return schema


def _parameters(function: ToolFunction) -> tuple[type[BaseModel], str | None]:
    """Return a model of the function's arguments, and the name of its context parameter."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    context = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _NAMED or parameter.name not in hints:
            raise TypeError(f"{function.__name__}: {parameter.name} must be annotated and passed by name")
        if hints[parameter.name] is ToolContext:
            context = parameter.name
        else:
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], default)
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields), context


def _first_paragraph(function: ToolFunction) -> str:
    paragraph = (inspect.getdoc(function) or "").strip().partition("\n\n")[0]
    if not paragraph:
        raise TypeError(f"{function.__name__} needs a docstring: it tells the model what the tool does")
    return " ".join(paragraph.split())


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(("arguments", *map(str, location)))
