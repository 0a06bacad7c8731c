"""Parsing of grammars: the syntax that llama.cpp reads, every error with its position, every limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.output.grammar import Grammar, GrammarError
from portico.capabilities.output.grammar.parser import (
    MAX_COPIES,
    MAX_EXPANSION,
    MAX_GRAMMAR_BYTES,
    MAX_GROUPS,
    MAX_NESTING,
    MAX_REPETITIONS,
    MAX_RULES,
)
from tests.support.seeds import randomised


def accepts(grammar: str, *texts: str) -> bool:
    checked = Grammar(grammar)
    return all(checked.check(text).accepted for text in texts)


def refuses(grammar: str, *texts: str) -> bool:
    checked = Grammar(grammar)
    return not any(checked.check(text).accepted for text in texts)


def place(grammar: str) -> tuple[int, int, str]:
    with pytest.raises(GrammarError) as caught:
        Grammar(grammar)
    line, column = caught.value.line, caught.value.column
    return line, column, caught.value.message.removeprefix(f"line {line}, column {column}: ")


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        ('root ::= "a" "b"', "ab"),
        ('root::="a"b\nb::="b"', "ab"),
        ('root ::=\n\n  "a" # the rule goes on behind its sign\n', "a"),
        ('root ::= "a" |\n  "b"', "b"),
        ('root ::= "a" | # a comment\n\n  "b"', "b"),
        ('root ::= (\n  "a"\n  | "b" # or\n\n  "c"\n)', "bc"),
        ('root ::= ("a"\n+ "b"\n{\n2\n,\n3\n}\n)', "aabbb"),
        ('root ::= "a" + "b" { 2 , 3 } "c" {02}', "aabbbcc"),
        ('\t# first\r\nroot ::= "a" # one\r\nb ::= "b"\r\n', "a"),
        ('root ::= "a"\rb ::= "b"\r', "a"),
        ('b ::= "b"\n\n\n   root ::= b b', "bb"),
        ('root ::= "a\nb"', "a\nb"),
        ("root ::= [\n]", "\n"),
        ('root ::= (a)(b)\na ::= (((("a"))))\nb ::= ( ( ) \'c )'.replace("'c", '"c"'), "ac"),
        ('root ::= UPPER-1 2nd -\nUPPER-1 ::= "u"\n2nd ::= "2"\n- ::= "-"', "u2-"),
        ('root ::= "" | "a"', ""),
        ("root ::=", ""),
        ("root ::= | |", ""),
        ("root ::= () (()) (|)", ""),
        ('root ::= [] [^] ""', ""),
        ('root ::= "a"{0} "b"{0,0}', ""),
        ('root ::= "a"?{2,3}', "aaa"),
        ('root ::= "ab"{2}', "abab"),
        ('root ::= "x" "ab"+', "xabab"),
        ('root ::= ("a" "b")* "c"', "ababc"),
        ('root ::= "a"{2,}', "aaaaa"),
        ('root ::= ("a" | "b"){2}{2}', "abba"),
        ("root ::= ...", "a\n🎲"),
    ],
)
def test_syntax_that_llama_cpp_reads_is_accepted(grammar: str, text: str) -> None:
    assert accepts(grammar, text)


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (r'root ::= "\n\r\t\\\"\[\]\-"', '\n\r\t\\"[]-'),
        (r'root ::= "\x41\u00e9\U0001F3B2\x7a"', "Aé🎲z"),
        (r"root ::= [\n\r\t\\\"\[\]\-]{8}", '\n\r\t\\"[]-'),
        (r"root ::= [\x41-\u00e9\U0001F3B2]{3}", "Aé🎲"),
        (r'root ::= "[a-z]"', "[a-z]"),
        (r'root ::= ["]', '"'),
        (r"root ::= [a#|(]{4}", "a#|("),
        (r'root ::= "#" "a # b"', "#a # b"),
    ],
)
def test_escapes_are_read_in_literals_and_in_classes(grammar: str, text: str) -> None:
    assert accepts(grammar, text)
    assert refuses(grammar, text[:-1], text + "a", "\x01" * len(text))


@pytest.mark.parametrize(
    ("characters", "within", "without"),
    [
        ("[a-c]", "abc", "dA-`"),
        ("[a-]", "a-", "b"),
        ("[-a]", "-a", "b"),
        ("[a-c-e]", "abc-e", "d"),
        ("[--0]", "-./0", ",1"),
        ("[a-b-d]", "ab-d", "c"),
        ("[^a-c]", "d\n\x00🎲", "abc"),
        ("[^^]", "a", "^"),
        ("[a^]", "a^", "b"),
        ("[c-a]", "", "abc-"),
        ("[c-ax]", "x", "abc-"),
        ("[a-az-z]", "az", "by"),
        ("[a-fd-h]", "abcdefgh", "ij"),
        (r"[\[-\]]", "[\\]", "Z^"),
        (r"[^\x00-\x1f\x7f]", " ~é", "\n\x7f"),
        (r"[\u0000-\UFFFFFFFF]", "\x00a\U0010ffff", "\ud800"),
        (r"[^\u0000-\U0010ffff]", "", "a\U0010ffff"),
        (r"[\U00110000-\UFFFFFFFFb]", "b", "a\U0010ffff"),
        (r"[\ud7ff-\ue000]", "\ud7ff\ue000", "\ud800\udfff"),
        (".", "a\n\x00\U0010ffff", "\udc00"),
    ],
)
def test_a_class_matches_its_characters(characters: str, within: str, without: str) -> None:
    grammar = f'root ::= {characters} | ""'
    assert accepts(grammar, *within)
    assert refuses(grammar, *without)


code_points = st.one_of(
    st.integers(1, 0x10FFFF), st.sampled_from([1, 0x60, 0x7F, 0x80, 0xD7FE, 0xD7FF, 0xE000, 0xE001, 0xFFFF, 0x10FFFF])
)


@randomised(300)
@given(st.lists(st.tuples(code_points, code_points), min_size=1, max_size=5), st.booleans())
def test_classes_match_their_ranges_and_negated_ones_all_others(ranges: list[tuple[int, int]], negated: bool) -> None:
    inside = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    grammar = Grammar(f'root ::= [{"^" if negated else ""}{inside}] | "none"')
    edges = {edge + step for bounds in ranges for edge in bounds for step in (-1, 0, 1)}
    for code in edges | {0, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0x10FFFF}:
        if 0 <= code <= 0x10FFFF:
            listed = any(low <= code <= high for low, high in ranges)
            expected = listed != negated and not 0xD800 <= code <= 0xDFFF
            assert grammar.check(chr(code)).accepted == expected


def test_the_last_definition_of_a_name_counts() -> None:
    grammar = 'root ::= x\nx ::= "a" | y\ny ::= "c"\nx ::= "b"\nroot ::= x "!"'
    assert accepts(grammar, "b!")
    assert refuses(grammar, "a!", "c!", "b")


def test_groups_of_a_replaced_definition_are_still_read_as_by_llama_cpp() -> None:
    assert place('root ::= ("b" | root-x)\nroot ::= "a"')[:2] == (1, 17)
    assert place('root ::= ("b" | )*\nroot ::= "a"')[:2] == (1, 18)


UNKNOWN = "there is no such escape"
STRANGE = "unexpected here"
NAME = "a rule's name was expected here"
NOTHING = "there is nothing here to repeat"
ITSELF = "left recursion: this leads back to itself before any character"
EMPTY = "left recursion: what is repeated without end may be empty"


@pytest.mark.parametrize(
    ("grammar", "line", "column", "what"),
    [
        ("", 1, 1, "there is no rule of the name root"),
        ("# nothing but a comment", 1, 1, "there is no rule of the name root"),
        ('start ::= "a"\n', 1, 1, "there is no rule of the name root"),
        ('Root ::= "a"\n', 1, 1, "there is no rule of the name root"),
        ('root ::= "a"\n\n  | "b"', 3, 3, NAME),
        ('root ::= "a"\n"b"', 2, 1, NAME),
        ('\ufeffroot ::= "a"', 1, 1, NAME),
        ("root", 1, 5, "::= was expected here"),
        ('root := "a"', 1, 6, "::= was expected here"),
        ('root\n::= "a"', 1, 5, "::= was expected here"),
        ('my_rule ::= "a"', 1, 3, "::= was expected here"),
        ("root ::= my_rule", 1, 12, STRANGE),
        ('root ::= "a" )', 1, 14, STRANGE),
        ('root ::= "a" ]', 1, 14, STRANGE),
        ('root ::= "a" }', 1, 14, STRANGE),
        ("root ::= 'a'", 1, 10, STRANGE),
        ('root ::= "a" ::= "b"', 1, 14, STRANGE),
        ('root ::=\nother ::= "b"', 2, 7, STRANGE),
        ('root ::= "é🎲" é', 1, 15, STRANGE),
        ('root ::= "a\nb', 1, 10, "this literal is not closed"),
        ('a ::= "a"\r\nroot ::= a "', 2, 12, "this literal is not closed"),
        ("root ::= [a", 1, 10, "this class is not closed"),
        ("root ::= [a-", 1, 10, "this class is not closed"),
        ("root ::= [^", 1, 10, "this class is not closed"),
        (r'root ::= "a\d"', 1, 12, UNKNOWN),
        (r"root ::= [\w]", 1, 11, UNKNOWN),
        (r"root ::= [a-\/]", 1, 13, UNKNOWN),
        ('root ::= "a\\', 1, 12, UNKNOWN),
        (r'root ::= "\x4"', 1, 11, "hexadecimal digits are missing"),
        (r'root ::= "\u00g0"', 1, 11, "hexadecimal digits are missing"),
        (r"root ::= [\U0001F3B]", 1, 11, "hexadecimal digits are missing"),
        ('root ::= ("a"', 1, 14, "the group opened at line 1, column 10 cannot go on like this"),
        ('root ::= (\n("a"\n]', 3, 1, "the group opened at line 2, column 1 cannot go on like this"),
        ("root ::= *", 1, 10, NOTHING),
        ('root ::= "a" | +', 1, 16, NOTHING),
        ("root ::= (?)", 1, 11, NOTHING),
        ('root ::= "a" ""*', 1, 16, NOTHING),
        ("root ::= []{2}", 1, 12, NOTHING),
        ("root ::= [^]+", 1, 13, NOTHING),
        ('root ::= "a"{0}?', 1, 16, NOTHING),
        ('root ::= "a"{}', 1, 14, "a number was expected here"),
        ('root ::= "a"{,3}', 1, 14, "a number was expected here"),
        ('root ::= "a"{-1}', 1, 14, "a number was expected here"),
        ('root ::= "a"{1,x}', 1, 16, "a number was expected here"),
        ('root ::= "a"{\n1}', 1, 14, "a number was expected here"),
        ('root ::= "a"{1', 1, 15, "} was expected here"),
        ('root ::= "a"{1,2,3}', 1, 17, "} was expected here"),
        ('root ::= "a"{1 2}', 1, 16, "} was expected here"),
        ('root ::= "a"{5,0}', 1, 13, "the maximum number of repetitions is less than the minimum"),
        ("root ::= <think>", 1, 10, "tokens of a vocabulary are not allowed"),
        ('root ::= "a" !<[10]>', 1, 14, "tokens of a vocabulary are not allowed"),
        ('root ::= "a"\n  x nope\nx ::= y', 2, 5, "::= was expected here"),
        ('root ::= "a" x\nx ::= y | z\nz ::= "z"', 2, 7, "there is no rule of this name"),
        ("x ::= root", 1, 7, "there is no rule of this name"),
        ('root ::= "\0"', 1, 11, "this character is not allowed in a grammar"),
        ('root ::=\n "a\ud800"', 2, 4, "this character is not allowed in a grammar"),
        ('root ::= root "a" | "a"', 1, 10, ITSELF),
        ('root ::= "a" | ("b" | (root))', 1, 24, ITSELF),
        ('root ::= a\na ::= "x" | b "y"\nb ::= "z" | a', 3, 13, ITSELF),
        ('root ::= "a" | "" x? root\nx ::= "x"', 1, 22, ITSELF),
        ('root ::= "a" | x root\nx ::= y | "c"\ny ::= z* z{0} z{0,2} ()\nz ::= "z"', 1, 18, ITSELF),
        ('root ::= "a"+ root* "b" | root{2} "c"', 1, 27, ITSELF),
        ("root ::= root?", 1, 10, ITSELF),
        ('root ::= "a"\nunused ::= unused "b" | "c"', 2, 12, ITSELF),
        ('root ::= "a"\nunused ::= unused', 2, 12, ITSELF),
        ('root ::= ("a"*)*', 1, 16, EMPTY),
        ('root ::= ("a" | )+ "b"', 1, 18, EMPTY),
        ('root ::= "a"**', 1, 14, EMPTY),
        ('root ::= "a"?{3,}', 1, 14, EMPTY),
        ("root ::= ()*", 1, 12, EMPTY),
        ('root ::= "a" blank*\nblank ::= [ \\n]*', 1, 19, EMPTY),
        ('root ::= "a" root', 1, 1, "no text can follow this rule"),
        ('x ::= "x"\nroot ::= [b-a] | "a" y\ny ::= y2 "b"\ny2 ::= "c" y', 2, 1, "no text can follow this rule"),
        (r'root ::= "\U00110000"', 1, 1, "no text can follow this rule"),
    ],
)
def test_an_error_shows_its_line_and_column(grammar: str, line: int, column: int, what: str) -> None:
    assert place(grammar)[:2] == (line, column)
    assert place(grammar)[2].startswith(what)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_by_any_line_end(line_end: str) -> None:
    assert place(line_end.join(['root ::= "a"', "# comment", "", "x ::= ?"]))[:2] == (4, 7)


def test_only_a_rule_that_is_entered_again_is_left_recursion() -> None:
    assert accepts('root ::= "a" root | "a" | x root\nx ::= "b"', "aabba")
    assert accepts('root ::= (x? "a" root)? \nx ::= "x"', "axaa")
    assert accepts('root ::= "(" root ")" root | ""', "(()())()")
    assert accepts('root ::= x{0} "a"\nx ::= "b" x | "c"', "a")


def test_64_kib_are_accepted_and_one_byte_more_is_not() -> None:
    start = 'root ::= "é"\n#'
    assert accepts(start + "x" * (MAX_GRAMMAR_BYTES - len(start) - 1), "é")
    assert accepts('root ::= "e"\n#'.ljust(MAX_GRAMMAR_BYTES, "x"), "e")
    line, column, what = place(start + "x" * (MAX_GRAMMAR_BYTES - len(start)))
    assert (line, column) == (2, MAX_GRAMMAR_BYTES - len(start) + 1)
    assert what == "the grammar is longer than 65536 bytes"


def test_64_nested_groups_are_accepted_and_one_more_is_not() -> None:
    assert accepts("root ::= " + "(" * MAX_NESTING + '"a"' + ")?" * MAX_NESTING, "a", "")
    line, column, what = place("root ::= " + "(" * (MAX_NESTING + 1) + '"a"' + ")" * (MAX_NESTING + 1))
    assert (line, column) == (1, 10 + MAX_NESTING)
    assert what == "parentheses are nested more than 64 deep"


def test_64_nested_repetitions_are_accepted_and_one_more_is_not() -> None:
    assert accepts('root ::= "a"' + "?" * MAX_NESTING, "a", "")
    assert accepts('root ::= (("a"' + "?" * 40 + '"b"?)?' + "?" * (MAX_NESTING - 41) + '"c"?)', "abc", "")
    line, column, what = place('root ::= "a"' + "?" * (MAX_NESTING + 1))
    assert (line, column) == (1, 13 + MAX_NESTING)
    assert what == "repetitions are nested more than 64 deep"
    assert place('root ::= ("b" | "a"' + "?" * 40 + ") {2}" + "?" * (MAX_NESTING - 40))[:2] == (1, 88)


@pytest.mark.parametrize(("least", "most"), [("1000", "1000"), ("0", "1000"), ("0001000", "1000")])
def test_1000_repetitions_are_accepted(least: str, most: str) -> None:
    grammar = Grammar(f'root ::= "a"{{{least},{most}}}')
    assert grammar.check("a" * MAX_REPETITIONS).accepted
    assert grammar.check("a" * (MAX_REPETITIONS + 1)) == (False, MAX_REPETITIONS)


@pytest.mark.parametrize(
    ("counts", "column"), [("{1001}", 14), ("{1001,}", 14), ("{0,1001}", 16), ("{99999999999999999999999}", 14)]
)
def test_more_than_1000_repetitions_are_refused(counts: str, column: int) -> None:
    line, found, what = place(f'root ::= "a"{counts}')
    assert (line, found) == (1, column)
    assert what == "more than 1000 repetitions are asked for"


@pytest.mark.parametrize(
    ("nested", "column"),
    [
        ('"a"{1000}{3}', 19),
        ('("a"{0,50}){0,50}', 21),
        ('(("a"? "b"?){2}){1000}', 26),
        ('(x x y z){600}\nx ::= "x"\ny ::= "y"\nz ::= "z"', 19),
    ],
)
def test_nested_repetitions_multiply_to_at_most_the_limit_of_llama_cpp(nested: str, column: int) -> None:
    line, found, what = place(f"root ::= {nested}")
    assert (line, found) == (1, column)
    assert what == f"nested repetitions multiply to more than {MAX_EXPANSION}"


@pytest.mark.parametrize(
    "nested",
    ['"a"{1000}{2}', '("a"{1000}){1000}', '("a"{0,43}){0,45}', '(x x y z){500}\nx ::= "x"\ny ::= "y"\nz ::= "z"'],
)
def test_nested_repetitions_up_to_that_limit_are_accepted(nested: str) -> None:
    assert Grammar(f"root ::= {nested}").check("").position == 0


def test_1000_rules_are_accepted_and_one_more_is_not() -> None:
    rules = 'root ::= "a"\n' + "".join(f'r{number} ::= "a"\n' for number in range(MAX_RULES - 1))
    assert accepts(rules, "a")
    assert place(rules + '  root ::= "b"') == (1001, 3, "there are more than 1000 rules")


def test_5000_groups_are_accepted_and_one_more_is_not() -> None:
    assert accepts("root ::= " + '("a")' * MAX_GROUPS, "a" * MAX_GROUPS)
    line, column, what = place("root ::= " + '("a")' * MAX_GROUPS + "()")
    assert (line, column) == (1, 10 + 5 * MAX_GROUPS)
    assert what == "there are more than 5000 groups"


def test_all_repetitions_together_have_at_most_200000_copies() -> None:
    most = "root ::= " + '"abcdefghij"{1000}' * (MAX_COPIES // 10_000)
    assert Grammar(most).check("abc") == (False, 3)
    line, column, what = place(most + ' "a"?')
    assert (line, column) == (1, len(most) + 5)
    assert what == "all repetitions up to here ask for more than 200000 copies"
