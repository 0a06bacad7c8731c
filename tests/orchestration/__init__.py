"""Orchestration, from a single step to whole executions."""
