"""Secrets that are stored."""
