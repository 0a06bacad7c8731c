"""Public keys of an issuer, read from its key set [RFC 7517] by the rules of RFC 8725.

Of a set, only keys that can verify a signature of an allowed algorithm are used: symmetric, private, weak and malformed
ones are left out, so that one bad key does not make the others useless.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from portico.domain.strict_json import StrictJsonError, loads
from portico.domain.value import value

MAX_BYTES: Final = 256 * 1024
MIN_RSA_BITS: Final = 2_048
_MAX_DEPTH: Final = 16
_KEY_TYPES: Mapping[str, tuple[str, str | None]] = MappingProxyType(
    {"RS256": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
)
"""Type and curve of the keys of each algorithm."""
_SIGNATURES: Final = PyJWS(algorithms=list(_KEY_TYPES))


@value
class VerificationKey:
    """Public key, for one algorithm. `kid` is the id under which tokens name it, if it has one."""

    kid: str | None
    algorithm: str
    key: PyJWK

    def verifies(self, token: str) -> bool:
        """Return whether the token, in compact form, has a signature of this key."""
        try:
            _SIGNATURES.decode(token, self.key, algorithms=[self.algorithm])
        except PyJWTError:
            return False
        return True


class KeySetError(ValueError):
    """Key set that cannot be used. The message quotes nothing of it."""


def read_key_set(body: bytes, algorithms: Collection[str]) -> tuple[VerificationKey, ...]:
    """Return the usable keys of a set, one for each algorithm that a key fits.

    Raises: KeySetError if it is not a key set or has none.
    """
    try:
        document = loads(body, max_depth=_MAX_DEPTH)
    except StrictJsonError as error:
        raise KeySetError(f"the key set is not valid JSON: {error}") from None
    found = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise KeySetError("the key set has no list of keys")
    given = [jwk for jwk in found if isinstance(jwk, dict)]
    keys = tuple(
        key for jwk in given for name in _KEY_TYPES if name in algorithms and (key := _verification_key(jwk, name))
    )
    if not keys:
        raise KeySetError("the key set has no usable key")
    return keys


def _verification_key(jwk: Mapping[str, Any], algorithm: str) -> VerificationKey | None:
    """Return the key for that algorithm; None if it is not meant or not safe for it."""
    kid, (kind, curve) = jwk.get("kid"), _KEY_TYPES[algorithm]
    fits = (
        jwk.get("kty") == kind
        and (curve is None or jwk.get("crv") == curve)
        and jwk.get("alg", algorithm) == algorithm
        and jwk.get("use", "sig") == "sig"
        and "verify" in jwk.get("key_ops", ("verify",))
        and "d" not in jwk
        and (kid is None or isinstance(kid, str))
    )
    if not fits:
        return None
    try:
        key = PyJWK(dict(jwk), algorithm)
    except (PyJWTError, ValueError, TypeError, ArithmeticError):
        return None
    if kind == "RSA" and key.key.key_size < MIN_RSA_BITS:
        return None
    return VerificationKey(kid, algorithm, key)
