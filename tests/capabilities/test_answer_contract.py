"""Contracts are compiled once; they validate ordinary answers of any size and refuse those beyond the limits."""

from typing import Any

import orjson
import pytest

from portico.capabilities.answer_contract import (
    MAX_ANSWER_CHARACTERS,
    MAX_ANSWER_NODES,
    AnswerContract,
    ValidatedAnswer,
)
from portico.domain.contract.request import OutputContract
from portico.domain.contract.rules import AnswerContent
from portico.domain.failures import Code, Failure

SKU = {"type": "string", "pattern": r"^[A-Z]{2}-\d{4}$"}
PRICE = {"type": "number", "minimum": 0.01, "multipleOf": 0.01}
DISCOUNT = {"oneOf": [{"type": "number", "minimum": 0.0, "maximum": 1.0}, {"type": "null"}]}
EMAIL = {"type": "string", "format": "email", "pattern": r"^[^@\s]+@[^@\s]+\.[a-z]{2,24}$"}
LINE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["sku", "quantity", "price"],
    "properties": {
        "sku": SKU,
        "quantity": {"type": "integer", "minimum": 1, "maximum": 10_000},
        "price": PRICE,
        "discount": DISCOUNT,
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "note": {"type": "string", "maxLength": 500},
    },
}
ORDER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id", "customer", "lines", "status"],
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "placed_at": {"type": "string", "format": "date-time"},
        "status": {"enum": ["open", "paid", "shipped"]},
        "customer": {"type": "object", "properties": {"name": {"minLength": 1, "maxLength": 200}, "email": EMAIL}},
        "lines": {"type": "array", "minItems": 1, "items": LINE},
    },
}
ORDERS = {"type": "object", "properties": {"orders": {"items": {"$ref": "#/$defs/order"}}}, "$defs": {"order": ORDER}}
RULES = [
    {"type": "not_empty", "path": "$.orders[*].customer.name"},
    {"type": "compare", "path": "$.orders[*].lines[*].quantity", "operator": "ge", "value": 1},
    {"type": "regex", "path": "$.orders[*].lines[*].sku", "pattern": "^AB-"},
]


def contract(**output: Any) -> AnswerContract:
    made = AnswerContract(OutputContract.model_validate(output))
    made.compile()
    return made


def order(number: int) -> dict[str, Any]:
    line = {"sku": f"AB-{number:04d}", "quantity": 2, "price": round(1.01 * number + 1, 2), "tags": ["new", "sale"]}
    return {
        "id": f"00000000-0000-4000-8000-{number:012d}",
        "placed_at": "2026-02-28T10:00:00Z",
        "status": "open" if number % 2 else "paid",
        "customer": {"name": f"Zoë {number}", "email": f"zoe{number}@example.org"},
        "lines": [{**line, "discount": each, "note": "Please leave it at the door."} for each in (None, 0.25, 1.0)],
    }


def answer(characters: int) -> str:
    """Return orders as a model writes them, of about that many characters."""
    return orjson.dumps({"orders": [order(number) for number in range(characters // 520)]}).decode()


def failure(judged: ValidatedAnswer) -> Failure:
    assert judged.failure is not None
    return judged.failure


@pytest.mark.parametrize("characters", [2_000, 64_000, 128_000])
def test_an_ordinary_answer_of_any_size_is_validated(characters: int) -> None:
    text = answer(characters)
    assert len(text) > characters * 0.7
    judged = contract(schema=ORDERS, rules=RULES).validate(f"Here you are:\n```json\n{text}\n```", 1)
    assert judged.failure is None
    assert judged.pattern_result.structured_output == orjson.loads(text)


@pytest.mark.parametrize("characters", [2_000, 64_000])
def test_violations_have_their_paths(characters: int) -> None:
    text = answer(characters)
    cut = text.rindex("AB-")
    judged = contract(schema=ORDERS).validate(text[:cut] + "ab-" + text[cut + 3 :], 1)
    [(path, message)] = judged.violations
    assert (path.endswith(".lines[2].sku"), message) == (True, f'the value does not match "{SKU["pattern"]}"')


def test_an_answer_that_was_cut_off_is_repaired() -> None:
    text = answer(64_000)
    judged = contract(schema=ORDERS).validate(text[: text.rindex("at the door")], 1)
    assert judged.failure is None
    assert judged.pattern_result.validation is not None
    assert [repair["action"] for repair in judged.pattern_result.validation.repairs] == ["truncation_closed"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * (MAX_ANSWER_CHARACTERS + 1), f"longer than {MAX_ANSWER_CHARACTERS} characters"),
        ('{"orders": [' + "[]," * (MAX_ANSWER_NODES // 2) + "1]}", f"more than {MAX_ANSWER_NODES} brackets and commas"),
    ],
)
def test_an_answer_that_is_too_large_breaks_the_contract(text: str, why: str) -> None:
    judged = contract(schema=ORDERS).validate(text, 2)
    assert failure(judged).code is Code.CONSTRAINT_JSON_INVALID
    assert judged.violations == [("$", f"is too large to be judged: it has {why}".replace("has longer", "is longer"))]
    assert judged.pattern_result.validation is not None
    assert judged.pattern_result.validation.attempts == 2


def test_a_text_with_a_grammar_may_have_any_number_of_commas() -> None:
    lists = contract(grammar='root ::= ("a" ",")*')
    assert lists.validate("a," * (MAX_ANSWER_CHARACTERS // 2), 1).failure is None
    judged = lists.validate("a," * MAX_ANSWER_CHARACTERS, 1)
    assert failure(judged).code is Code.CONSTRAINT_GRAMMAR_REJECTED


def test_a_text_that_has_too_many_readings_breaks_the_contract() -> None:
    palindromes = contract(grammar='root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""')
    judged = palindromes.validate("ab" * 2_000, 1)
    assert failure(judged).code is Code.CONSTRAINT_GRAMMAR_REJECTED
    assert judged.violations == [("$", "the text is too large to be judged by the grammar")]


@pytest.mark.parametrize(
    ("output", "answers"),
    [
        (
            {"schema": LINE},
            ['{"sku": "AB-0001", "quantity": 2, "price": 1.5}', 'Here: {"sku":"AB-0001","quantity":1,"price":2}'],
        ),
        ({"rules": ["not_empty"]}, ["", "something"]),
        ({"rules": [{"type": "length", "max": 3}]}, ["abc", "abcd"]),
        ({}, ["anything", AnswerContent("[1]", [1])]),
    ],
)
def test_a_quick_validation_has_the_result_of_a_full_one(output: dict[str, Any], answers: list[Any]) -> None:
    kept = contract(**output)
    for given in answers:
        quick = kept.validate_quickly(given, 1)
        assert quick is not None
        assert _result_of(quick) == _result_of(kept.validate(given, 1))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"schema": ORDERS}, answer(64_000)),
        ({"schema": ORDERS}, "[1]"),
        ({"schema": ORDERS}, "no JSON"),
        ({"schema": ORDERS}, "{'orders': []}"),
        ({"grammar": 'root ::= "a"'}, "a"),
        ({"rules": [{"type": "regex", "pattern": "a{100}"}]}, "a"),
        ({"rules": [{"type": "compare", "path": "$[*]", "operator": "le", "other": "$[*]"}]}, "[1]"),
        ({"rules": [{"type": "not_empty", "path": "$[*]"}] * 64}, answer(3_000)),
    ],
)
def test_an_answer_that_may_take_long_is_not_validated_quickly(output: dict[str, Any], text: str) -> None:
    assert contract(**output).validate_quickly(text, 1) is None


@pytest.mark.parametrize(
    ("output", "is_quick"),
    [
        ({}, True),
        ({"schema": {"type": "object"}, "rules": ["not_empty"]}, True),
        ({"schema": {"enum": ["x" * 3_000]}}, False),
        ({"schema": {"type": "string", "pattern": "^a"}}, True),
        ({"schema": {"type": "string", "pattern": "^a{100}$"}}, False),
        ({"schema": {"items": {"$ref": "#"}}}, False),
        ({"schema": {"patternProperties": {"^a": True}}}, False),
        ({"rules": [{"type": "regex", "pattern": "a" * 100}]}, False),
        ({"grammar": "root ::= " + '"a" ' * 1_000}, False),
    ],
)
def test_small_and_plain_contracts_compile_quickly(output: dict[str, Any], is_quick: bool) -> None:
    assert AnswerContract(OutputContract.model_validate(output)).size.compiles_quickly is is_quick


def _result_of(judged: ValidatedAnswer) -> tuple[Any, Any]:
    return judged.pattern_result, None if judged.failure is None else (judged.failure.code, judged.failure.details)


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ({"schema": {"type": "strng"}}, Code.CONFIG_SCHEMA_INVALID),
        ({"grammar": "root ::= x"}, Code.CONFIG_GRAMMAR_INVALID),
        ({"grammar": "no-such-name"}, Code.CONFIG_GRAMMAR_NOT_FOUND),
        ({"schema": {}, "rules": ["unheard-of"]}, Code.REQUEST_INVALID),
    ],
)
def test_an_impossible_contract_is_refused(output: dict[str, Any], code: Code) -> None:
    with pytest.raises(Failure) as caught:
        contract(**output)
    assert caught.value.code is code
