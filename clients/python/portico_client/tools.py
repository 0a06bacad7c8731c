"""Tools that the caller's own program runs: their definitions for a model, and the results of their calls."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

import anyio
import anyio.to_thread

from portico_client.core import given_answer
from portico_client.types import JsonValue, Suspension

Answer = dict[str, Any]
_SCALARS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """A tool that this program runs. `parameters` is the JSON Schema of the arguments of `function`, by their names."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Return what the function returns."""
        return self.function(**arguments)


def tool_of(function: Callable[..., Any]) -> Tool:
    """Return the tool that a function is: its name, the first paragraph of its docstring, and its parameters.

    Raises: TypeError for a parameter whose type has no JSON.
    """
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise TypeError(f"{function.__name__}: the parameter {name} must be one with a name")
        if name not in hints:
            raise TypeError(f"{function.__name__}: the parameter {name} must have a type")
        fields[name] = hints[name]
        required += [name] if parameter.default is parameter.empty else []

    def call(**arguments: Any) -> Any:
        return function(**{name: _value(fields[name], each) for name, each in arguments.items()})

    description = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return Tool(function.__name__, description, _object(fields, required), call)


def offered(tools: Sequence[Tool | Callable[..., Any] | str]) -> tuple[Mapping[str, Tool], dict[str, Any]]:
    """Return the tools to run by their names, and the fields of a request that offers them; names are the service's."""
    own = [each if isinstance(each, Tool) else tool_of(each) for each in tools if not isinstance(each, str)]
    fields: dict[str, Any] = {}
    if named := [each for each in tools if isinstance(each, str)]:
        fields["tools"] = named
    if own:
        shown = [{"name": t.name, "description": t.description, "parameters": {**t.parameters}} for t in own]
        fields["client_tools"] = shown
    return {each.name: each for each in own}, fields


def run_in_turn(tools: Mapping[str, Tool], suspensions: Sequence[Suspension]) -> list[Answer]:
    """Run the calls of these tools that are open, and return the answers to them."""
    answers = []
    for call in _own_calls(tools, suspensions):
        try:
            answers.append(_answer(call, tools[call["tool_id"]].run(_arguments(call))))
        except Exception as error:  # noqa: BLE001 - the model reads every exception of a tool
            answers.append(_failed(call, error))
    return answers


async def run_side_by_side(tools: Mapping[str, Tool], suspensions: Sequence[Suspension]) -> list[Answer]:
    """Run the calls of these tools that are open at the same time, blocking functions in threads of their own."""
    answers: list[Answer] = []

    async def run(call: Suspension) -> None:
        try:
            begun = partial(tools[call["tool_id"]].run, _arguments(call))
            answers.append(_answer(call, await settled(await anyio.to_thread.run_sync(begun))))
        except Exception as error:  # noqa: BLE001 - the model reads every exception of a tool
            answers.append(_failed(call, error))

    async with anyio.create_task_group() as group:
        for call in _own_calls(tools, suspensions):
            group.start_soon(run, call)
    return answers


async def settled(value: Any) -> Any:
    """Return the value, once it is there."""
    return await value if inspect.isawaitable(value) else value


def _own_calls(tools: Mapping[str, Tool], suspensions: Sequence[Suspension]) -> list[Suspension]:
    return [each for each in suspensions if each["kind"] == "client_tool" and each["tool_id"] in tools]


def _arguments(call: Suspension) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", call["value"])


def _answer(call: Suspension, result: Any) -> Answer:
    value: JsonValue = json.loads(json.dumps(result, allow_nan=False, default=_plain))
    return given_answer(call, {"result": value})


def _failed(call: Suspension, error: Exception) -> Answer:
    return given_answer(call, {"result": f"{type(error).__name__}: {error}", "is_error": True})


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"a result of the type {type(value).__name__} is no JSON")


def _object(fields: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    properties = {name: _schema(name, hint) for name, hint in fields.items()}
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def _schema(name: str, hint: Any) -> dict[str, Any]:  # noqa: PLR0911 - one for each form of a type
    origin, args = get_origin(hint) or hint, get_args(hint)
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if hint is Any:
        return {}
    if origin is Annotated:
        texts = [each for each in args[1:] if isinstance(each, str)]
        return {**_schema(name, args[0]), **({"description": texts[0]} if texts else {})}
    if origin is Literal:
        return {"enum": [*args]}
    if origin in {Union, UnionType}:
        return {"anyOf": [_schema(name, each) for each in args]}
    if origin is list:
        return {"type": "array", "items": _schema(name, args[0]) if args else {}}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(name, args[1]) if args else True}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [each.value for each in hint]}
    if (fields := _fields(hint)) is not None:
        return _object(*fields)
    raise TypeError(f"the type {hint!r} of {name} has no JSON: use str, int, a list, a dataclass … or a Tool")


def _fields(hint: Any) -> tuple[Mapping[str, Any], Sequence[str]] | None:
    """Return the types of the fields of a TypedDict or a dataclass, and the names of those that must be there."""
    if is_typeddict(hint):
        return get_type_hints(hint), sorted(hint.__required_keys__)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        found = [each for each in dataclasses.fields(hint) if each.init]
        hints, missing = get_type_hints(hint, include_extras=True), dataclasses.MISSING
        required = [each.name for each in found if each.default is missing and each.default_factory is missing]
        return {each.name: hints[each.name] for each in found}, required
    return None


def _value(hint: Any, found: Any) -> Any:
    """Return the value of a type that an argument stands for. Raises: TypeError, ValueError if it does not fit."""
    origin, args = get_origin(hint) or hint, get_args(hint)
    if origin is Annotated:
        return _value(args[0], found)
    if origin in {Union, UnionType}:
        return _first_fit(args, found)
    if origin is Literal:
        return args[args.index(found)]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(found)
    _require(hint, origin, found)
    if origin in {list, dict} and args:
        return [_value(args[0], x) for x in found] if origin is list else {k: _value(args[1], found[k]) for k in found}
    fields = _fields(hint)
    return found if fields is None else hint(**{name: _value(fields[0][name], found[name]) for name in found})


def _require(hint: Any, origin: Any, found: Any) -> None:
    if hint is Any:
        return
    expected = (int, float) if hint is float else dict if _fields(hint) is not None else origin
    if not isinstance(found, expected) or (hint in {int, float} and isinstance(found, bool)):
        raise TypeError(f"expected {getattr(hint, '__name__', hint)}, got {json.dumps(found)}")


def _first_fit(hints: Sequence[Any], found: Any) -> Any:
    failures = []
    for hint in hints:
        try:
            return _value(hint, found)
        except (TypeError, ValueError) as error:
            failures.append(str(error))
    raise TypeError("; ".join(failures))
