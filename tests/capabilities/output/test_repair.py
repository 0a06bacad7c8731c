"""Invalid JSON is repaired as it was meant, with a record of the changes, or refused."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from portico.capabilities.output.repair import MAX_CHARACTERS, Repair, RepairAction, repair
from portico.domain.strict_json import DEFAULT_MAX_DEPTH, StrictJsonError
from tests.support.seeds import randomised

CLOSED, BRACKETS = RepairAction.TRUNCATION_CLOSED, RepairAction.BRACKETS_CLOSED
FEWER, MORE = RepairAction.COMMAS_REMOVED, RepairAction.COMMAS_ADDED
REPLACED, ADDED, ESCAPED = RepairAction.QUOTES_REPLACED, RepairAction.QUOTES_ADDED, RepairAction.ESCAPES_FIXED
COMMENTS, WORDS = RepairAction.COMMENTS_REMOVED, RepairAction.LITERALS_RESPELLED
words = st.text(alphabet=st.characters(categories=["L", "N", "Zs"]), max_size=8)
leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=12
)
containers = st.dictionaries(words, trees, max_size=4) | st.lists(trees, max_size=4)


@pytest.mark.parametrize(
    ("text", "value", "done"),
    [
        ('{"a": 1, "b": [1, 2', {"a": 1, "b": [1, 2]}, [Repair(CLOSED, "$.b", 2)]),
        ('{"a": "so f', {"a": "so f"}, [Repair(CLOSED, "$.a", 2)]),
        ('{"a": 1, "b":', {"a": 1}, [Repair(CLOSED, "$")]),
        ('{"a": 1, "b"', {"a": 1}, [Repair(CLOSED, "$")]),
        ('{"a": 1, "b', {"a": 1}, [Repair(CLOSED, "$", 2)]),
        ('{"a": tru', {}, [Repair(CLOSED, "$")]),
        ('{"a": true', {"a": True}, [Repair(CLOSED, "$")]),
        ("[1, -", [1], [Repair(CLOSED, "$")]),
        ("[1, 2.", [1], [Repair(CLOSED, "$")]),
        (r'["\u00e', [""], [Repair(CLOSED, "$[0]", 2)]),
        (r'["\ud83d\ude00\ud83d', ["😀"], [Repair(CLOSED, "$[0]", 2)]),
        ("{", {}, [Repair(CLOSED, "$")]),
        ('[{"a": 1, "b": 2]', [{"a": 1, "b": 2}], [Repair(BRACKETS, "$[0]")]),
        ('{"a": {"b": 1], "c": 2}', {"a": {"b": 1}, "c": 2}, [Repair(BRACKETS, "$.a")]),
        ('{"a": 1,}', {"a": 1}, [Repair(FEWER, "$")]),
        ('{"a": [1, 2,], "b": 3,}', {"a": [1, 2], "b": 3}, [Repair(FEWER, "$.a", 2)]),
        ("[,1,,2]", [1, 2], [Repair(FEWER, "$", 2)]),
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}, [Repair(MORE, "$")]),
        ('["a" "b"\n"c"]', ["a", "b", "c"], [Repair(MORE, "$", 2)]),
        ("{'a': 'it''s'}", {"a": "it''s"}, [Repair(REPLACED, "$", 2), Repair(ESCAPED, "$.a")]),
        ("{'a': 'it's ok', 'b': 1}", {"a": "it's ok", "b": 1}, [Repair(REPLACED, "$", 3), Repair(ESCAPED, "$.a")]),
        ("[\u201ca\u201d, \u2018b\u2019]", ["a", "b"], [Repair(REPLACED, "$[0]", 2)]),
        ("{a: b c, d: [e]}", {"a": "b c", "d": ["e"]}, [Repair(ADDED, "$", 4)]),
        ('{"a": b", "c": 1}', {"a": "b", "c": 1}, [Repair(ADDED, "$.a")]),
        ('{"a": "b, "c": 1}', {"a": "b", "c": 1}, [Repair(ADDED, "$.a")]),
        ('{"a": "b\n "c": 1}', {"a": "b", "c": 1}, [Repair(ADDED, "$.a"), Repair(MORE, "$")]),
        ('{"a": #fff,\n"b": 1}', {"a": "#fff", "b": 1}, [Repair(ADDED, "$.a")]),
        ('{"a": 007, "b": 1_000}', {"a": "007", "b": "1_000"}, [Repair(ADDED, "$.a", 2)]),
        ('{"at": 2026-01-02}', {"at": "2026-01-02"}, [Repair(ADDED, "$.at")]),
        ('{"a": "say "hi", please"}', {"a": 'say "hi", please'}, [Repair(ESCAPED, "$.a")]),
        ('["two\nlines"]', ["two\nlines"], [Repair(ESCAPED, "$[0]")]),
        (r'["c:\path\it\'s"]', ["c:\\path\\it's"], [Repair(ESCAPED, "$[0]")]),
        ('{"a": 1 // one\n}', {"a": 1}, [Repair(COMMENTS, "$")]),
        (
            '{/* all */"a": "x", # say "y"\n"b": 2 /* end',
            {"a": "x", "b": 2},
            [Repair(COMMENTS, "$", 3), Repair(CLOSED, "$")],
        ),
        ("[1, #\n2]", [1, 2], [Repair(COMMENTS, "$")]),
        ('{"a": True, "b": None}', {"a": True, "b": None}, [Repair(WORDS, "$.a", 2)]),
        ('{"a": 1} and so on', {"a": 1}, []),
    ],
)
def test_a_defect_is_repaired_and_reported_with_its_place(text: str, value: Any, done: list[Repair]) -> None:
    repaired = repair(text)
    assert repaired.value == value
    assert list(repaired.repairs) == done


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing to repair"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": undefined}', "undefined is not JSON"),
        ('{"a": 1, "a": 2,}', "the same key twice"),
        ("[123456789012345678901,]", "does not fit 64 bits"),
        ("[1e999,]", "does not fit 64 bits"),
        (r'["\ud800 x",]', "not Unicode text"),
        ('["\ud800",]', "not Unicode text"),
        ('{"a": , "b": 1}', "a key has no value"),
        ('{"a", "b"}', "a key has no value"),
        ('{"a" 1}', "a key has no value"),
        ('{"a: 1}', "a key has no end"),
        ('{"a": [1, 2}, "b": 3}', "its brackets do not match"),
        ('{"a": [1, 2, "b": 3}', "a member stands in a list"),
        ('[{"a": 1, {"b": 2]', "no member"),
        ("[:]", "no value"),
        ("[" * (DEFAULT_MAX_DEPTH + 1), "nested deeper than 64"),
        ("[" * 20_000, "nested deeper than 64"),
        ('{"a":' * 10_000, "nested deeper than 64"),
        ("[1," * 50_000, "longer than the 131072 characters"),
    ],
)
def test_an_ambiguous_text_is_refused_and_nothing_is_invented(text: str, why: str) -> None:
    with pytest.raises(StrictJsonError, match=why):
        repair(text)


@randomised(300)
@given(containers)
def test_json_needs_no_repair(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        repaired = repair(text)
        assert repaired.value == value
        assert repaired.repairs == ()


@randomised(400)
@given(containers, st.data())
def test_a_truncated_text_is_repaired_to_a_prefix_of_its_value(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    cut = data.draw(st.integers(1, len(text)))
    repaired = repair(text[:cut])
    assert begins(repaired.value, value)
    assert [done.action for done in repaired.repairs] == ([] if cut == len(text) else [CLOSED])


def test_an_answer_cut_at_any_character_is_repaired_to_a_prefix_of_it() -> None:
    value = {"name": 'Ada "L" \\ é😀', "n": [1, -2.5e3, True, None, {"deep": [[], {}]}], "z": {"a": "b"}}
    text = json.dumps(value, indent=1)
    for cut in range(1, len(text)):
        assert begins(repair(text[:cut]).value, value)


def begins(part: Any, whole: Any) -> bool:
    """Return True if a value is a truncated other one: only its last parts are missing or shorter."""
    if isinstance(part, dict) and isinstance(whole, dict):
        kept = list(whole)[: len(part)]
        return (
            list(part) == kept
            and all(part[key] == whole[key] for key in kept[:-1])
            and all(begins(part[key], whole[key]) for key in kept[-1:])
        )
    if isinstance(part, list) and isinstance(whole, list):
        same = part[:-1] == whole[: len(part[:-1])]
        return len(part) <= len(whole) and same and all(map(begins, part[-1:], whole[len(part) - 1 : len(part)]))
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    return part == whole or (type(part) in {int, float} and json.dumps(whole).startswith(json.dumps(part)[:1]))


SLIPS: Mapping[str, Callable[[str], str]] = {
    "trailing comma": lambda text: f"{text[:-1]},{text[-1]}",
    "single quotes": lambda text: text.replace('"', "'"),
    "comment": lambda text: f"{text[:-1]} // done\n{text[-1]}",
    "block comment": lambda text: f"{text[0]}/* begins */{text[1:]}",
    "no last bracket": lambda text: text[:-1],
    "typographic quotes": lambda text: re.sub('"([^"]*)"', "\u201c\\1\u201d", text),
    "no commas": lambda text: text.replace(", ", "  "),
}


@randomised(500)
@given(containers, st.sampled_from(sorted(SLIPS)))
def test_a_small_defect_does_not_change_the_value(value: Any, slip: str) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assume(value and "," not in text.replace(", ", ""))
    broken = SLIPS[slip](text)
    repaired = repair(broken)
    assert repaired.value == value
    assert repaired.repairs or broken == text


@randomised(1000)
@given(st.text(alphabet="[]{}\"',:1a\\/*# \n\u201ctrueNn.-", max_size=50).map(lambda rest: "{" + rest))
def test_any_text_is_repaired_to_json_or_refused(text: str) -> None:
    try:
        repaired = repair(text)
    except StrictJsonError:
        return
    assert json.loads(json.dumps(repaired.value, allow_nan=False)) == repaired.value


LENGTH = MAX_CHARACTERS // 8
UNITS = (
    *('"', '\\"', "\\", "\\u", "'", '" ', '",', "',", '"b": ', ',"b', ',"b" :', ',"\n', "\u201c", "\u201dx", '"a" '),
    *("b ", "b: c, ", "1 ", ",", "#\n", "/* x */", "/*", "a: b, ", "1", " ", "[],", '{"a":1},', "x", "-", ": "),
)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("opening", ["[", '{"a": ', '["', '{"a": "', "{", "['", "[\u201c"])
@pytest.mark.timeout(20)
def test_hostile_texts_are_repaired_or_refused_in_linear_time(opening: str, unit: str) -> None:
    text = (opening + unit * LENGTH)[:LENGTH]
    with suppress(StrictJsonError):
        repair(text)
