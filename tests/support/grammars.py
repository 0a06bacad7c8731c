"""Ordinary grammars, and random ones with their meaning, found by simple enumeration.

A random grammar is a mapping from names to trees, `root` first, over the characters a and b. Its texts are enumerated
by expansion up to a length, over a, b and a third character that stands for all others. Nothing here is shared with
the tested code.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

JSON = r"""
# RFC 8259, with little white space
root    ::= blank value
value   ::= (object | array | string | number | "true" | "false" | "null") blank
object  ::= "{" blank (member ("," blank member)*)? "}"
member  ::= string blank ":" blank value
array   ::= "[" blank (value ("," blank value)*)? "]"
string  ::= "\"" (plain | "\\" (["\\/bfnrt] | "u" hex{4}))* "\""
plain   ::= [^"\\\x00-\x1f\x7f]
hex     ::= [0-9a-fA-F]
number  ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
blank   ::= | " " | "\n" [ \t]{0,20}
"""
ARITHMETIC = r"""
root ::= (sum " = " number "\n")+
sum ::= product (" " [+-] " " product)*
product ::= operand (" " [*/] " " operand)*
operand ::= number | name | "(" sum ")"
number ::= "-"? [0-9]+
name ::= [a-z] [a-z0-9]{0,7}
"""
LIST = r"""
root ::= entry{2,5}
entry ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
"""
CHESS = r"""
root ::= "1. " turn ([1-9] [0-9]? ". " turn)* # at most 99 numbers, in no order
turn ::= move " " move "\n"
move ::= (pawn | piece | "O-O" "-O"?) [+#]?
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBQR])?
piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
"""
PROGRAM = r"""
root ::= function+
function ::= type " " name "(" (type " " name (", " type " " name)*)? ") {\n" statement* "}\n"
type ::= "int" | "float" | "char"
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
statement ::= "  " (
    type " " name " = " term      # a declaration
  | name " = " term
  | "return " term
  | name "(" (term (", " term)*)? ")"
) ";\n"
term ::= factor (" " ("+" | "-" | "<=" | "==") " " factor)*
factor ::= [0-9]+ | name | "-" factor | "(" term ")"
"""
GREETING = r"""root ::= [あ-ん]+ "、" "\u4e16\U0000754c" "!"?"""
SAMPLES = (
    (JSON, "[]"),
    (JSON, '{"a": [1, -2.5e10, true, null, {"b": "x\\u00e9\\n"}], "c": {}}'),
    (JSON, json.dumps({"deep": [[[[[[{"é": ["日本", "🎲"]}]]]]]]}, ensure_ascii=False)),
    (JSON, json.dumps([{"id": number, "ok": True} for number in range(50)], indent=2).replace("\n]", "]")),
    (ARITHMETIC, "1 + 2 * (x - -3) = 7\n(a1) = 0\n"),
    (LIST, "- milk\n- eggs, six\n- «bread»\n"),
    (CHESS, "1. e4 e5\n2. Nf3 Nc6\n3. Bb5 a6\n10. O-O dxe8=Q+\n11. Raxb1 O-O-O#\n"),
    (PROGRAM, "int f() {\n}\nint main(int n, char c) {\n  int x = -(n + 1) <= 2;\n  g(x, f);\n  return x;\n}\n"),
    (GREETING, "こんにちは、世界!"),
)
"""Grammars, each with a text that follows it."""

ALPHABET = "abc"
NAMES = ("root", "x", "y-1")


@dataclass(frozen=True)
class LiteralText:
    """These characters, in this order."""

    text: str


@dataclass(frozen=True)
class CharacterClass:
    """One of these characters, or one of all others."""

    characters: str
    negated: bool = False


@dataclass(frozen=True)
class AnyCharacter:
    """Any character."""


@dataclass(frozen=True)
class RuleReference:
    """A reference to a rule."""

    name: str


@dataclass(frozen=True)
class Concatenation:
    """One after the other."""

    parts: tuple["Tree", ...]


@dataclass(frozen=True)
class AnyOfTrees:
    """One of them."""

    parts: tuple["Tree", ...]


@dataclass(frozen=True)
class RepeatedTree:
    """From `least` to `most` times."""

    part: "Tree"
    least: int
    most: int | None


Tree: TypeAlias = (
    LiteralText | CharacterClass | AnyCharacter | RuleReference | Concatenation | AnyOfTrees | RepeatedTree
)
GrammarTrees: TypeAlias = Mapping[str, Tree]

COUNTS: tuple[tuple[int, int | None], ...] = (
    *((0, None), (1, None), (0, 1), (0, None), (1, None), (0, 1)),
    *((0, 0), (1, 1), (2, 2), (0, 2), (1, 3), (2, None), (2, 3)),
)


def random_grammar(random: Random) -> GrammarTrees:
    """Return a grammar of one to three rules of any kind, including invalid ones."""
    names = NAMES[: random.randint(1, len(NAMES))]
    return {name: _random_tree(random, names, random.choice((1, 2, 3))) for name in names}


def _random_tree(random: Random, names: tuple[str, ...], depth: int) -> Tree:
    kind = random.randrange(10) if depth else random.randrange(4)
    parts = tuple(_random_tree(random, names, depth - 1) for _ in range(random.choice((1, 2, 2, 3)) if kind > 3 else 0))
    match kind:
        case 0 | 1:
            return LiteralText(random.choice(("a", "b", "a", "b", "ab", "ba", "aa", "")))
        case 2:
            return (
                AnyCharacter()
                if random.random() < 0.1
                else CharacterClass(random.choice(("a", "b", "ab")), random.random() < 0.3)
            )
        case 3:
            return RuleReference(random.choice(names))
        case 4 | 5 | 6:
            return Concatenation(parts)
        case 7 | 8:
            return AnyOfTrees(parts)
        case _:
            return RepeatedTree(parts[0], *random.choice(COUNTS))


def gbnf_text(grammar: GrammarTrees) -> str:
    """Return the grammar in GBNF."""
    return "".join(f"{name} ::= {_written(tree)}\n" for name, tree in grammar.items())


def _written(tree: Tree) -> str:  # noqa: PLR0911 - one for each kind of tree
    match tree:
        case LiteralText(text):
            return f'"{text}"'
        case CharacterClass(characters, negated):
            return f"[{'^' if negated else ''}{characters}]"
        case AnyCharacter():
            return "."
        case RuleReference(name):
            return name
        case Concatenation(parts):
            return " ".join(_bracketed(part) if isinstance(part, AnyOfTrees) else _written(part) for part in parts)
        case AnyOfTrees(parts):
            return " | ".join(_bracketed(part) if isinstance(part, AnyOfTrees) else _written(part) for part in parts)
        case RepeatedTree(part, least, most):
            bare = isinstance(part, CharacterClass | AnyCharacter | RuleReference) or (
                isinstance(part, LiteralText) and part.text != ""
            )
            return (_written(part) if bare else _bracketed(part)) + _counted(least, most)


def _bracketed(tree: Tree) -> str:
    return f"({_written(tree)})"


def _counted(least: int, most: int | None) -> str:
    signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    exact = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
    return signs.get((least, most), exact)


class EnumeratedLanguage:
    """The texts of a grammar with at most `longest` characters over the alphabet.

    `texts` are those that follow it, `beginnings` are the prefixes of longer or equal ones. `refused` is the reason why
    the grammar has to be refused, None if it is valid; `texts` and `beginnings` ignore it.
    """

    def __init__(self, grammar: GrammarTrees, longest: int) -> None:
        self._grammar = grammar
        self._longest = longest
        self._texts: dict[str, frozenset[str]] = dict.fromkeys(grammar, frozenset())
        self._beginnings: dict[str, frozenset[str]] = dict.fromkeys(grammar, frozenset())
        self._finite: frozenset[str] = frozenset()
        self._settle()
        self.texts = self._texts["root"]
        self.beginnings = self._beginnings["root"]
        self.every_rule_ends = all(self._ends(tree) for top in grammar.values() for tree in _trees(top))
        self.refused = self._refused()

    def _settle(self) -> None:
        while True:
            before = self._texts, self._beginnings, self._finite
            self._finite = frozenset(name for name, tree in self._grammar.items() if self._ends(tree))
            self._texts = {name: self._all(tree) for name, tree in self._grammar.items()}
            self._beginnings = {name: self._begun(tree) for name, tree in self._grammar.items()}
            if before == (self._texts, self._beginnings, self._finite):
                return

    def _ends(self, tree: Tree) -> bool:
        """Return True if any text follows the tree."""
        match tree:
            case RuleReference(name):
                return name in self._finite
            case Concatenation(parts):
                return all(map(self._ends, parts))
            case AnyOfTrees(parts):
                return any(map(self._ends, parts))
            case RepeatedTree(part, least, _):
                return least == 0 or self._ends(part)
            case _:
                return True

    def _all(self, tree: Tree) -> frozenset[str]:  # noqa: PLR0911 - one for each kind of tree
        match tree:
            case LiteralText(text):
                return frozenset({text}) if len(text) <= self._longest else frozenset()
            case CharacterClass(characters, negated):
                return frozenset(one for one in ALPHABET if (one in characters) != negated)
            case AnyCharacter():
                return frozenset(ALPHABET)
            case RuleReference(name):
                return self._texts[name]
            case Concatenation(parts):
                texts = frozenset({""})
                for part in parts:
                    texts = self._joined(texts, self._all(part))
                return texts
            case AnyOfTrees(parts):
                return frozenset().union(*map(self._all, parts))
            case RepeatedTree(part, least, most):
                return frozenset().union(*self._powers(self._all(part), most)[least:])

    def _powers(self, texts: frozenset[str], most: int | None) -> list[frozenset[str]]:
        """Return the texts repeated 0, 1, 2 … times, as far as it makes a difference."""
        powers = [frozenset({""})]
        for _ in range(self._longest + 3 if most is None else most):
            powers.append(self._joined(powers[-1], texts))
        return powers

    def _joined(self, left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
        return frozenset(one + two for one in left for two in right if len(one) + len(two) <= self._longest)

    def _begun(self, tree: Tree) -> frozenset[str]:  # noqa: PLR0911 - one for each kind of tree
        if not self._ends(tree):
            return frozenset()
        match tree:
            case LiteralText(text):
                return frozenset(text[:length] for length in range(min(len(text), self._longest) + 1))
            case RuleReference(name):
                return self._beginnings[name]
            case Concatenation(parts):
                texts, begun = frozenset({""}), frozenset({""})
                for part in parts:
                    begun |= self._joined(texts, self._begun(part))
                    texts = self._joined(texts, self._all(part))
                return begun
            case AnyOfTrees(parts):
                return frozenset().union(*map(self._begun, parts))
            case RepeatedTree(part, _, most):
                before = self._powers(self._all(part), most)[: -1 if most is not None else None]
                return frozenset({""}).union(*(self._joined(power, self._begun(part)) for power in before))
            case _:
                return self._all(tree) | {""}

    def _refused(self) -> str | None:
        if any(
            isinstance(tree, RepeatedTree) and tree.most is None and "" in self._all(tree.part)
            for top in self._grammar.values()
            for tree in _trees(top)
        ):
            return "left recursion"
        reached = {name: self._entered(tree) for name, tree in self._grammar.items()}
        for _ in reached:
            reached = {name: names.union(*(reached[other] for other in names)) for name, names in reached.items()}
        if any(name in names for name, names in reached.items()):
            return "left recursion"
        return None if "root" in self._finite else "no text"

    def _entered(self, tree: Tree) -> frozenset[str]:
        """Return the rules that the tree may enter before any character."""
        match tree:
            case RuleReference(name):
                return frozenset({name})
            case Concatenation(parts):
                entered: frozenset[str] = frozenset()
                for part in parts:
                    entered |= self._entered(part)
                    if "" not in self._all(part):
                        break
                return entered
            case AnyOfTrees(parts):
                return frozenset().union(*map(self._entered, parts))
            case RepeatedTree(part, _, most):
                return self._entered(part) if most != 0 else frozenset()
            case _:
                return frozenset()


def _trees(tree: Tree) -> Iterator[Tree]:
    yield tree
    match tree:
        case Concatenation(parts) | AnyOfTrees(parts):
            for part in parts:
                yield from _trees(part)
        case RepeatedTree(part, _, _):
            yield from _trees(part)
