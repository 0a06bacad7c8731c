"""Failure taxonomy: the table of errors in the contract."""

import pytest

from portico.domain.failures import FAILURES, TAXONOMY, Category, Code, Failure, Variant, failure

RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})

CONTRACT = {
    Category.INFERENCE: {
        "INFERENCE_ENGINE_ERROR": [(502, True), (500, False)],
        "INFERENCE_MODEL_UNAVAILABLE": [(503, True)],
        "INFERENCE_CONTEXT_EXCEEDED": [(413, False)],
        "INFERENCE_MALFORMED_RESPONSE": [(502, True)],
        "INFERENCE_CONTENT_FILTERED": [(422, False)],
    },
    Category.TOOL: {
        "TOOL_NOT_FOUND": [(422, False)],
        "TOOL_EXECUTION_FAILED": [(502, True), (500, False)],
        "TOOL_TIMEOUT": [(504, True), (500, False)],
        "TOOL_UNAVAILABLE": [(503, True)],
        "TOOL_OUTCOME_UNKNOWN": [(500, False)],
    },
    Category.CONSTRAINT: {
        "CONSTRAINT_GRAMMAR_REJECTED": [(502, True)],
        "CONSTRAINT_SCHEMA_INVALID": [(502, True)],
        "CONSTRAINT_JSON_INVALID": [(502, True)],
        "CONSTRAINT_ENUM_UNRECOGNIZED": [(502, True)],
    },
    Category.VALIDATION: {
        "VALIDATION_RULE_FAILED": [(502, True)],
        "VALIDATION_SEMANTIC_FAILED": [(502, True)],
        "VALIDATION_INPUT_REFUSED": [(422, False)],
    },
    Category.ORCHESTRATION: {
        "ORCHESTRATION_STEP_MISMATCH": [(422, False)],
        "ORCHESTRATION_ITERATION_LIMIT": [(422, False)],
        "ORCHESTRATION_NO_CONSENSUS": [(422, False)],
        "ORCHESTRATION_PLAN_REFUSED": [(422, False)],
        "ORCHESTRATION_DEADLOCK": [(422, False)],
        "ORCHESTRATION_NODE_FAILED": [(422, False)],
        "ORCHESTRATION_BUDGET_EXCEEDED": [(422, False)],
        "ORCHESTRATION_INVALID_TRANSITION": [(500, False)],
        "ORCHESTRATION_REPLAY_DIVERGED": [(500, False)],
    },
    Category.CONFIGURATION: {
        "CONFIG_SCHEMA_REQUIRED": [(422, False)],
        "CONFIG_GRAMMAR_NOT_FOUND": [(422, False)],
        "CONFIG_GRAMMAR_INVALID": [(422, False)],
        "CONFIG_SCHEMA_INVALID": [(422, False)],
        "CONFIG_FLOW_INVALID": [(422, False)],
        "CONFIG_NO_ENGINE": [(500, False)],
        "CONFIG_INVALID": [(500, False)],
    },
    Category.CANCELLATION: {
        "CANCELLED_TIMEOUT": [(504, False)],
        "CANCELLED_SIGNAL": [(409, False)],
    },
    Category.REQUEST: {
        "REQUEST_INVALID": [(422, False), (400, False)],
        "REQUEST_TOO_LARGE": [(413, False)],
        "REQUEST_UNSUPPORTED_MEDIA": [(415, False)],
        "REQUEST_NOT_FOUND": [(404, False), (405, False)],
        "REQUEST_ID_CONFLICT": [(409, False)],
        "REQUEST_RESUME_REQUIRED": [(409, False)],
        "REQUEST_RESUME_UNEXPECTED": [(409, False)],
        "REQUEST_RESUME_MISMATCH": [(409, False)],
        "REQUEST_HAS_FORKS": [(409, False)],
        "REQUEST_SESSION_BUSY": [(409, True)],
        "REQUEST_IN_PROGRESS": [(409, True)],
        "REQUEST_IDEMPOTENCY_MISMATCH": [(422, False)],
        "REQUEST_RATE_LIMITED": [(429, True)],
        "REQUEST_OVERLOADED": [(503, True)],
        "REQUEST_SHUTTING_DOWN": [(503, True)],
    },
    Category.ACCESS: {
        "ACCESS_UNAUTHENTICATED": [(401, False)],
        "ACCESS_DENIED": [(403, False)],
        "ACCESS_UNAVAILABLE": [(503, True)],
    },
    Category.STORAGE: {
        "STORAGE_UNAVAILABLE": [(503, True)],
        "STORAGE_FULL": [(503, True)],
        "STORAGE_SNAPSHOT_INVALID": [(409, False)],
    },
}
"""Section 6 of the contract. The 405 of REQUEST_NOT_FOUND is an addition: a known path with another method."""

PREFIXES = {
    Category.INFERENCE: "INFERENCE_",
    Category.TOOL: "TOOL_",
    Category.CONSTRAINT: "CONSTRAINT_",
    Category.VALIDATION: "VALIDATION_",
    Category.ORCHESTRATION: "ORCHESTRATION_",
    Category.CONFIGURATION: "CONFIG_",
    Category.CANCELLATION: "CANCELLED_",
    Category.REQUEST: "REQUEST_",
    Category.ACCESS: "ACCESS_",
    Category.STORAGE: "STORAGE_",
}

ALL_VARIANTS = [(code, variant) for code, row in TAXONOMY.items() for variant in row.variants]


def test_the_table_is_the_contracts_section_6() -> None:
    ours: dict[Category, dict[str, list[tuple[int, bool]]]] = {category: {} for category in Category}
    for code, row in TAXONOMY.items():
        ours[row.category][str(code)] = [(variant.status, variant.retryable) for variant in row.variants]
    assert ours == CONTRACT


def test_every_code_has_exactly_one_row_in_the_order_of_the_codes() -> None:
    assert list(TAXONOMY) == list(Code)
    assert all(row.code is code for code, row in TAXONOMY.items())


@pytest.mark.parametrize("code", Code)
def test_the_prefix_of_a_code_is_that_of_its_category(code: Code) -> None:
    assert code.name == code.value
    assert code.startswith(PREFIXES[TAXONOMY[code].category])


@pytest.mark.parametrize("code", Code)
def test_every_row_has_a_meaning_and_a_recovery(code: Code) -> None:
    row = TAXONOMY[code]
    assert row.meaning
    assert row.recovery
    conditions = [variant.condition for variant in row.variants]
    assert len(set(conditions)) == len(conditions)


@pytest.mark.parametrize(("code", "variant"), ALL_VARIANTS)
def test_retryable_matches_the_status(code: Code, variant: Variant) -> None:
    if code is Code.CANCELLED_TIMEOUT:
        assert (variant.status, variant.retryable) == (504, False)
    elif variant.status == 409:
        assert variant.retryable == (code in {Code.REQUEST_SESSION_BUSY, Code.REQUEST_IN_PROGRESS})
    else:
        assert variant.retryable == (variant.status in RETRYABLE_STATUSES)


def test_every_category_has_one_exception_class_of_its_name() -> None:
    assert {category: kind.__name__ for category, kind in FAILURES.items()} == {
        category: category.value for category in Category
    }
    assert len(Failure.__subclasses__()) == len(Category)


@pytest.mark.parametrize(("code", "variant"), ALL_VARIANTS)
def test_a_failure_takes_its_facts_from_its_row(code: Code, variant: Variant) -> None:
    raised = failure(code, "what happened", details={"limit": 1}, condition=variant.condition)
    assert type(raised) is FAILURES[TAXONOMY[code].category]
    assert (raised.status, raised.retryable) == (variant.status, variant.retryable)
    assert raised.category is TAXONOMY[code].category
    assert raised.details == {"limit": 1}
    assert str(raised) == f"{code}: what happened"


@pytest.mark.parametrize("code", Code)
def test_without_a_condition_the_first_variant_applies(code: Code) -> None:
    assert failure(code, "what happened").variant is TAXONOMY[code].variants[0]


def test_an_unknown_condition_is_refused() -> None:
    with pytest.raises(KeyError, match="no variant 'full moon'"):
        TAXONOMY[Code.TOOL_TIMEOUT].variant("full moon")


@pytest.mark.parametrize("category", Category)
def test_a_failure_class_accepts_only_codes_of_its_category(category: Category) -> None:
    for code in Code:
        if TAXONOMY[code].category is category:
            FAILURES[category](code, "what happened")
        else:
            with pytest.raises(ValueError, match="is not a code of"):
                FAILURES[category](code, "what happened")


def test_failures_do_not_share_their_details() -> None:
    one, other = failure(Code.CONFIG_INVALID, "one"), failure(Code.CONFIG_INVALID, "other")
    one.details["key"] = "server.port"
    assert other.details == {}
