"""Arguments of tool calls: their validation against the definitions of the tools."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

import jsonschema_rs

from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.plan.parsed_plan import ParsedPlan
from portico.domain.plan.steps import StepType
from portico.domain.tools import STEP_PREFIX, ArgumentViolation, ToolDefinition

_MAX_ERRORS: Final = 5
_MAX_NAME: Final = 64


class ArgumentValidators:
    """The validators of the arguments of these tools.

    They fetch nothing and search patterns in linear time. Raises: ConfigurationFailure (CONFIG_INVALID) for a schema
    that cannot be used.
    """

    def __init__(self, tools: Iterable[ToolDefinition]) -> None:
        self._validators = {tool.name: argument_validator(tool) for tool in tools}

    def violations(self, tool: str, arguments: Mapping[str, Any]) -> tuple[ArgumentViolation, ...]:
        """Return the first reasons why the arguments do not fit the tool; none for a tool that is not known."""
        validator = self._validators.get(tool)
        return () if validator is None else argument_violations(validator, arguments)


class KnowsArguments(Protocol):
    """Knowledge of the arguments that fit: a registry of tools, or the validators of recorded definitions."""

    def violations(self, tool: str, arguments: Mapping[str, Any], /) -> tuple[ArgumentViolation, ...]: ...


def plan_violations(
    plan: ParsedPlan, tools: KnowsArguments, unchecked: Sequence[int] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield why steps of type `tool` or of a module's type cannot run, as pairs of path and message, as far as it is
    known before.

    The input of a step without one of its own is the output of an earlier one. Only the steps at the indexes
    `unchecked`, by default all, are checked.
    """
    for index in range(len(plan.steps)) if unchecked is None else unchecked:
        step = plan.steps[index]
        call = step.input
        if step.spec.has_own_options:
            for path, message in tools.violations(STEP_PREFIX + step.type, {**step.own_options, "input": call}):
                place = path.removeprefix("arguments").removeprefix(".")
                if call is not None or place.partition(".")[0] != "input":
                    yield f"steps.{index}.{place}".rstrip("."), message
        elif step.type == StepType.TOOL and isinstance(call, dict):
            tool, arguments = call.get("name"), call.get("arguments")
            if isinstance(tool, str) and isinstance(arguments, dict):
                for path, message in tools.violations(tool, arguments):
                    yield f"steps.{index}.input.{path}", message


def argument_violations(
    validator: jsonschema_rs.Validator, arguments: Mapping[str, Any]
) -> tuple[ArgumentViolation, ...]:
    """Return the first reasons why the arguments do not fit; messages name arguments and do not show their values."""
    try:
        return tuple(_violation(error) for error in islice(validator.iter_errors(arguments), _MAX_ERRORS))
    except ValueError as cause:
        return (("arguments", f"cannot be read: {_first_line(cause)}"),)


def argument_validator(tool: ToolDefinition) -> jsonschema_rs.Validator:
    """Return the validator of a tool's arguments.

    It fetches nothing and searches patterns in linear time. Raises: ConfigurationFailure (CONFIG_INVALID).
    """
    try:
        return jsonschema_rs.validator_for(
            dict(tool.parameters), mask="the value", offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValueError as cause:
        message = f"the parameters of tool {tool.name} cannot be used: {_first_line(cause)}"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message) from cause


def _violation(error: jsonschema_rs.ValidationError) -> ArgumentViolation:
    """Return the violation at the path of the argument, also of one that is missing or not expected."""
    path = ["arguments", *map(str, error.instance_path)]
    match error.kind.as_dict():
        case {"property": str(name)}:
            return _path([*path, name]), "is required"
        case {"unexpected": [str(name), *_]}:
            return _path([*path, name]), "is not expected"
    return _path(path), error.message


def _path(parts: Sequence[str]) -> str:
    return ".".join(part[:_MAX_NAME] for part in parts)


def _first_line(cause: ValueError) -> str:
    return str(cause).partition("\n")[0]
