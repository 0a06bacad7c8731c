"""Settings of authentication: who may call, and how callers show who they are."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, ValidationInfo

from portico.domain.access.api_key import ApiKey
from portico.domain.contract.constrained_types import CallerName
from portico.settings.tables.connection import is_loopback
from portico.settings.values import VARIABLE_NAME, Table

_KEY_FILE_BYTES: Final = 4_096
_KEY_SOURCES: Final = ("bootstrap_key_file", "bootstrap_key_env")
_JWT_KEYS: Final = ("issuer", "audience", "jwks_url")


def _key_file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            key = ApiKey.parse(file.read(_KEY_FILE_BYTES).decode("ascii").strip())
    except PermissionError:
        raise ValueError(f"names a file that {_not_permitted(Path(path))}") from None
    except OSError as error:
        raise ValueError(f"names a file that cannot be read: {error.strerror}") from None
    except ValueError:
        key = None
    if key is None:
        raise ValueError("names a file that must contain one key, as `portico keys generate` prints it")
    return path


def _not_permitted(path: Path) -> str:
    """Return who cannot read a file, whose it is, and its mode, as far as they can be seen."""
    user = f"user {os.geteuid()} cannot read"
    try:
        status = path.stat()
    except OSError:
        return f"{user}: its folder is closed"
    return f"{user}: it belongs to user {status.st_uid} and has mode {status.st_mode & 0o7777:04o}"


def _key_of_variable(given: object, info: ValidationInfo) -> ApiKey:
    if isinstance(given, ApiKey):
        return given
    environ: Mapping[str, str] = (info.context or {}).get("environ", {})
    name = given if isinstance(given, str) and VARIABLE_NAME.fullmatch(given) else "the variable"
    found = environ.get(given, "").strip() if isinstance(given, str) else ""
    if not found:
        raise ValueError(f'{name} is not set; make a key with "portico keys generate"')
    key = ApiKey.parse(found)
    if key is None:
        raise ValueError(f'{name} must contain one key; make one with "portico keys generate"')
    return key


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
ClaimName = Annotated[str, Field(min_length=1, max_length=256)]
KeyFile = Annotated[str, AfterValidator(_key_file)]
KeyFromVariable = Annotated[
    ApiKey,
    PlainValidator(_key_of_variable, json_schema_input_type=str),
    PlainSerializer(lambda key: key.key_id, return_type=str),
]
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
    bootstrap_key_env: KeyFromVariable | None = Field(
        None, description="Name of an environment variable with one key that needs no database"
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
    for name in _KEY_SOURCES:
        if auth.mode == "none" and getattr(auth, name) is not None:
            yield f"auth.{name}", 'has no meaning while auth.mode is "none"'
    if auth.bootstrap_key_file is not None and auth.bootstrap_key_env is not None:
        yield "auth.bootstrap_key_env", "excludes auth.bootstrap_key_file"
    for name in _JWT_KEYS:
        is_set = getattr(auth, name) is not None
        if auth.mode == "jwt" and not is_set:
            yield f"auth.{name}", 'must be set while auth.mode is "jwt"'
        elif auth.mode != "jwt" and is_set:
            yield f"auth.{name}", f'has no meaning while auth.mode is "{auth.mode}"'
