"""GBNF grammars that answers can be checked against."""

from portico.capabilities.output.grammar.compiled import (
    MAX_SHORTEST,
    Grammar,
    GrammarMatch,
    cached_grammar,
    is_grammar_text,
)
from portico.capabilities.output.grammar.parser import MAX_GRAMMAR_BYTES
from portico.capabilities.output.grammar.recogniser import GrammarPosition, TooAmbiguousError
from portico.capabilities.output.grammar.symbols import GrammarError

__all__ = [
    "MAX_GRAMMAR_BYTES",
    "MAX_SHORTEST",
    "Grammar",
    "GrammarError",
    "GrammarMatch",
    "GrammarPosition",
    "TooAmbiguousError",
    "cached_grammar",
    "is_grammar_text",
]
