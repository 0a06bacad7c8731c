"""Grammars and texts that are meant to take for ever: a quarter of a second and 50 MB are the most that they take."""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from time import thread_time

import pytest

from app.capabilities.output.grammar.compiled import Grammar, GrammarError
from tests.support.hostile_grammars import HOSTILE

MOST_SECONDS = 0.25
MOST_MEMORY = 50_000_000


def steps(grammar: str, text: str) -> Iterator[str]:
    """Everything that is ever done with a grammar, step by step; that it is refused ends it."""
    with suppress(GrammarError):
        made = Grammar(grammar)
        yield "read"
        with suppress(GrammarError):
            made.check(text)
        yield "checked"
        made.shortest()
    yield "written"


@pytest.mark.parametrize(("grammar", "text"), HOSTILE.values(), ids=HOSTILE)
def test_b2_57_no_step_takes_longer_than_a_quarter_of_a_second(grammar: str, text: str) -> None:
    assert any(slowest_step(grammar, text) < MOST_SECONDS for _ in range(5))


def slowest_step(grammar: str, text: str) -> float:
    times = [thread_time(), *(thread_time() for _ in steps(grammar, text))]
    return max(after - before for before, after in pairwise(times))


@pytest.mark.parametrize(("grammar", "text"), HOSTILE.values(), ids=HOSTILE)
def test_b2_57_none_takes_more_than_50_mb(grammar: str, text: str) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        done = list(steps(grammar, text))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert done
    assert peak < MOST_MEMORY


@pytest.mark.parametrize(("grammar", "text"), HOSTILE.values(), ids=HOSTILE)
def test_what_nobody_uses_any_more_leaves_nothing_to_the_garbage_collector(grammar: str, text: str) -> None:
    gc.collect()
    gc.disable()
    try:
        with suppress(GrammarError):
            Grammar(grammar).check(text)
        assert gc.collect() < 100
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["palindromes", "s: a s s | a", "1,000 times one or two", "5,000 repetitions"])
def test_a_text_of_too_many_readings_is_an_error_and_not_a_verdict(name: str) -> None:
    grammar, text = HOSTILE[name]
    made = Grammar(grammar)
    for _ in range(2):
        with pytest.raises(GrammarError, match="too many readings") as caught:
            made.check(text)
        assert (caught.value.line, caught.value.column) == (1, 1)


def test_a_shorter_text_of_the_same_grammar_is_checked_all_the_same() -> None:
    grammar, text = HOSTILE["palindromes"]
    made = Grammar(grammar)
    with pytest.raises(GrammarError):
        made.check(text)
    assert made.check(text[:21]) == (True, 21)


@pytest.mark.parametrize("name", ["a | a a", "(a | a)*", "s: a s b | a s c | d", "1,000 rules in a row"])
def test_an_ambiguous_grammar_is_checked_exactly_all_the_same(name: str) -> None:
    grammar, text = HOSTILE[name]
    assert Grammar(grammar).check(text) == (True, len(text))


def test_thousands_of_words_may_be_listed() -> None:
    words = sorted({"".join(chr(97 + n * step % 26) for step in (1, 3, 7, 11, 17, 19)) + str(n) for n in range(3500)})
    grammar = Grammar("root ::= word (" + '" " word)*\nword ::= ' + " | ".join(f'"{word}"' for word in words))
    assert grammar.check(" ".join(words[::50])).accepted
    assert grammar.check("!").position == 0


def test_what_is_remembered_stays_bounded_however_many_texts_are_checked() -> None:
    grammar = Grammar('root ::= "(" root ")" | "[" root "]" | [a-z]*')
    tracemalloc.start()
    try:
        for number in range(60):
            opened = f"{number * 37 % 4096:012b}".replace("0", "(").replace("1", "[") * 20
            assert grammar.check(opened + "a").position == len(opened) + 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000
