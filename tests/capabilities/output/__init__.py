"""Tests of output formats."""
