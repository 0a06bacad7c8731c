"""Settings of authentication: who may call, and how callers show who they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from portico.domain.access.api_key import ApiKey
from portico.settings.tables.connection import is_loopback
from portico.settings.values import Table

_KEY_FILE_BYTES: Final = 4_096
_JWT_KEYS: Final = ("issuer", "audience", "jwks_url")


def _key_file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            key = ApiKey.parse(file.read(_KEY_FILE_BYTES).decode("ascii").strip())
    except OSError as error:
        raise ValueError(f"names a file that cannot be read: {error.strerror}") from None
    except ValueError:
        key = None
    if key is None:
        raise ValueError("names a file that must contain one key, as `portico keys generate` prints it")
    return path


def _key_set_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        is_usable = bool(parts.hostname) and parts.port != 0 and parts.username is None and not parts.fragment
    except ValueError:
        is_safe = is_usable = False
    if not is_safe or not is_usable or not all("!" <= character <= "~" for character in url):
        raise ValueError("must be an https URL; http is allowed on loopback only")
    return url


Algorithm = Literal["RS256", "ES256", "EdDSA"]
CallerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@|:-]{1,128}$")]
ClaimName = Annotated[str, Field(min_length=1, max_length=256)]
KeyFile = Annotated[str, AfterValidator(_key_file)]
KeySetUrl = Annotated[str, AfterValidator(_key_set_url)]


class AuthSettings(Table):
    """Authentication. `issuer` and the keys after it are for mode `jwt`, which takes API keys, too."""

    mode: Literal["none", "keys", "jwt"] = Field(
        "none",
        description="`none`: one local principal with all permissions; `keys`: API keys; `jwt`: API keys, and tokens "
        "of one issuer",
    )
    bootstrap_key_file: KeyFile | None = Field(
        None, description="File with one key that needs no database; read again when it changes"
    )
    bootstrap_tenant: CallerName = Field("default", description="Tenant of the bootstrap key")
    bootstrap_user: CallerName = Field("default", description="User of the bootstrap key")
    issuer: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Issuer of the tokens, exactly as in their claim `iss`"
    )
    audience: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Name of this service in the claim `aud` of its tokens"
    )
    jwks_url: KeySetUrl | None = Field(None, description="URL of the issuer's key set; https except on loopback")
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1, strict=False)] = Field(
        ("RS256", "ES256", "EdDSA"), description="Allowed algorithms of signatures"
    )
    tenant_claim: ClaimName = Field("tenant", description="Claim that names the tenant")
    user_claim: ClaimName = Field("sub", description="Claim that names the user")
    scope_claim: ClaimName = Field("scope", description="Claim that lists the permissions")
    leeway: Annotated[float, Field(ge=0, le=300)] = Field(
        60, description="Seconds by which the issuer's clock may differ"
    )


def auth_errors(auth: AuthSettings) -> Iterator[tuple[str, str]]:
    """Yield key and message of each setting that contradicts the mode."""
    if auth.mode == "none" and auth.bootstrap_key_file is not None:
        yield "auth.bootstrap_key_file", 'has no meaning while auth.mode is "none"'
    for name in _JWT_KEYS:
        is_set = getattr(auth, name) is not None
        if auth.mode == "jwt" and not is_set:
            yield f"auth.{name}", 'must be set while auth.mode is "jwt"'
        elif auth.mode != "jwt" and is_set:
            yield f"auth.{name}", f'has no meaning while auth.mode is "{auth.mode}"'
