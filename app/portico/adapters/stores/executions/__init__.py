"""Stored executions: queries, commands and leases."""
