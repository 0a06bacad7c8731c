"""Tests of the interpreter of code."""
