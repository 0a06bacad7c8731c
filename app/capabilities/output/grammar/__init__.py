"""GBNF grammars."""
