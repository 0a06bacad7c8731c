"""Signatures of node functions: the models of their inputs and outputs, read from the annotations."""

import inspect
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel


class SignatureError(Exception):
    """A signature that a node cannot have; the text says what to change."""


def function_name(function: object) -> str:
    """Return the name by which messages call the function."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def check_async(function: object, *, expected: bool) -> None:
    """Raise SignatureError if the function is async and should not be, or the other way round."""
    if inspect.iscoroutinefunction(_annotated(function)) != expected:
        raise SignatureError("it must be `async def`" if expected else "it must be a plain function, without `async`")


def input_models(function: object, count: int) -> list[type[BaseModel]]:
    """Return the models of the first `count` parameters, which the context follows. Raises: SignatureError."""
    try:
        parameters = [
            each
            for each in inspect.signature(_annotated(function)).parameters.values()
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.name != "self"
        ]
    except (TypeError, ValueError) as cause:
        raise SignatureError("its signature cannot be read; give a plain function") from cause
    if len(parameters) != count + 1:
        inputs = "its input" if count == 1 else f"its {count} inputs"
        raise SignatureError(f"it must take {inputs} and the context")
    hints = _hints(function)
    for parameter in parameters[:count]:
        if parameter.name not in hints:
            raise SignatureError(f"annotate its parameter {parameter.name} with a pydantic model")
    return [_model(hints[each.name], f"its parameter {each.name}") for each in parameters[:count]]


def output_model(function: object) -> type[BaseModel]:
    """Return the model that the function returns. Raises: SignatureError."""
    return _model(_returned(function), "its result")


def alternative_models(function: object) -> list[type[BaseModel]]:
    """Return the two models of which the function returns one. Raises: SignatureError."""
    returned = _returned(function)
    if get_origin(returned) not in (Union, UnionType) or len(get_args(returned)) != 2:
        raise SignatureError("it must return exactly two alternatives, such as `-> Good | Poor`")
    return [_model(each, "each alternative") for each in get_args(returned)]


def tuple_models(function: object) -> list[type[BaseModel]]:
    """Return the models of the tuple that the function returns. Raises: SignatureError."""
    returned = _returned(function)
    if get_origin(returned) is not tuple or len(get_args(returned)) < 2 or Ellipsis in get_args(returned):
        raise SignatureError("it must return a tuple of two or more models, such as `-> tuple[Summary, Sources]`")
    return [_model(each, "each member of the tuple") for each in get_args(returned)]


def _returned(function: object) -> Any:
    hints = _hints(function)
    if "return" not in hints:
        raise SignatureError("annotate its result")
    return hints["return"]


def _hints(function: object) -> dict[str, Any]:
    try:
        return get_type_hints(_annotated(function))
    except Exception as cause:  # other people's code may raise anything
        raise SignatureError(f"its annotations cannot be resolved: {cause}") from cause


def _annotated(function: object) -> Any:
    return function if inspect.isroutine(function) else type(function).__call__


def _model(annotation: object, what: str) -> type[BaseModel]:
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        raise SignatureError(f"{what} must be a pydantic model, not {name}")
    return annotation
