"""Hostile grammars and texts stay within their limits of steps and memory."""

import gc
import tracemalloc
from contextlib import suppress

import pytest

from portico.capabilities.output.grammar import Grammar, GrammarError
from tests.support.hostile_grammars import HOSTILE

MAX_MEMORY_BYTES = 50_000_000
DEAREST = {
    "16,000 optional characters",
    "32,000 references to what may be empty",
    "5,000 different groups",
    "65,000 empty alternatives",
    "palindromes",
    "every character another",
}
"""Grammars that take the most memory; the others are measured by `make torture` only."""


def use(grammar: str, text: str) -> None:
    """Do everything that is ever done with a grammar, as far as it is not refused."""
    with suppress(GrammarError):
        compiled = Grammar(grammar)
        with suppress(GrammarError):
            compiled.check(text)
        compiled.shortest()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DEAREST else pytest.mark.torture) for name in HOSTILE]
)
def test_no_hostile_grammar_takes_more_than_50_mb(name: str) -> None:
    tracemalloc.start()
    try:
        use(*HOSTILE[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_MEMORY_BYTES


@pytest.mark.parametrize(("grammar", "text"), HOSTILE.values(), ids=HOSTILE)
def test_an_unused_grammar_leaves_nothing_to_the_garbage_collector(grammar: str, text: str) -> None:
    gc.collect()
    gc.disable()
    try:
        use(grammar, text)
        assert gc.collect() < 100
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["palindromes", "s: a s s | a", "1,000 times one or two", "5,000 repetitions"])
def test_too_many_readings_of_a_text_raise_an_error(name: str) -> None:
    grammar, text = HOSTILE[name]
    made = Grammar(grammar)
    for _ in range(2):
        with pytest.raises(GrammarError, match="too many readings") as caught:
            made.check(text)
        assert (caught.value.line, caught.value.column) == (1, 1)


def test_a_shorter_text_of_the_same_grammar_is_still_checked() -> None:
    grammar, text = HOSTILE["palindromes"]
    made = Grammar(grammar)
    with pytest.raises(GrammarError):
        made.check(text)
    assert made.check(text[:21]) == (True, 21)


@pytest.mark.parametrize("name", ["a | a a", "(a | a)*", "s: a s b | a s c | d", "1,000 rules in a row"])
def test_an_ambiguous_grammar_is_checked_exactly(name: str) -> None:
    grammar, text = HOSTILE[name]
    assert Grammar(grammar).check(text) == (True, len(text))


def test_thousands_of_words_may_be_listed() -> None:
    words = sorted({"".join(chr(97 + n * step % 26) for step in (1, 3, 7, 11, 17, 19)) + str(n) for n in range(3500)})
    grammar = Grammar("root ::= word (" + '" " word)*\nword ::= ' + " | ".join(f'"{word}"' for word in words))
    assert grammar.check(" ".join(words[::50])).accepted
    assert grammar.check("!").position == 0


def test_cached_states_are_bounded_for_any_number_of_texts() -> None:
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
