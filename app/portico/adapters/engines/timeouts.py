"""Timeouts of an attempt, which all engines share."""

from portico.domain.value import value


@value
class Timeouts:
    """Limits of the phases of one attempt, which `http/engine.py` defines."""

    connect_seconds: float = 5
    attempt_seconds: float = 120
    first_token_seconds: float = 60
    idle_seconds: float = 30
