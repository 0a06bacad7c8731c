"""Stores: journal, executions, sessions and replicas on SQLite and PostgreSQL."""
