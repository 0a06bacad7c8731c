"""Stored executions."""
