"""Patterns: deterministic code over one run context, a module for each mode."""
