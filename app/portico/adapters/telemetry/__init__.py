"""Telemetry: logs and metrics derived from events."""
