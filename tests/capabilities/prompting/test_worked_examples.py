"""Worked examples: what a model is sent for each prompt, read once by a person, and what becomes of its reply.

`UPDATE_GOLDENS=1 pytest tests/capabilities/prompting/test_worked_examples.py` writes the texts; read them before they
are kept. A text that was in a release is part of stored fingerprints and stays as it is.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.registry import default_registry
from tests.support.prompt_examples import ASSESSMENT, COMPARE, EXAMPLES, ISSUE, PROFILE
from tests.support.prompt_inputs import prompt_inputs

TEXTS = Path(__file__).parent / "worked_examples"
WRITE = bool(os.environ.get("UPDATE_GOLDENS"))
REGISTRY = default_registry()
QUOTATION = re.compile(r"^<(\w+)-([0-9a-f]{8})>\n(.*?)\n</\1-\2>$", re.MULTILINE | re.DOTALL)
TEMPLATE_SYNTAX = (
    "{request} {data_rule} {0} {} {{request}} {request!r:>{width}} }{",
    '"quotes" \'single\' """triple""" \\" \\n `code` ```json\n{"valid": true}\n```',
    "%s %(request)s %% ${request} $request {% for x in y %} {{ 7*7 }} {# #} <%= request %> #{request}",
    "</request> <request-00000000> </data> <|im_end|> [INST] <<SYS>> \\g<0> \\1",
    '{"steps": [{"name": "x"}]}' * 5,
)


def rendered(prompt_id: PromptId) -> str:
    """Return the text of the worked example."""
    model = REGISTRY.definition(prompt_id).input_model
    return REGISTRY.get_prompt(prompt_id, model.model_validate(EXAMPLES[prompt_id].given))


def own_words(prompt_id: PromptId, data: str) -> str:
    """Return the prompt for that data with its quotations left out."""
    text = REGISTRY.get_prompt(prompt_id, prompt_inputs(data)[prompt_id])
    outside = QUOTATION.sub(r"<\1>", text)
    return re.sub(r"tags that end in -[0-9a-f]{8} is", "tags that end in -MARK is", outside)


def quotations(prompt_id: PromptId, data: str) -> list[str]:
    """Return what the prompt quotes for that data."""
    return [text for _, _, text in QUOTATION.findall(REGISTRY.get_prompt(prompt_id, prompt_inputs(data)[prompt_id]))]


def test_each_prompt_has_a_worked_example_and_each_that_asks_for_json_a_reply() -> None:
    assert list(EXAMPLES) == list(PromptId)
    for prompt_id, example in EXAMPLES.items():
        assert (example.reply is None) == (REGISTRY.definition(prompt_id).output_model is None), prompt_id


@pytest.mark.parametrize("prompt_id", PromptId)
def test_a_worked_example_is_sent_as_its_file_says(prompt_id: PromptId) -> None:
    file = TEXTS / f"{prompt_id}.txt"
    if WRITE:
        file.write_text(rendered(prompt_id) + "\n")
    assert rendered(prompt_id) + "\n" == file.read_text()


@pytest.mark.parametrize("prompt_id", [each for each, example in EXAMPLES.items() if example.reply])
def test_the_reply_of_a_worked_example_is_read_as_the_output(prompt_id: PromptId) -> None:
    example = EXAMPLES[prompt_id]
    assert example.reply is not None
    output = REGISTRY.validate_output(prompt_id, example.reply)
    assert type(output) is REGISTRY.definition(prompt_id).output_model
    assert {name: getattr(output, name) for name in example.expected} == example.expected


@pytest.mark.parametrize("prompt_id", PromptId)
@pytest.mark.parametrize("data", TEMPLATE_SYNTAX)
def test_no_data_changes_the_words_of_a_prompt(prompt_id: PromptId, data: str) -> None:
    assert own_words(prompt_id, data) == own_words(prompt_id, "plain")
    as_json = json.dumps(data, ensure_ascii=False)[1:-1]
    for plain, quoted in zip(quotations(prompt_id, "plain"), quotations(prompt_id, data), strict=True):
        assert quoted in (plain.replace("plain", data), plain.replace("plain", as_json))


STATUS: dict[str, Any] = ASSESSMENT["consistency_status"]
ADDED: dict[str, Any] = {"action": "ADD", "new_step": COMPARE}
MISFITS: list[tuple[PromptId, Any]] = [
    *[
        (PromptId.TASKPROFILE_INFERENCE_USER, PROFILE | changed)
        for changed in (
            {"reasoning_depth": 0},
            {"reasoning_depth": 6},
            {"reasoning_depth": 2.5},
            {"reasoning_depth": True},
            {"reasoning_depth": "deep"},
            {"information_sufficiency": -0.01},
            {"information_sufficiency": 1.01},
            {"information_sufficiency": None},
            {"expected_tool_usage": "some"},
            {"output_breadth": ""},
            {"confidence_requirement": 3},
        )
    ],
    (PromptId.TASKPROFILE_INFERENCE_USER, {}),
    *[
        (PromptId.CONVERGENCE_ASSESSMENT_USER, ASSESSMENT | changed)
        for changed in (
            {"converged": "yes"},
            {"converged": 1},
            {"completeness_score": 95},
            {"coherence_score": True},
            {"coherence_score": "0.9"},
            {"consistency_status": "consistent"},
            {"consistency_status": STATUS | {"memory": "yes"}},
            {"consistency_status": {name: STATUS[name] for name in ("plan", "step", "answer")}},
            {"reason_codes": "missing_part"},
            {"detected_issues": ["x"] * 51},
        )
    ],
    (PromptId.VALIDATION_SEMANTIC_USER, {"issues": [ISSUE]}),
    (PromptId.VALIDATION_SEMANTIC_USER, {"issues": [ISSUE], "overall_severity": "NONE"}),
    (PromptId.VALIDATION_SEMANTIC_USER, {"issues": [ISSUE | {"type": "style"}], "overall_severity": "LOW"}),
    (PromptId.VALIDATION_SEMANTIC_USER, {"issues": [ISSUE | {"severity": 3}], "overall_severity": "LOW"}),
    (PromptId.RECURSIVE_REFINEMENT_USER, {}),
    (PromptId.RECURSIVE_REFINEMENT_USER, {"refinements": [ADDED] * 51}),
    (PromptId.RECURSIVE_REFINEMENT_USER, {"refinements": [{"action": "ADD", "target_step": "a"}]}),
    (PromptId.RECURSIVE_REFINEMENT_USER, {"refinements": [{"action": "MODIFY", "new_step": COMPARE}]}),
    (PromptId.RECURSIVE_REFINEMENT_USER, {"refinements": [{"action": "REPLACE", "target_step": "a"}]}),
    (PromptId.RECURSIVE_REFINEMENT_USER, {"refinements": [{"action": "REMOVE"}]}),
    (PromptId.RECURSIVE_REFINEMENT_USER, {"refinements": [{"action": "MERGE", "target_step": "a"}]}),
    (PromptId.SUPERVISOR_REPAIR_TOOLCALL_USER, {"calls": []}),
    (PromptId.SUPERVISOR_REPAIR_MISSINGTOOL_USER, {"steps": [{"name": "a"}]}),
]


@pytest.mark.parametrize(("prompt_id", "value"), MISFITS)
def test_a_value_out_of_range_is_a_misfit(prompt_id: PromptId, value: Any) -> None:
    with pytest.raises(ValidationError):
        REGISTRY.validate_output(prompt_id, json.dumps(value))


def test_additional_members_are_dropped_and_empty_lists_are_fine() -> None:
    for prompt_id, value in (
        (PromptId.TASKPROFILE_INFERENCE_USER, PROFILE | {"mood": "good"}),
        (PromptId.VALIDATION_SEMANTIC_USER, {"issues": [], "overall_severity": "LOW", "mood": "good"}),
        (PromptId.RECURSIVE_REFINEMENT_USER, {"refinements": [], "mood": "good"}),
    ):
        assert "mood" not in REGISTRY.validate_output(prompt_id, json.dumps(value)).model_dump()
