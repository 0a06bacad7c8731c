"""Engines: one HTTP engine with its dialects, and the two that need no network."""
