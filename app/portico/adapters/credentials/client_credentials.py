"""Tokens of the client-credentials grant [RFC 6749, section 4.4], fetched with Authlib."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx2
from authlib.integrations.httpx_client import AsyncOAuth2Client, OAuthError

from portico.domain.value import value
from portico.ports.credentials import IssuedToken, IssuerError
from portico.ports.runtime import Clock

_TIMEOUT_S: Final = 30.0
_NOT_SHOWN: Final = re.compile(r"[^a-z_]")
_MAX_ERROR: Final = 64
_GRANT: Final = "client_credentials"


@value
class ClientConfig:
    """The client of an issuer; `secret` reads the secret of the client."""

    token_url: str
    client_id: str
    secret: Callable[[], str | None]
    scope: str | None = None
    audience: str | None = None


class ClientCredentialsIssuer:
    """Implementation of the `TokenIssuer` port."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock

    async def fetch(self) -> IssuedToken:
        config, began = self._config, self._clock.now()
        asked = {} if config.audience is None else {"audience": config.audience}
        client = AsyncOAuth2Client(
            client_id=config.client_id,
            client_secret=config.secret() or "",
            scope=config.scope,
            trust_env=False,
            timeout=_TIMEOUT_S,
        )
        try:
            async with client:
                token = await client.fetch_token(config.token_url, grant_type=_GRANT, **asked)
        except OAuthError as error:
            raise IssuerError(f"the issuer answered with the error {_word(error.error)}") from None
        except httpx2.HTTPStatusError as error:
            raise IssuerError(f"the issuer answered with status {error.response.status_code}") from None
        except httpx2.HTTPError as error:
            raise IssuerError(f"the issuer does not answer: {type(error).__name__}") from None
        except (ValueError, TypeError, KeyError) as error:
            raise IssuerError(f"the issuer's answer is no token: {type(error).__name__}") from None
        return _issued(token, began)


def _issued(token: Mapping[str, Any], began: float) -> IssuedToken:
    text, seconds = token.get("access_token"), token.get("expires_in")
    if not isinstance(text, str):
        raise IssuerError("the issuer's answer has no access_token")
    try:
        return IssuedToken(text, None if seconds is None else began + float(seconds))
    except (TypeError, ValueError):
        raise IssuerError("the issuer's answer has an expires_in that is no number") from None


def _word(text: object) -> str:
    return _NOT_SHOWN.sub("", str(text))[:_MAX_ERROR] or "without a name"
