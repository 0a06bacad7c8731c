"""The stages run in their order, each reports its outcome, and the first that fails gives the reasons."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.output.enforcement import (
    EnforcedAnswer,
    EnforcementStage,
    StageOutcome,
    StageReport,
    enforce,
    enforce_value,
)
from portico.capabilities.output.grammar import Grammar
from portico.capabilities.output.repair import Repair, RepairAction
from portico.capabilities.output.schema.compiled import CompiledSchema, compile_schema
from portico.domain.failures import Code, ConfigurationFailure, ConstraintFailure
from tests.support.seeds import randomised

TICKET = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "status": {"enum": ["open", "closed"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title", "status"],
    "additionalProperties": False,
}
YES_OR_NO = 'root ::= "yes" | "no\\n"'
OBJECT = 'root ::= "{" [^}]* "}"'


def enforced(
    text: str, schema: dict[str, Any] | None = None, grammar: str | None = None, repair: bool = True
) -> EnforcedAnswer:
    return enforce(text, schema=_schema(schema), grammar=_grammar(grammar), repair_allowed=repair)


def failed(
    text: str, schema: dict[str, Any] | None = None, grammar: str | None = None, repair: bool = True
) -> ConstraintFailure:
    with pytest.raises(ConstraintFailure) as caught:
        enforced(text, schema, grammar, repair)
    return caught.value


def attempted(text: str, schema: dict[str, Any]) -> EnforcedAnswer | ConstraintFailure:
    try:
        return enforced(text, schema)
    except ConstraintFailure as failure:
        return failure


def _schema(document: dict[str, Any] | None) -> CompiledSchema | None:
    return None if document is None else compile_schema(document)


def _grammar(text: str | None) -> Grammar | None:
    return None if text is None else Grammar(text)


def outcomes(answer: EnforcedAnswer) -> list[StageOutcome]:
    assert [report.stage for report in answer.reports] == list(EnforcementStage)
    return [report.outcome for report in answer.reports]


def test_an_answer_that_fits_is_unchanged() -> None:
    answer = enforced('Sure: {"title": "T", "status": "open"}', TICKET)
    assert answer.value == {"title": "T", "status": "open"}
    assert answer.repairs == ()
    assert answer.reports[0] == StageReport(EnforcementStage.EXTRACT, StageOutcome.PASSED, "embedded_json")
    assert outcomes(answer) == [
        StageOutcome.PASSED,
        StageOutcome.SKIPPED,
        StageOutcome.PASSED,
        StageOutcome.PASSED,
        StageOutcome.SKIPPED,
    ]


def test_a_broken_answer_is_repaired_and_then_respelled() -> None:
    answer = enforced("```json\n{'title': 'T', status: \"OPEN\", ", TICKET)
    assert answer.value == {"title": "T", "status": "open"}
    assert answer.repairs == (
        Repair(RepairAction.QUOTES_REPLACED, "$", 2),
        Repair(RepairAction.QUOTES_ADDED, "$"),
        Repair(RepairAction.TRUNCATION_CLOSED, "$"),
        Repair(RepairAction.ENUM_NORMALISED, "$.status"),
    )
    assert outcomes(answer) == [
        StageOutcome.FAILED,
        StageOutcome.CHANGED,
        StageOutcome.CHANGED,
        StageOutcome.PASSED,
        StageOutcome.SKIPPED,
    ]


@pytest.mark.parametrize(
    ("text", "code", "stage", "violations"),
    [
        (
            "I cannot say.",
            Code.CONSTRAINT_JSON_INVALID,
            "extract",
            [("$", "there is neither an object nor a list in it")],
        ),
        (
            '{"title": NaN',
            Code.CONSTRAINT_JSON_INVALID,
            "repair",
            [("$", "NaN is not JSON; it cannot be repaired: NaN is not JSON")],
        ),
        (
            '{"title": "", "status": "open"}',
            Code.CONSTRAINT_SCHEMA_INVALID,
            "schema",
            [("$.title", "the value is shorter than 1 character")],
        ),
        ("[1]", Code.CONSTRAINT_SCHEMA_INVALID, "schema", [("$", 'the value is not of type "object"')]),
        ("5", Code.CONSTRAINT_SCHEMA_INVALID, "schema", [("$", 'the value is not of type "object"')]),
        (
            '{"title": "T", "status": "done"}',
            Code.CONSTRAINT_ENUM_UNRECOGNIZED,
            "enum",
            [("$.status", 'the value is not one of "open" or "closed"')],
        ),
        (
            '{"status": "done", "more": 1}',
            Code.CONSTRAINT_ENUM_UNRECOGNIZED,
            "enum",
            [
                ("$", '"title" is a required property'),
                ("$.more", "is not allowed here"),
                ("$.status", 'the value is not one of "open" or "closed"'),
            ],
        ),
        (
            '{"title": "T"} {"title": "T", "status": "open"}',
            Code.CONSTRAINT_SCHEMA_INVALID,
            "schema",
            [("$", '"status" is a required property')],
        ),
    ],
)
def test_the_first_failed_stage_gives_the_reasons(
    text: str, code: Code, stage: str, violations: list[tuple[str, str]]
) -> None:
    failure = failed(text, TICKET)
    assert (failure.code, failure.details["stage"]) == (code, stage)
    found_violations = [(violation["path"], violation["message"]) for violation in failure.details["violations"]]
    assert sorted(found_violations) == sorted(violations)
    assert json.loads(json.dumps(failure.details)) == failure.details


def test_a_broken_answer_fails_if_repair_is_not_allowed() -> None:
    failure = failed('{"title": "T", "status": "open",}', TICKET, repair=False)
    assert (failure.code, failure.details["stage"]) == (Code.CONSTRAINT_JSON_INVALID, "extract")
    assert enforced('{"title": "T", "status": "OPEN"}', TICKET, repair=False).value["status"] == "open"


def test_a_value_that_fits_keeps_its_spelling() -> None:
    schema = {"anyOf": [{"enum": ["open"]}, {"type": "string"}]}
    assert enforced('"OPEN"', schema).value == "OPEN"


@pytest.mark.parametrize(
    ("text", "value"),
    [("yes", None), ("no\n", None)],
)
def test_with_a_grammar_alone_the_text_is_the_answer(text: str, value: Any) -> None:
    answer = enforced(text, grammar=YES_OR_NO)
    assert answer.value is value
    assert outcomes(answer) == [StageOutcome.SKIPPED] * 4 + [StageOutcome.PASSED]


@pytest.mark.parametrize(("text", "value"), [('{"a": 1}', {"a": 1}), ("{a: 1}", None), ('{"a": NaN}', None)])
def test_with_a_grammar_alone_there_is_a_value_if_the_text_is_json(text: str, value: Any) -> None:
    assert enforced(text, grammar=OBJECT).value == value


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("maybe", "the text leaves the grammar at line 1, column 1", 0),
        ("no\n!", "the text leaves the grammar at line 2, column 1", 3),
        ("ye", "the text ends before the grammar does", 2),
        ("", "the text ends before the grammar does", 0),
    ],
)
def test_a_failure_of_the_grammar_has_its_position(text: str, message: str, position: int) -> None:
    failure = failed(text, grammar=YES_OR_NO)
    assert failure.code is Code.CONSTRAINT_GRAMMAR_REJECTED
    assert failure.details == {
        "stage": "grammar",
        "position": position,
        "violations": [{"path": "$", "message": message}],
    }


def test_with_both_the_grammar_comes_last_and_checks_the_original_text() -> None:
    answer = enforced('{"a": 1}', {"type": "object"}, OBJECT)
    assert outcomes(answer) == [
        StageOutcome.PASSED,
        StageOutcome.SKIPPED,
        StageOutcome.PASSED,
        StageOutcome.PASSED,
        StageOutcome.PASSED,
    ]
    assert failed('{"a": 1', {"type": "object"}, OBJECT).code is Code.CONSTRAINT_GRAMMAR_REJECTED
    assert failed("{a}", {"type": "null"}, OBJECT).details["stage"] != "grammar"


def test_without_a_format_there_is_nothing_to_enforce() -> None:
    with pytest.raises(ConfigurationFailure) as caught:
        enforced("yes")
    assert caught.value.code is Code.CONFIG_SCHEMA_REQUIRED


WHOLE = {"title": 'Say "hi" \u00e9\U0001f600', "status": "open", "tags": ["a", "b\n", "[{"]}


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "Here [it] is: {} Done."])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_answer_cut_at_any_byte_is_repaired_to_a_prefix_or_fails(around: str, indent: int | None) -> None:
    before, _, after = around.partition("{}")
    text = (before + json.dumps(WHOLE, indent=indent, ensure_ascii=False) + after).encode()
    for cut in range(len(text) + 1):
        answer = attempted(text[:cut].decode(errors="ignore"), TICKET)
        if isinstance(answer, ConstraintFailure):
            assert answer.details["violations"]
            continue
        whole_tags = answer.value.get("tags", [])[:-1]
        assert WHOLE["title"].startswith(answer.value["title"])
        assert answer.value["status"] == "open"
        assert whole_tags == WHOLE["tags"][: len(whole_tags)]
    assert enforced(text.decode(), TICKET).value == WHOLE


@randomised(500)
@given(st.text(alphabet='{}[]",: \n\\`abTtitlesun019.-e', max_size=80))
def test_any_text_fits_or_fails_as_a_constraint(text: str) -> None:
    schema = {"type": ["object", "array", "integer"], "maxProperties": 2, "maxItems": 2}
    answer = attempted(text, schema)
    if isinstance(answer, ConstraintFailure):
        assert answer.details["stage"] in {"extract", "repair", "schema"}
    else:
        assert compile_schema(schema).fits(answer.value)


class TestKept:
    """Values that are validated as they are."""

    def test_a_given_value_is_neither_extracted_nor_respelled(self) -> None:
        found = enforce_value("{} is no object", "{} is no object", schema=_schema({"type": "string"}), grammar=None)
        assert found == EnforcedAnswer("{} is no object", (), ())
        with pytest.raises(ConstraintFailure) as caught:
            enforce_value({"title": "x", "status": "OPEN"}, "", schema=_schema(TICKET), grammar=None)
        assert caught.value.code is Code.CONSTRAINT_ENUM_UNRECOGNIZED
        assert caught.value.details["violations"][0]["path"] == "$.status"

    def test_the_grammar_is_applied_to_the_text(self) -> None:
        assert enforce_value({"a": 1}, '{"a":1}', schema=None, grammar=_grammar(OBJECT)).value == {"a": 1}
        with pytest.raises(ConstraintFailure) as caught:
            enforce_value([1], "[1]", schema=None, grammar=_grammar(OBJECT))
        assert caught.value.code is Code.CONSTRAINT_GRAMMAR_REJECTED

    def test_without_a_format_any_value_is_accepted(self) -> None:
        assert enforce_value(None, "null", schema=None, grammar=None).value is None
