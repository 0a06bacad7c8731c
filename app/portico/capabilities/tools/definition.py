"""Tools made of typed Python functions.

The function's name, the first paragraph of its docstring and its annotated parameters are the definition; pydantic
derives the JSON Schema and turns raw arguments into typed values. What it returns is a text for the model, or a value
that the model is shown as JSON. A parameter annotated `ToolContext` gets the context and is not an argument. An
`async def` function runs on the event loop, a plain one on a thread of its own, which nothing can stop: past its limit
it is abandoned. A tool that is not always available is a small class with the four methods of `ports.Tool` instead.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from portico.domain.tools import ArgumentViolation, Availability, SideEffects, ToolDefinition, ToolInfo
from portico.domain.value import replace, value
from portico.ports.current_caller import CALLER
from portico.ports.tool import ToolContext, ToolError

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
    credentials: tuple[str, ...] = (),
) -> Callable[[ToolFunction], "FunctionTool"]:
    """Return a decorator that makes a tool of a function; `timeout` is in seconds.

    `credentials` are those of the configuration that its context may give it.

    Raises: TypeError, saying what is missing, for a function that cannot be a tool.
    """

    def decorate(function: ToolFunction) -> FunctionTool:
        name = function.__name__
        description = first_paragraph(function)
        identity = " ".join(credentials)
        info = ToolInfo(
            *(name, "python", description, side_effects, idempotent, requires, timeout, identity),
            credentials=tuple(credentials),
        )
        return FunctionTool(function, info)

    return decorate


class FunctionTool:
    """A function as a tool; implements `ports.Tool` and is always available."""

    __slots__ = ("_definition", "_function", "_info", "_signature", "is_blocking", "module")

    def __init__(self, function: ToolFunction, info: ToolInfo, signature: "Signature | None" = None) -> None:
        self._function = function
        self.is_blocking = not inspect.iscoroutinefunction(function)
        """True for a plain function, which needs a thread."""
        self.module = function.__module__
        """Name of the module that defines the function."""
        self._info = info
        self._signature = _signature(function) if signature is None else signature
        self._definition = ToolDefinition(info.name, info.description, schema_of(self._signature.arguments))

    def as_instant(self) -> "FunctionTool":
        """Return the tool as one whose function ends without waiting for anything, and touches nothing."""
        return FunctionTool(self._function, replace(self._info, instant=True), self._signature)

    def info(self) -> ToolInfo:
        return self._info

    def definition(self) -> ToolDefinition:
        return self._definition

    def available(self) -> Availability:
        return _ALWAYS

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Call the function with typed values. Raises: ToolArgumentError, and the ToolError of the function itself."""
        values, signature = self._typed(arguments), self._signature
        if signature.context is not None:
            values[signature.context] = context
        token = CALLER.set(context.caller)
        try:
            if not self.is_blocking or context.threads is None:
                result = self._function(**values)
            else:
                result = await context.threads.run(partial(self._function, **values))
            return await result if inspect.isawaitable(result) else result
        finally:
            CALLER.reset(token)

    def _typed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            typed = self._signature.arguments.model_validate(arguments)
        except ValidationError as invalid:
            errors = invalid.errors(include_url=False, include_context=False, include_input=False)
            raise ToolArgumentError(tuple((_path(error["loc"]), error["msg"]) for error in errors)) from None
        names = self._signature.parameters
        return {names.get(name, name): getattr(typed, name) for name in type(typed).model_fields}


@value
class Signature:
    """The arguments of a function as a model, and the name of its context parameter, if it has one.

    `parameters` are the names of the parameters that differ from those of their arguments.
    """

    arguments: type[BaseModel]
    context: str | None
    parameters: Mapping[str, str] = field(default_factory=dict)


class _Untitled(GenerateJsonSchema):
    """Generator of schemas without titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_of(arguments: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model without the titles, which only repeat the names."""
    schema = arguments.model_json_schema(schema_generator=_Untitled)
    schema.pop("title", None)
    return schema


def model_of(name: str, fields: Mapping[str, tuple[Any, Any]]) -> type[BaseModel]:
    """Return a model of arguments: the annotation and the default of each, by name. No others are accepted."""
    given: dict[str, Any] = dict(fields)
    return create_model(name, __config__=ConfigDict(extra="forbid"), **given)


def default_of(parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter, as a field of a model has it."""
    return ... if parameter.default is inspect.Parameter.empty else parameter.default


def _signature(function: ToolFunction) -> Signature:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    context = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _NAMED or parameter.name not in hints:
            raise TypeError(f"{function.__name__}: {parameter.name} must be annotated and passed by name")
        if hints[parameter.name] is ToolContext:
            context = parameter.name
        else:
            fields[parameter.name] = (hints[parameter.name], default_of(parameter))
    return Signature(model_of(function.__name__, fields), context)


def first_paragraph(function: Callable[..., Any], purpose: str = "tells the model what the tool does") -> str:
    """Return the first paragraph of the docstring in one line. Raises: TypeError, with its `purpose`, without one."""
    paragraph = (inspect.getdoc(function) or "").strip().partition("\n\n")[0]
    if not paragraph:
        raise TypeError(f"{function.__name__} needs a docstring: it {purpose}")
    return " ".join(paragraph.split())


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(("arguments", *map(str, location)))
