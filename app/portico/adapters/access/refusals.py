"""Refusals of credentials. Their messages never quote the credentials."""

from portico.domain.failures import AccessFailure, Code


def unauthenticated(reason: str) -> AccessFailure:
    """Return the refusal of a request without valid credentials."""
    return AccessFailure(Code.ACCESS_UNAUTHENTICATED, reason)
