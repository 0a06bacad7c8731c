"""The supervisor of a prompt call: each failure has its repair, and a repaired part takes its place."""

import json
from functools import partial
from typing import Any

import pytest
from pydantic import JsonValue

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts.assessment import AnswerJudgementInput, AnswerJudgementOutput
from portico.capabilities.prompting.prompts.planning import (
    STEP_TYPE_DESCRIPTIONS,
    PlanGenerationInput,
    PlanGenerationOutput,
)
from portico.capabilities.prompting.prompts.repair import (
    RepairJsonInput,
    RepairMissingToolInput,
    RepairPlanInput,
    RepairToolCallInput,
)
from portico.capabilities.prompting.supervisor import MAX_QUOTED_CHARACTERS, Supervisor, max_inferences
from portico.capabilities.tools.arguments import ArgumentValidators, plan_violations
from portico.domain.failures import ConstraintFailure, Failure, OrchestrationFailure
from portico.domain.plan.parsed_plan import parse_plan
from portico.domain.plan.plan import plan_refused, validate_plan
from portico.domain.plan.policy import EffectivePlanPolicy
from portico.domain.tools import ToolDefinition

LOOK = {"type": "object", "required": ["at"], "properties": {"at": {"type": "string"}}, "additionalProperties": False}
TOOLS = [{"name": "look", "description": "Looks.", "parameters": LOOK}]
POLICY = EffectivePlanPolicy(5, frozenset(STEP_TYPE_DESCRIPTIONS), False, None, tools=frozenset({"look"}))
THINK: dict[str, Any] = {"name": "think", "type": "infer", "input": "Why?"}


def call(name: str, tool: str = "look", **arguments: JsonValue) -> dict[str, Any]:
    """Return a step that calls a tool."""
    return {"name": name, "type": "tool", "input": {"name": tool, "arguments": arguments}}


def check(made: PlanGenerationOutput) -> None:
    refusal = validate_plan(parse_plan(made.steps), POLICY)
    violations = list(plan_violations(parse_plan(made.steps), ArgumentValidators([ToolDefinition("look", "", LOOK)])))
    if refusal is not None:
        raise refusal
    if violations:
        raise plan_refused(violations)


def planning(attempts: int = 3) -> Supervisor[PlanGenerationOutput]:
    given = PlanGenerationInput.model_validate(
        {"request": "Look.", "tools": TOOLS, "step_types": dict(STEP_TYPE_DESCRIPTIONS), "max_steps": 5}
    )
    return Supervisor(PromptCall(PromptId.PLAN_GENERATION_USER, given, PlanGenerationOutput, check), attempts)


def judging(attempts: int = 3) -> Supervisor[AnswerJudgementOutput]:
    given = AnswerJudgementInput(request="Cats?", answer="Tom.")
    return Supervisor(PromptCall(PromptId.ANSWER_JUDGEMENT_USER, given, AnswerJudgementOutput), attempts)


def plan(*steps: dict[str, Any]) -> str:
    return json.dumps({"steps": steps})


def step_inputs(made: PlanGenerationOutput | None) -> dict[str, JsonValue]:
    assert made is not None
    return {step.name: step.input for step in made.steps}


def test_the_first_prompt_is_the_calls_own_and_a_usable_reply_ends_it() -> None:
    supervisor = planning()
    assert supervisor.prompt.prompt_id is PromptId.PLAN_GENERATION_USER
    assert step_inputs(supervisor.read(plan(THINK))) == {"think": "Why?"}


@pytest.mark.parametrize(
    ("reply", "path"),
    [("It is fine.", "$"), ('{"valid": true, "score": 7}', "$.score"), ('{"valid": true}', "$.score")],
)
def test_a_reply_without_json_and_a_misfit_are_repaired_as_json(reply: str, path: str) -> None:
    supervisor = judging()
    form = supervisor.response_format
    assert supervisor.read(reply) is None
    assert supervisor.prompt.prompt_id is PromptId.SUPERVISOR_REPAIR_JSON_USER
    given = supervisor.prompt.prompt_input
    assert isinstance(given, RepairJsonInput)
    assert (given.answer, given.task, given.json_schema) == (reply, {"request": "Cats?", "answer": "Tom."}, form.schema)
    assert [violation.path for violation in given.violations] == [path]
    assert supervisor.response_format == form
    answer = supervisor.read('{"valid": true, "score": 0.5}')
    assert answer is not None
    assert answer.score == 0.5


def test_a_tool_that_is_not_offered_has_its_step_repaired_in_its_place() -> None:
    supervisor = planning()
    assert supervisor.read(plan(THINK, call("find", "google", q="cats") | {"depends_on": ["think"]})) is None
    assert supervisor.prompt.prompt_id is PromptId.SUPERVISOR_REPAIR_MISSINGTOOL_USER
    given = supervisor.prompt.prompt_input
    assert isinstance(given, RepairMissingToolInput)
    assert [step.name for step in given.steps] == ["find"]
    assert [tool.name for tool in given.tools] == ["look"]
    made = supervisor.read(json.dumps({"steps": [{"name": "find", "type": "infer", "input": "Where are cats?"}]}))
    assert step_inputs(made) == {"think": "Why?", "find": "Where are cats?"}
    assert made is not None
    assert made.steps[1].depends_on == ["think"]


def test_arguments_that_do_not_fit_have_the_call_repaired_in_its_place() -> None:
    supervisor = planning()
    assert supervisor.read(plan(THINK, call("see", where="here"), call("fine", at="there"))) is None
    assert supervisor.prompt.prompt_id is PromptId.SUPERVISOR_REPAIR_TOOLCALL_USER
    given = supervisor.prompt.prompt_input
    assert isinstance(given, RepairToolCallInput)
    assert [(each.step, each.tool, each.arguments) for each in given.calls] == [("see", "look", {"where": "here"})]
    assert given.calls[0].parameters == LOOK
    made = supervisor.read(json.dumps({"calls": [{"step": "see", "arguments": {"at": "here"}}]}))
    assert step_inputs(made)["see"] == {"name": "look", "arguments": {"at": "here"}}
    assert step_inputs(made)["fine"] == {"name": "look", "arguments": {"at": "there"}}


@pytest.mark.parametrize(
    "steps", [(THINK, THINK), (call("see", "google"), THINK | {"type": "zork"}), (THINK | {"depends_on": ["gone"]},)]
)
def test_any_other_refusal_has_the_whole_plan_repaired(steps: tuple[dict[str, Any], ...]) -> None:
    supervisor = planning()
    assert supervisor.read(plan(*steps)) is None
    assert supervisor.prompt.prompt_id is PromptId.SUPERVISOR_REPAIR_PLAN_USER
    given = supervisor.prompt.prompt_input
    assert isinstance(given, RepairPlanInput)
    assert isinstance(given.answer, dict)
    assert given.answer["steps"] == list(steps)
    assert step_inputs(supervisor.read(plan(THINK))) == {"think": "Why?"}


@pytest.mark.parametrize("refused", [call("see", where="here"), call("see", "google", q="x")])
@pytest.mark.parametrize("reply", [plan(call("see", at="here"), THINK), plan(call("view", at="here"))])
def test_a_whole_plan_instead_of_its_repaired_part_is_taken_as_it_is(refused: dict[str, Any], reply: str) -> None:
    supervisor = planning()
    assert supervisor.read(plan(refused, THINK)) is None
    made = supervisor.read(reply)
    assert made is not None
    assert [step.name for step in made.steps] == [step["name"] for step in json.loads(reply)["steps"]]


@pytest.mark.parametrize(
    ("refused", "reply"),
    [
        (call("see", where="here"), {"name": "look", "arguments": {"at": "here"}}),
        (call("see", "google", q="x"), call("see", at="here")),
    ],
)
def test_one_call_or_step_alone_is_put_in_its_place(refused: dict[str, Any], reply: dict[str, Any]) -> None:
    supervisor = planning()
    assert supervisor.read(plan(refused, THINK)) is None
    made = supervisor.read(json.dumps(reply))
    assert step_inputs(made) == {"see": {"name": "look", "arguments": {"at": "here"}}, "think": "Why?"}


def test_a_repair_that_cannot_be_read_is_repaired_as_json_of_the_same_form() -> None:
    supervisor = planning()
    assert supervisor.read(plan(THINK, call("see", where="here"))) is None
    form = supervisor.response_format
    assert supervisor.read("I cannot.") is None
    assert supervisor.prompt.prompt_id is PromptId.SUPERVISOR_REPAIR_JSON_USER
    assert supervisor.response_format == form
    made = supervisor.read(json.dumps({"calls": [{"step": "see", "arguments": {"at": "here"}}]}))
    assert step_inputs(made)["think"] == "Why?"


@pytest.mark.parametrize("name", ["think", "gone", ""])
def test_a_repaired_call_of_another_step_is_a_misfit(name: str) -> None:
    supervisor = planning(attempts=2)
    assert supervisor.read(plan(THINK, call("see", where="here"), call("view", where="there"))) is None
    with pytest.raises(ConstraintFailure) as caught:
        supervisor.read(json.dumps({"calls": [{"step": name, "arguments": {"at": "here"}}]}))
    assert caught.value.details["violations"][0]["path"] == "$.calls[0].step"


@pytest.mark.parametrize(("attempts", "repairs"), [(1, 0), (2, 1), (3, 2), (9, 2)])
def test_there_are_two_repairs_at_most_and_the_error_names_them(attempts: int, repairs: int) -> None:
    supervisor = judging(attempts)
    for _ in range(repairs):
        assert supervisor.read("No.") is None
    with pytest.raises(Failure) as caught:
        supervisor.read("No.")
    assert caught.value.details.get("repairs", []) == [PromptId.SUPERVISOR_REPAIR_JSON_USER] * repairs
    assert caught.value.details["methods"]
    assert max_inferences(attempts) == 1 + repairs


def test_the_error_names_each_repair_in_its_order() -> None:
    supervisor = planning()
    read = partial(supervisor.read, plan(THINK, call("see", "google")))
    assert read() is None
    assert supervisor.read(plan(THINK, THINK)) is None
    with pytest.raises(OrchestrationFailure) as caught:
        supervisor.read(plan(THINK, THINK))
    assert caught.value.details["repairs"] == [
        PromptId.SUPERVISOR_REPAIR_MISSINGTOOL_USER,
        PromptId.SUPERVISOR_REPAIR_PLAN_USER,
    ]


def test_of_a_very_long_reply_the_repair_sees_both_ends() -> None:
    supervisor = judging()
    assert supervisor.read("begin" + "x" * 10**6 + "end") is None
    given = supervisor.prompt.prompt_input
    assert isinstance(given, RepairJsonInput)
    assert len(given.answer) <= MAX_QUOTED_CHARACTERS + 3
    assert (given.answer[:5], given.answer[-3:]) == ("begin", "end")
