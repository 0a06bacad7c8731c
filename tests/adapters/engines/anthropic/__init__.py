"""Tests of Anthropic's dialect."""
