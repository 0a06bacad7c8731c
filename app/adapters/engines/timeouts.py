"""Timeouts of an engine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long is waited for what, in seconds."""

    connect_seconds: float = 5
    attempt_seconds: float = 120
    first_token_seconds: float = 60
    idle_seconds: float = 30
