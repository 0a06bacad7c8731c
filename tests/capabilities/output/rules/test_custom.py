"""Custom rules find what their names say, by name or with options, and through a contract."""

from typing import Any

import orjson
import pytest

from portico.capabilities.answer_contract import AnswerContract
from portico.capabilities.output.rules.custom import MAX_ELEMENTS
from portico.domain.contract.request import OutputContract


def violations(rule: Any, text: str) -> list[tuple[str, str]]:
    """Return the violations of that rule by an answer that may be any JSON value."""
    contract = AnswerContract(OutputContract.model_validate({"schema": {}, "rules": [rule]}))
    return contract.validate(text, 1).violations


@pytest.mark.parametrize(
    "text", ["Dear [your name],", "It costs <insert price>.", "The date is TBD.", "Lorem ipsum dolor"]
)
def test_placeholders_are_found(text: str) -> None:
    (found,) = violations("no_placeholder", orjson.dumps(text).decode())
    assert found == ("$", "holds a placeholder that was never filled in")


@pytest.mark.parametrize("text", ["Dear Ada,", "a [note] on <b>", "mastodon", "Your name [1]", "[your" * 10_000])
def test_other_brackets_and_words_are_no_placeholders(text: str) -> None:
    assert violations("no_placeholder", orjson.dumps(text).decode()) == []


def unique(**options: Any) -> dict[str, Any]:
    return {"type": "custom", "name": "unique_by", "path": "$.lines", "options": options}


@pytest.mark.parametrize(
    ("values", "twice"),
    [([1, 2, 3], False), ([1, 2, 1.0], True), (["1", 1, True], False), ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], True)],
)
def test_no_two_elements_of_a_list_have_an_equal_member(values: list[Any], twice: bool) -> None:
    lines = [*({"sku": value} for value in values), {"other": 1}, {"other": 1}, "sku"]
    found = violations(unique(list="$.lines", member="sku"), orjson.dumps({"lines": lines}).decode())
    assert found == ([("$.lines", "has the same sku twice")] if twice else [])


def test_a_list_that_is_too_long_is_not_compared() -> None:
    lines = [{"sku": number} for number in range(MAX_ELEMENTS + 1)]
    ((_, message),) = violations(unique(list="$.lines", member="sku"), orjson.dumps({"lines": lines}).decode())
    assert "too many to compare" in message


@pytest.mark.parametrize("options", [{}, {"list": "lines", "member": "sku"}, {"list": 1, "member": "sku"}])
def test_invalid_options_break_the_rule(options: dict[str, Any]) -> None:
    ((_, message),) = violations(unique(**options), '{"lines": [{"sku": 1}]}')
    assert message.startswith("the rule itself failed: ")
