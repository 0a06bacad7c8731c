"""Callers: principals, their keys and their limits."""
