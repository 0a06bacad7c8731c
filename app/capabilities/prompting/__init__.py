"""Prompting: every prompt that the service itself gives a model, written once, by id [003]."""
