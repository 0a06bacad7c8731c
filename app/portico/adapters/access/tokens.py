"""Authentication by a token (JWT) of one issuer, by the rules of RFC 8725.

Theory of operation

1. Header and claims are read by the strict JSON reader before PyJWT sees the token, which accepts duplicate keys.
2. The algorithm is one of an allow-list and decides which keys fit; keys that a token brings or points to (`jwk`,
   `jku`, `x5u`, `x5c`) are ignored, and critical extensions are refused.
3. PyJWT verifies the signature, before any claim is used. Then issuer, audience and times are checked with our clock.
4. Every refusal of a token is a 401, and no message quotes it.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Collection, Mapping
from typing import Any, Final

from portico.adapters.access.key_sets import KeySets
from portico.adapters.access.refusals import unauthenticated
from portico.domain.access.principal import Permissions, Principal, is_permission
from portico.domain.ids import TenantId, UserId
from portico.domain.strict_json import StrictJsonError, loads
from portico.domain.value import value
from portico.ports.runtime import Clock

MAX_TOKEN_BYTES: Final = 8_192
_MAX_DEPTH: Final = 16
_SEGMENTS: Final = 3
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")
_NAME: Final = re.compile(r"[A-Za-z0-9._@|:-]{1,128}")
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Values of `typ`, in lower case: tokens of other kinds, such as logout tokens, give no access [RFC 8725, 3.11]."""


@value
class TokenRules:
    """Rules that a token has to keep; `leeway` is in seconds."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    tenant_claim: str = "tenant"
    user_claim: str = "sub"
    scope_claim: str = "scope"
    leeway: float = 60.0


class Tokens:
    """Authentication by tokens that keep the rules and are signed with a key of the set."""

    def __init__(self, rules: TokenRules, key_sets: KeySets, clock: Clock) -> None:
        self._rules = rules
        self._key_sets = key_sets
        self._clock = clock

    async def authenticate(self, token: str, *, audience: str | None = None) -> Principal:
        """Return the caller that the token names, which may be for that `audience`, too. Raises: AccessFailure."""
        header, claims = _parse(token)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._rules.algorithms:
            raise unauthenticated("the token's algorithm is not allowed")
        _check_header(header)
        key = await self._key_sets.find(header.get("kid"), algorithm)
        if not key.verifies(token):
            raise unauthenticated("the token's signature is not valid")
        return self._principal(claims, {self._rules.audience, audience})

    def _principal(self, claims: Mapping[str, Any], audiences: Collection[str | None]) -> Principal:
        rules = self._rules
        if claims.get("iss") != rules.issuer:
            raise unauthenticated("the token is of another issuer")
        audience = claims.get("aud")
        if not any(each in audiences for each in ([audience] if isinstance(audience, str) else _texts(audience))):
            raise unauthenticated("the token is for another audience")
        expires_at = self._check_times(claims)
        return Principal(
            TenantId(_name(claims, rules.tenant_claim)),
            UserId(_name(claims, rules.user_claim)),
            None,
            _permissions(claims.get(rules.scope_claim)),
            expires_at,
        )

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        """Return the time at which the token expires, with the leeway. Raises: AccessFailure."""
        now, leeway = self._clock.now(), self._rules.leeway
        times = {name: claims[name] for name in ("exp", "nbf", "iat") if name in claims}
        if "exp" not in times or not all(map(_is_number, times.values())):
            raise unauthenticated("the token has no valid time of expiry")
        if now >= times["exp"] + leeway:
            raise unauthenticated("the token has expired")
        if max(times.get("nbf", now), times.get("iat", now)) > now + leeway:
            raise unauthenticated("the token is not valid yet")
        return float(times["exp"] + leeway)


def _parse(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return header and claims of a token in compact form, before its signature is verified."""
    segments = token.split(".") if len(token) <= MAX_TOKEN_BYTES else []
    if len(segments) != _SEGMENTS or not all(map(_BASE64URL.fullmatch, segments)):
        raise unauthenticated("the credentials are neither a key nor a token")
    return _object(segments[0]), _object(segments[1])


def _object(segment: str) -> Mapping[str, Any]:
    try:
        text = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
        value = loads(text, max_depth=_MAX_DEPTH)
    except (Base64Error, StrictJsonError):
        raise unauthenticated("the token is malformed") from None
    if not isinstance(value, dict) or urlsafe_b64encode(text).rstrip(b"=") != segment.encode():
        raise unauthenticated("the token is malformed")
    return value


def _check_header(header: Mapping[str, Any]) -> None:
    """Refuse what cannot be understood."""
    kid, kind = header.get("kid"), header.get("typ", "JWT")
    if "crit" in header or "b64" in header or not (kid is None or isinstance(kid, str)):
        raise unauthenticated("the token's header is not supported")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise unauthenticated("the token is of another type")


def _name(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise unauthenticated("the token names no tenant or no user")
    return value


def _permissions(scope: object) -> Permissions:
    """Return the scopes that are spelt like our permissions; others are ignored."""
    names = scope.split(" ") if isinstance(scope, str) else _texts(scope)
    return Permissions.of(name for name in names if is_permission(name))


def _texts(value: object) -> list[str]:
    """Return a list of texts; an empty one for any other value."""
    return value if isinstance(value, list) and all(isinstance(each, str) for each in value) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
