"""Random grammars accept the texts that a slow and simple enumeration accepts."""

import re
from itertools import product
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from portico.capabilities.output.grammar import Grammar, GrammarError
from tests.support import grammars
from tests.support.grammars import (
    ALPHABET,
    AnyOfTrees,
    CharacterClass,
    Concatenation,
    EnumeratedLanguage,
    LiteralText,
    RepeatedTree,
    RuleReference,
    Tree,
)
from tests.support.seeds import randomised

LONGEST = 4
TEXTS = ["".join(text) for length in range(LONGEST + 1) for text in product(ALPHABET, repeat=length)]
randomness = st.randoms(use_true_random=False)


@randomised(400)
@given(randomness)
def test_every_short_text_is_accepted_or_refused_as_enumerated(random: Random) -> None:
    trees = grammars.random_grammar(random)
    language = EnumeratedLanguage(trees, LONGEST)
    text = grammars.gbnf_text(trees)
    if language.refused is not None:
        assert language.refused in refusal(text)
        return
    grammar = Grammar(text)
    for candidate in TEXTS:
        begun = [length for length in range(len(candidate) + 1) if candidate[:length] in language.beginnings]
        assert grammar.check(candidate) == (candidate in language.texts, max(begun)), (text, candidate)


def refusal(grammar: str) -> str:
    try:
        Grammar(grammar)
    except GrammarError as error:
        return error.message
    return "it is not refused"


@randomised(300)
@given(randomness)
def test_the_shortest_text_follows_the_grammar_and_none_is_shorter(random: Random) -> None:
    trees = grammars.random_grammar(random)
    language = EnumeratedLanguage(trees, LONGEST)
    assume(language.refused is None)
    grammar = Grammar(grammars.gbnf_text(trees))
    shortest = grammar.shortest()
    assert grammar.check(shortest) == (True, len(shortest))
    assert len(shortest) == min(map(len, language.texts), default=len(shortest))
    assert language.texts or len(shortest) > LONGEST


@randomised(250)
@given(randomness, st.lists(st.text(ALPHABET, max_size=9), max_size=12))
def test_grammars_without_recursion_mean_what_regular_expressions_say(random: Random, texts: list[str]) -> None:
    trees = grammars.random_grammar(random)
    try:
        pattern = re.compile(expression(trees["root"], trees), re.DOTALL)
    except RecursionError:
        assume(False)
    written = grammars.gbnf_text(trees)
    assume("left recursion" not in refusal(written) and "no text" not in refusal(written))
    grammar = Grammar(written)
    for text in texts:
        assert grammar.check(text).accepted == bool(pattern.fullmatch(text)), (written, text)


def expression(tree: Tree, rules: grammars.GrammarTrees) -> str:  # noqa: PLR0911 - one for each kind of tree
    match tree:
        case LiteralText(text):
            return text
        case CharacterClass(characters, negated):
            return f"[{'^' * negated}{characters}]"
        case RuleReference(name):
            return expression(rules[name], rules)
        case Concatenation(parts):
            return "".join(f"(?:{expression(part, rules)})" for part in parts)
        case AnyOfTrees(parts):
            return "|".join(expression(part, rules) for part in parts)
        case RepeatedTree(part, least, most):
            return f"(?:{expression(part, rules)}){{{least},{'' if most is None else most}}}"
        case _:
            return "."


@randomised(200)
@given(randomness, st.integers(0, 10_000))
def test_layout_and_comments_make_no_difference(random: Random, seed: int) -> None:
    trees = grammars.random_grammar(random)
    plain = grammars.gbnf_text(trees)
    assume(refusal(plain) == "it is not refused")
    other = Grammar(spread(plain, Random(seed)))
    grammar = Grammar(plain)
    assert [other.check(text) for text in TEXTS[:40]] == [grammar.check(text) for text in TEXTS[:40]]


def spread(grammar: str, random: Random) -> str:
    """Return the grammar with the last rules first, and with other blanks, comments, escapes and parentheses."""
    lines = []
    for line in reversed(grammar.splitlines()):
        name, _, rule = line.partition(" ::= ")
        blanks = [
            random.choice((" ", "  ", "\t", ' # said (not " meant\n', "\r\n\t")) for _ in range(rule.count(" ") + 1)
        ]
        spaced = "".join(part + blank for part, blank in zip(rule.split(" "), blanks, strict=True))
        escaped = "".join(f"\\x{ord(one):02x}" if one == "b" and random.random() < 0.5 else one for one in spaced)
        lines.append(f"{name}::=\n({escaped})\n\n")
    return "".join(lines)
