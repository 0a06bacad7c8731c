"""Reasoning in passes: evaluation, changes of the plan, and their records."""
