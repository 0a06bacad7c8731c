"""Stored journal: from the commits of running executions to rows of the database."""
