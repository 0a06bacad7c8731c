"""Stores of keys, limits and usage."""
