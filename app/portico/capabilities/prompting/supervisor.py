"""Supervisor of a prompt call: it reads the replies, and has an unusable one repaired by the prompt that fits.

A reply without JSON, or whose JSON does not fit, is repaired as JSON; tools that are not offered, as steps; arguments
that do not fit their tools, as calls; any other refusal, as a whole. The reply to a repair is the output of the call:
repaired steps and calls are put in the place of the old ones, and a whole new output is taken as it is. Each repair is
a conversation of its own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic

from pydantic import BaseModel, JsonValue

from portico.capabilities.prompting.definition import PromptId, PromptInput
from portico.capabilities.prompting.prompt_call import (
    Output,
    Prompt,
    PromptCall,
    misfit,
    parse_output,
    violations_of,
)
from portico.capabilities.prompting.prompts.output_format import StructuredViolationsInput
from portico.capabilities.prompting.prompts.planning import PlanGenerationInput, PlanGenerationOutput, PlannableTool
from portico.capabilities.prompting.prompts.repair import (
    RefusedCall,
    RepairedCall,
    RepairJsonInput,
    RepairMissingToolInput,
    RepairMissingToolOutput,
    RepairPlanInput,
    RepairToolCallInput,
    RepairToolCallOutput,
)
from portico.domain.contract.request import PlanStep
from portico.domain.failures import ConstraintFailure, Failure
from portico.domain.model_call import ResponseFormat
from portico.domain.plan.policy import TOOL_NOT_OFFERED
from portico.domain.value import value

MAX_REPAIRS: Final = 2
MAX_QUOTED_CHARACTERS: Final = 20_000
"""Most characters of an unreadable reply that a repair is shown."""
_TOOL_PLACE: Final = re.compile(r"steps\.(\d+)\.(?:tools|input\.tools|input\.name)")
_ARGUMENTS_PLACE: Final = re.compile(r"steps\.(\d+)\.input\.arguments(?:\..*)?", re.DOTALL)


def max_inferences(attempts: int) -> int:
    """Return the most inferences of one call: the first, and its repairs."""
    return 1 + _max_repairs(attempts)


def _max_repairs(attempts: int) -> int:
    return min(MAX_REPAIRS, attempts - 1)


@value
class _Inquiry(Generic[Output]):
    """A question to a model, and how its reply is read as the output of the call."""

    prompt: Prompt
    response_format: ResponseFormat
    parse: Callable[[str], Output]


class Supervisor(Generic[Output]):
    """Supervises one call. `prompt` and `response_format` are what to ask next, each in a conversation of its own."""

    def __init__(self, call: PromptCall[Output], attempts: int) -> None:
        self._call = call
        self._max_repairs = _max_repairs(attempts)
        self._inquiry = _Inquiry(call.prompt, call.response_format, call.parse)
        self._repairs: list[PromptId] = []

    @property
    def prompt(self) -> Prompt:
        """The prompt to ask next."""
        return self._inquiry.prompt

    @property
    def response_format(self) -> ResponseFormat:
        """The format of its answer."""
        return self._inquiry.response_format

    def read(self, text: str) -> Output | None:
        """Return the output; None if the reply is to be repaired, by what `prompt` asks now.

        Raises: the Failure of the last reply, with the repairs that were attempted in `details.repairs`.
        """
        try:
            output = self._inquiry.parse(text)
        except Failure as failure:
            self._require_repairs_left(failure)
            self._ask_next(self._json_repair(text, violations_of(failure)))
            return None
        try:
            self._call.check(output)
        except Failure as failure:
            self._require_repairs_left(failure)
            self._ask_next(self._content_repair(output, violations_of(failure)))
            return None
        return output

    def _require_repairs_left(self, failure: Failure) -> None:
        """Raise the failure, with the repairs that were attempted, if there may be no other one."""
        if len(self._repairs) == self._max_repairs:
            if self._repairs:
                failure.details["repairs"] = [prompt_id.value for prompt_id in self._repairs]
            raise failure

    def _ask_next(self, inquiry: _Inquiry[Output]) -> None:
        self._inquiry = inquiry
        self._repairs.append(inquiry.prompt.prompt_id)

    def _json_repair(self, text: str, violations: Sequence[tuple[str, str]]) -> _Inquiry[Output]:
        """Return the repair of a reply that could not be read; it is read as that reply would have been."""
        schema = dict(self._inquiry.response_format.schema or {})
        given = RepairJsonInput(
            task=self._task, violations=_quoted(violations), json_schema=schema, answer=_shortened(text)
        )
        prompt = Prompt(PromptId.SUPERVISOR_REPAIR_JSON_USER, given)
        return _Inquiry(prompt, self._inquiry.response_format, self._inquiry.parse)

    def _content_repair(self, output: Output, violations: Sequence[tuple[str, str]]) -> _Inquiry[Output]:
        planned = self._call.prompt.prompt_input
        if isinstance(output, PlanGenerationOutput) and isinstance(planned, PlanGenerationInput):
            missing = _places(_TOOL_PLACE, violations) if {text for _, text in violations} == {TOOL_NOT_OFFERED} else []
            if missing:
                return self._missing_tool_repair(output, missing, planned.tools, violations)
            calls = _refused_calls(output, _places(_ARGUMENTS_PLACE, violations), planned.tools)
            if calls:
                return self._call_repair(output, calls, violations)
        answer = output.model_dump(mode="json", exclude_none=True)
        given = RepairPlanInput(task=self._task, violations=_quoted(violations), answer=answer)
        prompt = Prompt(PromptId.SUPERVISOR_REPAIR_PLAN_USER, given)
        return _Inquiry(prompt, self._call.response_format, self._call.parse)

    def _missing_tool_repair(
        self,
        plan: PlanGenerationOutput,
        indexes: Sequence[int],
        tools: tuple[PlannableTool, ...],
        violations: Sequence[tuple[str, str]],
    ) -> _Inquiry[Output]:
        steps = tuple(plan.steps[index] for index in indexes)
        given = RepairMissingToolInput(task=self._task, violations=_quoted(violations), steps=steps, tools=tools)
        prompt = Prompt(PromptId.SUPERVISOR_REPAIR_MISSINGTOOL_USER, given)

        def parse(text: str) -> Output:
            repaired = parse_output(prompt.prompt_id, text, RepairMissingToolOutput).steps
            before = {step.name: step for step in steps}
            if not before.keys() >= {step.name for step in repaired}:
                return self._call.parse(text)
            return self._with_steps(plan, [_in_place(step, before[step.name]) for step in repaired])

        return _Inquiry(prompt, _format_of(given, RepairMissingToolOutput), parse)

    def _call_repair(
        self, plan: PlanGenerationOutput, calls: tuple[RefusedCall, ...], violations: Sequence[tuple[str, str]]
    ) -> _Inquiry[Output]:
        given = RepairToolCallInput(task=self._task, violations=_quoted(violations), calls=calls)
        prompt = Prompt(PromptId.SUPERVISOR_REPAIR_TOOLCALL_USER, given)

        def parse(text: str) -> Output:
            try:
                repaired = parse_output(prompt.prompt_id, text, RepairToolCallOutput).calls
            except ConstraintFailure as unlike_calls:
                try:
                    return self._call.parse(text)
                except ConstraintFailure:
                    raise unlike_calls from None
            steps = {step.name: step for step in plan.steps}
            return self._with_steps(plan, [_called_again(call, calls, steps, at) for at, call in enumerate(repaired)])

        return _Inquiry(prompt, _format_of(given, RepairToolCallOutput), parse)

    def _with_steps(self, plan: PlanGenerationOutput, repaired: Sequence[PlanStep]) -> Output:
        """Return the plan with these steps in the place of those of the same names, read as the output of the call."""
        by_name = {step.name: step for step in repaired}
        steps = tuple(by_name.get(step.name, step) for step in plan.steps)
        return self._call.parse(plan.model_copy(update={"steps": steps}).model_dump_json(exclude_none=True))

    @property
    def _task(self) -> JsonValue:
        task: JsonValue = self._call.prompt.prompt_input.model_dump(mode="json", exclude_defaults=True)
        return task


def _quoted(violations: Sequence[tuple[str, str]]) -> Any:
    return StructuredViolationsInput.from_pairs(violations).violations


def _format_of(given: PromptInput, output: type[BaseModel]) -> ResponseFormat:
    return ResponseFormat(given.output_schema(output))


def _shortened(text: str) -> str:
    half = MAX_QUOTED_CHARACTERS // 2
    return text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:half]}\n…\n{text[-half:]}"


def _places(pattern: re.Pattern[str], violations: Sequence[tuple[str, str]]) -> list[int]:
    """Return the indexes of the steps that the violations name; none unless all of them are at such a place."""
    found = [pattern.fullmatch(path) for path, _ in violations]
    return sorted({int(each[1]) for each in found if each}) if all(found) else []


def _refused_calls(
    plan: PlanGenerationOutput, indexes: Sequence[int], tools: Sequence[PlannableTool]
) -> tuple[RefusedCall, ...]:
    parameters = {tool.name: tool.parameters for tool in tools}
    calls = []
    for step in (plan.steps[index] for index in indexes):
        match step.input:
            case {"name": str(tool), "arguments": dict(arguments)} if tool in parameters:
                calls.append(RefusedCall(step=step.name, tool=tool, arguments=arguments, parameters=parameters[tool]))
    return tuple(calls)


def _in_place(repaired: PlanStep, old: PlanStep) -> PlanStep:
    """Return the repaired step, after the same steps as the old one unless it says otherwise."""
    return repaired if repaired.depends_on is not None else repaired.model_copy(update={"depends_on": old.depends_on})


def _called_again(
    repaired: RepairedCall, calls: Sequence[RefusedCall], steps: Mapping[str, PlanStep], index: int
) -> PlanStep:
    """Return the step that makes the repaired call. Raises: ConstraintFailure if it is none of the refused ones."""
    name = repaired.step or (calls[0].step if len(calls) == 1 else "")
    refused = next((call for call in calls if call.step == name), None)
    if refused is None:
        raise misfit([(f"$.calls[{index}].step", "must name a step whose call is to be repaired")])
    return steps[name].model_copy(update={"input": {"name": refused.tool, "arguments": repaired.arguments}})
