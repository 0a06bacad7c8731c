"""Runners: tasks, queues and maintenance of executions."""
