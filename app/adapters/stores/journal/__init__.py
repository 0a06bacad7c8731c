"""Stored journal and its group-commit writer."""
