"""Values are found in replies by the seed's methods, in the seed's order, in linear time."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.output.extract import (
    MAX_REGIONS,
    ExtractionMethod,
    JSONExtractionError,
    JsonRegions,
    extract,
    repairable_text,
)
from portico.domain.failures import Category, Code, ConstraintFailure
from tests.support.seeds import randomised

HEADED = "Here you are:\n```json\n{}\n```\nAnything else?"
leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()


answers = st.dictionaries(st.text(), leaves | st.lists(leaves, max_size=3), max_size=4) | st.lists(leaves, max_size=4)


@pytest.mark.parametrize(
    ("reply", "value", "method"),
    [
        ({"text": '{"a": 1}'}, {"a": 1}, ExtractionMethod.TEXT_KEY),
        ({"text": " null "}, None, ExtractionMethod.TEXT_KEY),
        ({"text": 'So: {"a": 1}.', "model": "m"}, {"a": 1}, ExtractionMethod.EMBEDDED),
        ({"text": "```\n[1]\n```"}, [1], ExtractionMethod.FENCED),
        ('```json\n{"a": 1}\n```', {"a": 1}, ExtractionMethod.FENCED),
        ('Well:\n  ```JSON\n{"a": 1}```', {"a": 1}, ExtractionMethod.FENCED),
        ("As a list: ```json\n[1]\n```", [1], ExtractionMethod.FENCED),
        ("```[1]```", [1], ExtractionMethod.FENCED),
        ("```json [1]```", [1], ExtractionMethod.FENCED),
        ("~~~\n[1]\n~~~", [1], ExtractionMethod.FENCED),
        ('```json\n{"a": [1]}', {"a": [1]}, ExtractionMethod.FENCED),
        ('```json\n{"code": "```x```"}\n```', {"code": "```x```"}, ExtractionMethod.FENCED),
        ("```\n42\n```", 42, ExtractionMethod.FENCED),
        ('{"a": 1}\n```\n[2]\n```', [2], ExtractionMethod.FENCED),
        ('```python\nprint()\n```\n{"a": 1}', {"a": 1}, ExtractionMethod.EMBEDDED),
        ('The answer is {"a": {"b": [1]}}, I think.', {"a": {"b": [1]}}, ExtractionMethod.EMBEDDED),
        ('{"a": 1} {"b": 2}', {"a": 1}, ExtractionMethod.EMBEDDED),
        ('{"a": "}{"}', {"a": "}{"}, ExtractionMethod.EMBEDDED),
        ('{"a": "\\"}"} tail }', {"a": '"}'}, ExtractionMethod.EMBEDDED),
        ('[see below] {name} {x | x > 0} {"a": 1}', {"a": 1}, ExtractionMethod.EMBEDDED),
        ('[Note: {"a": 1}]', {"a": 1}, ExtractionMethod.EMBEDDED),
        ('{broken: 1, } then {"a": 1}', {"a": 1}, ExtractionMethod.EMBEDDED),
        ('{"a": NaN} or {"a": 1}', {"a": 1}, ExtractionMethod.EMBEDDED),
        ('{"md": "```[1]```"}', {"md": "```[1]```"}, ExtractionMethod.EMBEDDED),
        ("\ufeff[1]", [1], ExtractionMethod.EMBEDDED),
        ('"a text"', "a text", ExtractionMethod.DIRECT),
        ("\n 12 \n", 12, ExtractionMethod.DIRECT),
        ("true", True, ExtractionMethod.DIRECT),
        ("null", None, ExtractionMethod.DIRECT),
    ],
)
def test_a_value_is_found_by_the_first_method_that_succeeds(reply: Any, value: Any, method: ExtractionMethod) -> None:
    found = extract(reply)
    assert (found.value, found.method) == (value, method)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "there is neither an object nor a list in it"),
        ("I cannot answer that.", "there is neither an object nor a list in it"),
        ("12 and 13", "there is neither an object nor a list in it"),
        ("NaN", "there is neither an object nor a list in it"),
        ({"content": '{"a": 1}'}, "the reply is a mapping without a text"),
        ({"text": 5}, "the reply is a mapping without a text"),
        ({"text": "prose"}, "there is neither an object nor a list in it"),
        ('{"a": 1, "a": 2}', "an object has the same key twice"),
        ('So:\n{"a": 1', "Expecting ',' delimiter at line 2, column 8"),
        ('{"a": tru', "Expecting value at line 1, column 7"),
        ("[1, 2,] {x: 1}", "Illegal trailing comma before end of array at line 1, column 6"),
    ],
)
def test_without_a_value_the_failure_has_the_reason_and_the_methods_tried(reply: Any, why: str) -> None:
    with pytest.raises(JSONExtractionError) as caught:
        extract(reply)
    failure = caught.value
    assert isinstance(failure, ConstraintFailure)
    assert (failure.code, failure.category) == (Code.CONSTRAINT_JSON_INVALID, Category.CONSTRAINT)
    assert failure.reason == why
    assert failure.extraction_methods_attempted == [
        "dictionary_text_key",
        "markdown_code_blocks",
        "embedded_json",
        "direct_parsing",
    ]
    assert failure.prompt_id is None
    assert failure.details["violations"] == [{"path": "$", "message": why}]


@pytest.mark.parametrize(
    "text",
    [
        '{"items": [{"a": 1}, {"a": 2}',
        '{"a": {"b": 1}, "c": 2,}',
        '{"first": [1], second: [2]}',
        '{"a": [1, 2], "b": tru',
    ],
)
def test_a_part_of_a_truncated_or_broken_value_is_never_the_answer(text: str) -> None:
    with pytest.raises(JSONExtractionError):
        extract(text)


@randomised(300)
@given(answers, st.sampled_from(["{}", "Sure. {} There.", "```json\n{}\n```", HEADED, "```\n{}", "{{x}} and [it]: {}"]))
def test_a_value_is_found_within_any_text(value: Any, around: str) -> None:
    before, _, after = around.partition("{}")
    assert extract(f"{before}{json.dumps(value)}{after}").value == value


@randomised(600)
@given(st.text(alphabet='[]{}",:1a\\`~ \n', max_size=60))
def test_any_text_yields_json_or_an_extraction_error(text: str) -> None:
    try:
        found = extract(text)
    except JSONExtractionError:
        assert repairable_text(text) is None or repairable_text(text)
    else:
        assert json.loads(json.dumps(found.value)) == found.value


@randomised(300)
@given(st.text(alphabet='[]{}",:1a\\ \n', max_size=60))
def test_regions_come_in_order_and_do_not_overlap(text: str) -> None:
    spans, regions = list[tuple[int, int | None]](), JsonRegions(text)
    while regions.start is not None:
        spans.append((regions.start, regions.end()))
        regions.advance()
    assert all(end is not None and end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(text[start] in "{[" and (end is None or text[end - 1] in "}]") for start, end in spans)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "{" * 20_000,
        "[" * 20_000 + "]" * 20_000,
        "[" * 20_000 + '{"a": 1}',
        '{"a": ' * 20_000,
        '[{"a": ' * 20_000,
        "[1 2]" * 20_000,
        '{"a": 1,}\n' * 10_000,
        '["' * 20_000,
        '[\\"' * 20_000,
        "{ " * 20_000,
        "{" + " " * 100_000,
        "{" + "a" * 100_000,
        "{a" * 20_000,
        "`" * 100_000,
        "x```" * 20_000,
        "```\n" * 20_000,
        "[1," * 50_000,
        "[" + "1" * 100_000 + "]",
        "x" * 2_000_000,
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.timeout(20)
def test_hostile_texts_hold_no_value_which_is_found_in_linear_time(text: str) -> None:
    with pytest.raises(JSONExtractionError):
        extract(text)
    assert repairable_text(text) != ""


@pytest.mark.parametrize("part", ["[1,]", "{a: 1}", "[NaN]", "[1 2]"])
def test_the_number_of_tried_regions_is_limited(part: str) -> None:
    few, many = part * (MAX_REGIONS - 1), part * MAX_REGIONS
    assert extract(few + '{"a": 1}').value == {"a": 1}
    assert repairable_text(few) == part
    with pytest.raises(JSONExtractionError, match=f"more than {MAX_REGIONS} parts"):
        extract(many + '{"a": 1}')
    assert repairable_text(many + '{"a": 1}') is None


def test_a_million_characters_are_read_once() -> None:
    rows = [{"number": number, "text": "words " * 8} for number in range(16_000)]
    assert extract("Here: " + json.dumps(rows)).value == rows


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('So: {"a": 1,} done', '{"a": 1,} done'),
        ('{"a": 1,} and {"b": [1,', '{"b": [1,'),
        ("```json\n{'a': 1}\n```\n{'b': 2}", "{'a': 1}\n"),
        ("```json\n{'a': 1}```", "{'a': 1}"),
        ("```json\n{'a': 1", "{'a': 1"),
        ("```python\nprint()\n```\n{'b': 2}", "{'b': 2}"),
        ('{"items": [{"a": 1}, {"a": 2', '{"items": [{"a": 1}, {"a": 2'),
        ("no brackets", None),
        ("[see below] {name}", None),
    ],
)
def test_repair_is_tried_on_the_first_block_else_on_the_last_region(text: str, part: str | None) -> None:
    assert repairable_text(text) == part
