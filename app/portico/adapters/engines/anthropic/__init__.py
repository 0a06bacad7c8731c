"""Anthropic dialect."""
