"""The registry: every id has one definition, and an output fits its model or is refused."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from portico.capabilities.output.extract import EXTRACTION_METHODS
from portico.capabilities.prompting.definition import (
    EmptyInput,
    PromptDefinition,
    PromptId,
    PromptInput,
    PromptOutput,
)
from portico.capabilities.prompting.prompts.assessment import AnswerJudgementOutput
from portico.capabilities.prompting.prompts.planning import PlanGenerationOutput
from portico.capabilities.prompting.registry import (
    FAMILIES,
    SYSTEM_PROMPTS,
    JSONExtractionError,
    PromptRegistry,
    default_registry,
)
from portico.domain.contract.request import PlanStep
from portico.domain.failures import Code, Failure

REGISTRY = default_registry()
ALL = [REGISTRY.definition(prompt_id) for prompt_id in REGISTRY.ids()]
JUDGEMENT: JsonValue = {"valid": False, "score": 0.25, "issues": ["It is late."]}
PLAN: JsonValue = {"rationale": "One step will do.", "steps": [{"name": "look", "type": "retrieve", "input": "cats"}]}


def test_every_id_has_exactly_one_definition() -> None:
    assert REGISTRY.ids() == tuple(PromptId)
    assert [definition.prompt_id for definition in ALL] == list(PromptId)
    assert sorted(definition.prompt_id for family in FAMILIES for definition in family) == sorted(PromptId)


def test_an_id_is_written_as_it_is_named() -> None:
    assert all(prompt_id.name == prompt_id.value for prompt_id in PromptId)


def test_every_prompt_has_an_input_model_of_its_own_kind_and_no_other_than_an_output_model() -> None:
    for definition in ALL:
        assert issubclass(definition.input_model, PromptInput)
        assert definition.output_model is None or issubclass(definition.output_model, PromptOutput)


JSON_PROMPTS = {
    *("PLAN_GENERATION_SYSTEM", "PLAN_GENERATION_USER", "RECURSIVE_PLAN_GENERATION_USER"),
    *("RECURSIVE_SUBPLAN_GENERATION_USER", "RECURSIVE_REFINEMENT_SYSTEM", "RECURSIVE_REFINEMENT_USER"),
    *("CONVERGENCE_ASSESSMENT_SYSTEM", "CONVERGENCE_ASSESSMENT_USER", "VALIDATION_SEMANTIC_USER"),
    *("TASKPROFILE_INFERENCE_USER", "TASKPROFILE_UPDATE_USER"),
    *("SUPERVISOR_REPAIR_JSON_USER", "SUPERVISOR_REPAIR_TOOLCALL_USER", "SUPERVISOR_REPAIR_PLAN_USER"),
    *("SUPERVISOR_REPAIR_MISSINGTOOL_USER", "ANSWER_JUDGEMENT_SYSTEM", "ANSWER_JUDGEMENT_USER"),
    "SESSION_SUMMARY_USER",
    *("INPUT_JUDGEMENT_SYSTEM", "INPUT_JUDGEMENT_USER"),
    *("ANSWER_SYNTHESIS_SYSTEM", "ANSWER_SYNTHESIS_USER"),
}
DEMAND = "Reply with one JSON object and nothing else"


def test_exactly_the_listed_prompts_have_an_output_model() -> None:
    assert {definition.prompt_id for definition in ALL if definition.output_model} == JSON_PROMPTS


def test_a_prompt_has_an_output_model_exactly_if_it_or_its_system_prompt_asks_for_json() -> None:
    for definition in ALL:
        system = SYSTEM_PROMPTS.get(definition.prompt_id)
        demands = [definition.template, "" if system is None else REGISTRY.definition(system).template]
        assert any(DEMAND in each for each in demands) == (definition.output_model is not None), definition.prompt_id


def test_every_system_prompt_belongs_to_a_user_prompt_and_takes_its_input_or_none() -> None:
    contracts = {PromptId.STRUCTURED_CONTRACT_SYSTEM, PromptId.GRAMMAR_CONTRACT_SYSTEM}
    assert {each for each in PromptId if each.endswith("_SYSTEM")} == {*SYSTEM_PROMPTS.values(), *contracts}
    for user, system in SYSTEM_PROMPTS.items():
        taken, given = (REGISTRY.definition(each).input_model for each in (system, user))
        assert taken is EmptyInput or issubclass(given, taken)


def test_models_can_be_shown_as_json_schema() -> None:
    for definition in ALL:
        for model in filter(None, (definition.input_model, definition.output_model)):
            fields = model.model_json_schema().get("properties", {})
            assert all(field.get("description") for field in fields.values())


def test_no_text_occurs_in_two_prompts() -> None:
    lines = [line for definition in ALL for line in definition.template.splitlines() if len(line) > 50]
    assert len(lines) == len(set(lines))


def test_there_is_one_registry_of_the_shipped_prompts() -> None:
    assert default_registry() is default_registry()


def test_an_id_with_two_definitions_is_refused() -> None:
    with pytest.raises(ValueError, match="PLAN_GENERATION_USER has two definitions"):
        PromptRegistry([*ALL, REGISTRY.definition(PromptId.PLAN_GENERATION_USER)])


def test_an_id_without_a_definition_is_refused() -> None:
    with pytest.raises(ValueError, match="no definition of VALIDATION_SEMANTIC_USER, SUBMIT_TOOL_DESCRIPTION"):
        PromptRegistry([each for each in ALL if not each.prompt_id.endswith(("SEMANTIC_USER", "DESCRIPTION"))])


@pytest.mark.parametrize("unknown", ["NOTHING", "plan_generation_user", "", "x" * 10_000, 7])
def test_an_unknown_id_is_refused(unknown: Any) -> None:
    for use in (
        lambda: REGISTRY.definition(unknown),
        lambda: REGISTRY.get_prompt(unknown, EmptyInput()),
        lambda: REGISTRY.validate_output(unknown, "{}"),
    ):
        with pytest.raises(KeyError, match="there is no prompt") as caught:
            use()
        assert len(str(caught.value)) < 120


def test_an_id_may_be_given_by_its_name() -> None:
    assert REGISTRY.definition(PromptId("PLAN_GENERATION_USER")) is REGISTRY.definition(PromptId.PLAN_GENERATION_USER)


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.prompt_id)
def test_every_prompt_refuses_an_input_that_is_not_its_own(definition: PromptDefinition) -> None:
    class Stranger(PromptInput):
        other: str = "x"

    with pytest.raises(ValidationError, match=definition.input_model.__name__):
        REGISTRY.get_prompt(definition.prompt_id, Stranger())


@pytest.mark.parametrize(
    "response",
    [
        json.dumps(JUDGEMENT),
        {"text": json.dumps(JUDGEMENT)},
        f"Here it is:\n```json\n{json.dumps(JUDGEMENT, indent=2)}\n```\nBye {{.",
        f"I think {json.dumps(JUDGEMENT)} says it all.",
        json.dumps({**JUDGEMENT, "confidence": "high"}),
    ],
)
def test_a_judgement_is_extracted_and_parsed(response: str | Mapping[str, Any]) -> None:
    assert REGISTRY.validate_output(PromptId.ANSWER_JUDGEMENT_USER, response) == AnswerJudgementOutput(
        valid=False, score=0.25, issues=("It is late.",)
    )


def test_a_plan_is_read_as_steps_with_the_members_of_their_types() -> None:
    steps = [
        {"name": "a", "type": "infer", "input": {"messages": []}, "depends_on": None},
        {"name": "b", "type": "validate", "depends_on": ["a"], "schema": {"type": "string"}},
    ]
    plan = REGISTRY.validate_output(
        PromptId.PLAN_GENERATION_USER, json.dumps({"steps": steps, "notes": "dropped"}), PlanGenerationOutput
    )
    assert plan.rationale == ""
    assert plan.steps == tuple(PlanStep.model_validate(step) for step in steps)
    assert plan.steps[1].model_extra == {"schema": {"type": "string"}}
    assert "notes" not in plan.model_dump()


def test_another_output_model_may_be_asked_for() -> None:
    class Score(BaseModel):
        score: float

    for prompt_id in (PromptId.ANSWER_JUDGEMENT_USER, PromptId.REASONING_STEP_USER):
        assert REGISTRY.validate_output(prompt_id, json.dumps(JUDGEMENT), Score) == Score(score=0.25)


@pytest.mark.parametrize(
    "response", ["", "No.", "{", '{"valid": true, "score": 1', "NaN", {}, {"text": "No."}, {"text": 1}, "[" * 20_000]
)
def test_an_error_of_a_reply_without_json_names_its_prompt_and_the_methods_tried(
    response: str | Mapping[str, Any],
) -> None:
    with pytest.raises(JSONExtractionError) as caught:
        REGISTRY.validate_output(PromptId.ANSWER_JUDGEMENT_USER, response)
    error = caught.value
    assert isinstance(error, Failure)
    assert error.code is Code.CONSTRAINT_JSON_INVALID
    assert error.prompt_id is PromptId.ANSWER_JUDGEMENT_USER
    assert error.extraction_methods_attempted == [method.value for method in EXTRACTION_METHODS]
    assert error.message


@pytest.mark.parametrize(
    ("prompt_id", "value"),
    [
        (PromptId.ANSWER_JUDGEMENT_USER, []),
        (PromptId.ANSWER_JUDGEMENT_USER, "yes"),
        (PromptId.ANSWER_JUDGEMENT_USER, {}),
        (PromptId.ANSWER_JUDGEMENT_USER, {"valid": True}),
        (PromptId.ANSWER_JUDGEMENT_USER, {"valid": True, "score": 1.01}),
        (PromptId.ANSWER_JUDGEMENT_USER, {"valid": True, "score": -0.01}),
        (PromptId.ANSWER_JUDGEMENT_USER, {"valid": "perhaps", "score": 1}),
        (PromptId.ANSWER_JUDGEMENT_USER, {"valid": True, "score": 1, "issues": "none"}),
        (PromptId.ANSWER_JUDGEMENT_USER, {"valid": True, "score": 1, "issues": [{}]}),
        (PromptId.PLAN_GENERATION_USER, {"rationale": "none"}),
        (PromptId.PLAN_GENERATION_USER, {"steps": []}),
        (PromptId.PLAN_GENERATION_USER, {"steps": [{"name": "a"}]}),
        (PromptId.PLAN_GENERATION_USER, {"steps": [{"name": "", "type": "infer"}]}),
        (PromptId.PLAN_GENERATION_USER, {"steps": [{"name": "a", "type": "infer", "depends_on": "b"}]}),
        (PromptId.PLAN_GENERATION_SYSTEM, [PLAN]),
    ],
)
def test_json_that_does_not_fit_is_a_validation_error(prompt_id: PromptId, value: JsonValue) -> None:
    with pytest.raises(ValidationError) as caught:
        REGISTRY.validate_output(prompt_id, json.dumps(value))
    assert not isinstance(caught.value, JSONExtractionError)


def test_a_refused_answer_is_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        REGISTRY.validate_output(PromptId.ANSWER_JUDGEMENT_USER, '{"valid": "secret", "score": "secret"}')
    assert "secret" not in str(caught.value)


def test_a_prompt_that_asks_for_text_has_no_output_to_validate() -> None:
    with pytest.raises(ValueError, match="SUPERVISOR_REPAIR_SYSTEM asks for text"):
        REGISTRY.validate_output(PromptId.SUPERVISOR_REPAIR_SYSTEM, "{}")
