"""Tests of grammars."""
