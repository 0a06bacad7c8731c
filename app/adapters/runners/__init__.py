"""Runners: the parts that decide when and where executions run."""
