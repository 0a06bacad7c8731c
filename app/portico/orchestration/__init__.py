"""Orchestration: the way of a request through the service."""
