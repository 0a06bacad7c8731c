"""Compiled grammars: results of checks, ordinary grammars, the shortest text."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from portico.capabilities.output.grammar import (
    MAX_SHORTEST,
    Grammar,
    GrammarError,
    GrammarMatch,
    cached_grammar,
    is_grammar_text,
)
from portico.domain.failures import Code, ConfigurationFailure, Failure
from tests.support.grammars import ARITHMETIC, CHESS, GREETING, JSON, LIST, PROGRAM, SAMPLES


@pytest.mark.parametrize(("grammar", "text"), SAMPLES)
def test_a_text_that_follows_a_grammar_is_accepted_and_each_prefix_is_viable(grammar: str, text: str) -> None:
    checked = Grammar(grammar)
    assert checked.check(text) == (True, len(text))
    assert all(checked.check(text[:length]).position == length for length in range(len(text)))


@pytest.mark.parametrize(
    ("grammar", "text", "position"),
    [
        (JSON, "", 0),
        (JSON, '{"a": 1', 7),
        (JSON, '{"a": 01}', 7),
        (JSON, '{"a": 1,}', 8),
        (JSON, '["\\x"]', 3),
        (JSON, '["\n"]', 2),
        (JSON, "[1, 2]]", 6),
        (JSON, "Here you are: [1]", 0),
        (JSON, "nul", 3),
        (JSON, "[NaN]", 1),
        (ARITHMETIC, "1 + 2 = x\n", 8),
        (ARITHMETIC, "(1 + 2 = 3\n", 7),
        (ARITHMETIC, "12345678 + abcdefghi = 3\n", 19),
        (LIST, "- one\n", 6),
        (LIST, "- 1\n- 2\n- 3\n- 4\n- 5\n- 6\n", 20),
        (LIST, "- a\u2028b\n- c\n", 3),
        (CHESS, "1. e4 e9\n", 7),
        (CHESS, "1. e4\n", 5),
        (PROGRAM, "int 1() {\n}\n", 4),
        (PROGRAM, "int main() {\n  return 1\n}\n", 23),
        (GREETING, "こんにちは、世人", 7),
    ],
)
def test_another_text_is_refused_at_the_first_character_that_is_not_viable(
    grammar: str, text: str, position: int
) -> None:
    assert Grammar(grammar).check(text) == GrammarMatch(accepted=False, position=position)


def test_a_match_is_a_pair() -> None:
    accepted, position = Grammar('root ::= "a"').check("ab")
    assert (accepted, position) == (False, 1)


def test_a_text_that_is_too_short_differs_from_one_that_is_wrong() -> None:
    grammar = Grammar('root ::= "abc"')
    assert [grammar.check(text) for text in ("ab", "ax", "abc", "abcd")] == [
        (False, 2),
        (False, 1),
        (True, 3),
        (False, 3),
    ]


def test_a_prefix_without_an_end_is_not_viable() -> None:
    grammar = Grammar('root ::= "a" "b" | "a" "c" never | "d" [z-a]\nnever ::= "x" never')
    assert [grammar.check(text) for text in ("a", "ab", "ac", "d")] == [(False, 1), (True, 2), (False, 1), (False, 0)]


def test_characters_are_code_points_but_not_surrogates() -> None:
    grammar = Grammar("root ::= . .")
    assert grammar.check("é🎲") == (True, 2)
    assert grammar.check("e\u0301") == (True, 2)
    assert grammar.check("a\ud83c") == (False, 1)


def test_a_grammar_is_not_changed_by_the_texts_it_checks() -> None:
    grammar = Grammar(JSON)
    texts = ['{"a": [1, 2]}', '{"a": [1, 2', "[1,,2]", '"x"', ""]
    expected = [Grammar(JSON).check(text) for text in texts]
    assert [grammar.check(text) for text in texts * 3] == expected * 3


def test_a_match_does_not_depend_on_earlier_texts() -> None:
    depths = range(300, 700, 80)
    texts = ['{"a": [' * depth + "1" + "]}" * depth for depth in depths]
    fresh = [_verdict(Grammar(JSON), text) for text in texts]
    assert None in fresh
    assert any(verdict is not None and verdict.accepted for verdict in fresh)
    shared = Grammar(JSON)
    for text, expected in [*zip(texts, fresh, strict=True)] * 2 + [*zip(reversed(texts), reversed(fresh), strict=True)]:
        assert _verdict(shared, text) == expected


def _verdict(grammar: Grammar, text: str) -> GrammarMatch | None:
    """Return None if the text is too large for the grammar."""
    try:
        return grammar.check(text)
    except GrammarError:
        return None


def test_a_compiled_grammar_is_cached() -> None:
    assert cached_grammar(ARITHMETIC) is cached_grammar(ARITHMETIC)
    assert cached_grammar(ARITHMETIC) is not cached_grammar(JSON)


@pytest.mark.parametrize(
    ("grammar", "is_refused"),
    [
        ("root ::= []", True),
        ('root ::= "a"{0} x\nx ::= "" | "b" y\ny ::= "c" y', True),
        ('root ::= "a"?', False),
        ('root ::= x [^]\nx ::= "" | ("b" x)*', False),
    ],
)
def test_a_grammar_of_answers_has_a_text_with_characters(grammar: str, is_refused: bool) -> None:
    assert Grammar(grammar).check("").accepted
    if is_refused:
        with pytest.raises(GrammarError, match="only the empty text follows this rule, which is no answer"):
            cached_grammar(grammar)
    else:
        assert cached_grammar(grammar).check("").accepted


def test_threads_may_share_a_grammar() -> None:
    texts = [json.dumps({"n": [number] * (number % 7), "s": "x" * number}) for number in range(200)]
    texts += [text[: len(text) // 2] + "!" for text in texts]
    expected = [Grammar(JSON).check(text) for text in texts]
    with ThreadPoolExecutor(8) as threads:
        shared = Grammar(JSON)
        assert list(threads.map(shared.check, texts)) == expected


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (JSON, "0"),
        (ARITHMETIC, "0 = 0\n"),
        (LIST, "- a\n- a\n"),
        (CHESS, "1. a1 a1\n"),
        (PROGRAM, "int a() {\n}\n"),
        (GREETING, "あ、世界"),
        ('root ::= "yes" | "no" | "on"', "no"),
        ('root ::= "" | "a"', ""),
        ("root ::= [0-9a-f] [A-Z0] [ \\n] [!?] [\\x01-\\x02]", "a0 !\x01"),
        ("root ::= item{3} item* | item\nitem ::= x\nx ::= y | [b] [b]\ny ::= [c]", "c"),
        ('root ::= ("a"{2,5} "b"?){3}', "aaaaaa"),
        ('root ::= root-again | "end"\nroot-again ::= "a" root', "end"),
    ],
)
def test_the_shortest_text_uses_the_first_of_the_shortest_alternatives(grammar: str, text: str) -> None:
    assert Grammar(grammar).shortest() == text
    assert Grammar(grammar).check(text).accepted


def test_the_length_of_the_shortest_text_is_limited() -> None:
    assert Grammar('root ::= many{64} many{64}\nmany ::= "ab"{256}').shortest() == "ab" * (MAX_SHORTEST // 2)
    beyond = Grammar('\nroot ::= many{64} many{64} "c"\nmany ::= "ab"{256}')
    with pytest.raises(GrammarError, match="is longer than 65536 characters") as caught:
        beyond.shortest()
    assert (caught.value.line, caught.value.column) == (2, 1)


def test_a_grammar_error_is_a_configuration_failure() -> None:
    with pytest.raises(GrammarError) as caught:
        Grammar('root ::= "secret" nope')
    error = caught.value
    assert isinstance(error, ConfigurationFailure)
    assert isinstance(error, Failure)
    assert isinstance(error, ValueError)
    assert (error.code, error.status, error.retryable) == (Code.CONFIG_GRAMMAR_INVALID, 422, False)
    assert error.message == "line 1, column 19: there is no rule of this name"
    assert error.details == {"line": 1, "column": 19}
    assert (error.line, error.column) == (1, 19)


def test_a_grammar_differs_from_a_grammar_name() -> None:
    assert is_grammar_text('root ::= "a"')
    assert is_grammar_text("::=")
    assert not is_grammar_text("json")
    assert not is_grammar_text("a: b = c")
