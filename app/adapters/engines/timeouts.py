"""Timeouts of an attempt, which all engines share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the phases of one attempt may take; `http/engine.py` defines them."""

    connect_seconds: float = 5
    attempt_seconds: float = 120
    first_token_seconds: float = 60
    idle_seconds: float = 30
