"""Arguments of tool calls: their validation against the definitions of the tools."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.plan.parsed_plan import ParsedPlan
from portico.domain.plan.steps import StepType
from portico.domain.tools import STEP_PREFIX, ArgumentViolation, ToolDefinition

if TYPE_CHECKING:
    import jsonschema_rs

_MAX_ERRORS: Final = 5
_MAX_NAME: Final = 64


class ArgumentValidators:
    """The validators of the arguments of these tools.

    They fetch nothing and search patterns in linear time. Raises: ConfigurationFailure (CONFIG_INVALID) for a schema
    that cannot be used.
    """

    def __init__(self, tools: Iterable[ToolDefinition]) -> None:
        self._validators = {tool.name: ArgumentValidator(tool) for tool in tools}
        for each in self._validators.values():
            each.compile()

    def violations(self, tool: str, arguments: Mapping[str, Any]) -> tuple[ArgumentViolation, ...]:
        """Return the first reasons why the arguments do not fit the tool; none for a tool that is not known."""
        validator = self._validators.get(tool)
        return () if validator is None else validator.violations(arguments)


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


class ArgumentValidator:
    """The validator of a tool's arguments, which fetches nothing and searches patterns in linear time.

    It is compiled when it is used first: its library takes five megabytes, which a service that calls no tool saves.
    Raises: ConfigurationFailure (CONFIG_INVALID) then, if the parameters cannot be used.
    """

    def __init__(self, tool: ToolDefinition) -> None:
        self._tool = tool

    def compile(self) -> None:
        """Compile the parameters of the tool now. Raises: ConfigurationFailure (CONFIG_INVALID)."""
        _ = self._validator

    def violations(self, arguments: Mapping[str, Any]) -> tuple[ArgumentViolation, ...]:
        """Return the first reasons why the arguments do not fit; messages name arguments and show no values."""
        try:
            return tuple(_violation(error) for error in islice(self._validator.iter_errors(arguments), _MAX_ERRORS))
        except ValueError as cause:
            return (("arguments", f"cannot be read: {_first_line(cause)}"),)

    @cached_property
    def _validator(self) -> "jsonschema_rs.Validator":
        import jsonschema_rs  # noqa: PLC0415 - see above

        try:
            return jsonschema_rs.validator_for(
                dict(self._tool.parameters),
                mask="the value",
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except ValueError as cause:
            message = f"the parameters of tool {self._tool.name} cannot be used: {_first_line(cause)}"
            raise ConfigurationFailure(Code.CONFIG_INVALID, message) from cause


def _violation(error: "jsonschema_rs.ValidationError") -> ArgumentViolation:
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
