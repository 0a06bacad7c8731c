"""Credentials of AWS and the signatures made with them, by botocore, which the extra `aws` installs."""

from collections.abc import Callable
from typing import Any, Final

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import NoCredentialsError
from botocore.session import Session

from portico.adapters.engines.credentials.expiry import Found
from portico.adapters.engines.http.transport import HttpRequest

SERVICE: Final = "bedrock"
NOT_SIGNED: Final = frozenset({"traceparent", "user-agent"})
"""Headers that something on the way may change."""


def find_credentials() -> Found[Any]:
    """Return the credentials that botocore finds here. Raises: what botocore raises."""
    credentials = Session().get_credentials()
    if credentials is None:
        raise NoCredentialsError
    frozen = credentials.get_frozen_credentials()
    if isinstance(credentials, RefreshableCredentials):
        return Found(frozen, lambda seconds: bool(credentials.refresh_needed(refresh_in=seconds)))
    return Found(frozen, lambda _seconds: False)


def signer(region: str) -> Callable[[HttpRequest, Any], HttpRequest]:
    """Return what signs requests to Bedrock in that region with Signature Version 4."""

    def sign(request: HttpRequest, credentials: Any) -> HttpRequest:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in NOT_SIGNED}
        signed = AWSRequest(request.method, request.url, headers, request.body)
        SigV4Auth(credentials, SERVICE, region).add_auth(signed)
        return HttpRequest(request.method, request.url, {**request.headers, **dict(signed.headers)}, request.body)

    return sign
