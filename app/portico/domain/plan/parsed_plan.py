"""Parsed plans: what is known of each step, found once, and the order of the steps by index.

A changed plan is parsed from the one before it, whose steps stay parsed: only new and changed steps cost anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from pydantic import JsonValue, ValidationError

from portico.domain.contract.request import OutputContract, PlanStep
from portico.domain.plan.graph import predecessors, topological_order
from portico.domain.plan.steps import InferInput, InputType, StepInput, StepOptions, StepSpec, StepType, spec_of
from portico.domain.tools import tool_of
from portico.domain.value import value


class ParsedStep:
    """A step of a plan with the facts of its type; each of its parts is parsed when it is first needed, and once."""

    def __init__(self, plan_step: PlanStep) -> None:
        self.plan_step = plan_step
        self.name = plan_step.name
        self.type = plan_step.type
        self.input = plan_step.input
        self.spec = spec_of(plan_step.type)

    @cached_property
    def given(self) -> Mapping[str, JsonValue]:
        """All keys of the step that belong to its type; null counts as absent."""
        return {key: value for key, value in (self.plan_step.model_extra or {}).items() if value is not None}

    @cached_property
    def shared_options(self) -> Mapping[str, JsonValue]:
        """The options as they are given, without those that only its type of a module has."""
        if not self.spec.has_own_options:
            return self.given
        return {key: self.given[key] for key in self.given.keys() & self.spec.options}

    @cached_property
    def own_options(self) -> Mapping[str, JsonValue]:
        """The options that only its type of a module has."""
        return {key: value for key, value in self.given.items() if key not in self.shared_options}

    @cached_property
    def options(self) -> StepOptions:
        """The options of a valid step, without those that only its type of a module has.

        Raises: pydantic.ValidationError for others.
        """
        return StepOptions.model_validate(self.shared_options)

    @cached_property
    def invalid_options(self) -> frozenset[str]:
        """The options of the step's type whose values are invalid."""
        try:
            self.options  # noqa: B018 - parses them
        except ValidationError as error:
            return self.spec.options.intersection(str(each["loc"][0]) for each in error.errors())
        return frozenset()

    @cached_property
    def own_schema(self) -> JsonValue:
        """The schema in the input, valid or not; None if there is none."""
        return self.input.get("schema") if isinstance(self.input, dict) else None

    @cached_property
    def has_schema(self) -> bool:
        """True if a step that calls a model has a schema, in its options or its input."""
        return "schema" in self.given or self.own_schema is not None

    @cached_property
    def contract(self) -> OutputContract | None:
        """The output contract of a valid step, as far as it is known before the step runs; None if it has none."""
        return self._contract_with(self.own_schema if self.spec.calls_model else None)

    def contract_for(self, step_input: StepInput) -> OutputContract | None:
        """Return the output contract of a valid step for its input, whose schema takes precedence over the options."""
        return self._contract_with(step_input.schema_) if isinstance(step_input, InferInput) else self.contract

    @cached_property
    def named_tools(self) -> Sequence[tuple[str, str]]:
        """The names of tools in a step of a known type, each with its path in the step."""
        return tuple(self._named_tools())

    def _contract_with(self, schema: JsonValue) -> OutputContract | None:
        schema = self.options.schema_ if schema is None else schema
        if schema is None and not self.options.rules:
            return None
        return OutputContract.model_validate({"schema": schema, "rules": self.options.rules})

    def _named_tools(self) -> Iterator[tuple[str, str]]:
        inner = self.input if isinstance(self.input, dict) else {}
        named = [(".tools", self.shared_options.get("tools"))]
        named += [(".input.tools", inner.get("tools"))] if self.spec.calls_model else []
        named += [(".input.name", [inner.get("name")])] if self.type == StepType.TOOL else []
        for path, names in named:
            if isinstance(names, list):
                yield from ((path, tool_of(name)) for name in names if isinstance(name, str))


@value
class StepTypes:
    """Known types of a step's input and output; `outputs` are those of the steps that it depends on, by name."""

    outputs: Mapping[str, InputType]
    input: InputType
    output: InputType
    fits: bool
    """True if the step may work on its input."""


class ParsedPlan:
    """The parsed steps of a plan, for each the indexes of those it depends on, and their topological order."""

    def __init__(self, steps: tuple[ParsedStep, ...], known_types: Mapping[ParsedStep, StepTypes]) -> None:
        self.steps = steps
        self.predecessors = predecessors(self.plan_steps)
        self.order = topological_order(self.predecessors)
        self._known_types = known_types

    @property
    def plan_steps(self) -> tuple[PlanStep, ...]:
        """The steps as the plan states them."""
        return tuple(step.plan_step for step in self.steps)

    @cached_property
    def types(self) -> Mapping[ParsedStep, StepTypes]:
        """The types of the steps in topological order, without those of a cycle."""
        types = dict[ParsedStep, StepTypes]()
        for index in self.order:
            step, earlier = self.steps[index], [self.steps[each] for each in self.predecessors[index]]
            outputs = {each.name: types[each].output for each in earlier}
            known = self._known_types.get(step)
            types[step] = _types_of(step, outputs) if known is None or known.outputs != outputs else known
        return types


def parse_plan(steps: Sequence[PlanStep], earlier: ParsedPlan | None = None) -> ParsedPlan:
    """Return the parsed plan, whether it can run or not. Steps that are those of an earlier plan stay parsed."""
    known = {} if earlier is None else {id(step.plan_step): step for step in earlier.steps}
    parsed = tuple(known.get(id(step)) or ParsedStep(step) for step in steps)
    return ParsedPlan(parsed, {} if earlier is None else earlier.types)


def _types_of(step: ParsedStep, outputs: Mapping[str, InputType]) -> StepTypes:
    given: InputType
    if step.input is not None or not outputs:
        given = "value" if not isinstance(step.input, str | None) else "text"
    else:
        given = next(iter(outputs.values())) if len(outputs) == 1 else outputs
    fits = step.spec.accepts(given) if step.input is None else _matches(step.spec, step.input)
    output = "value" if step.spec.calls_model and step.has_schema else step.spec.output_type(given)
    return StepTypes(outputs, given, output, fits)


def _matches(spec: StepSpec, given: JsonValue) -> bool:
    try:
        spec.input_adapter.validate_python(given)
    except ValidationError:
        return False
    return True
