"""Rehearsal engine: deterministic answers without a model."""
