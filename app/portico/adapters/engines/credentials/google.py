"""Tokens of Google Cloud for Vertex AI, by google-auth, which the extra `google` installs."""

from datetime import UTC
from typing import Any, Final

import google.auth
from google.auth.transport.requests import Request

from portico.adapters.engines.credentials.expiry import Found
from portico.ports.runtime import Clock

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


def find_token(clock: Clock) -> Found[dict[str, str]]:
    """Return the headers of a new token of what google-auth finds here. Raises: what google-auth raises."""
    credentials: Any = google.auth.default(scopes=[SCOPE])[0]
    credentials.refresh(Request())
    headers: dict[str, str] = {}
    credentials.apply(headers)
    expiry = credentials.expiry
    if expiry is None:
        return Found(headers, lambda _seconds: False)
    expires_at = expiry.replace(tzinfo=UTC).timestamp()
    return Found(headers, lambda seconds: clock.now() + seconds >= expires_at)
