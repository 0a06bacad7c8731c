"""An issuer of tokens: its keys, the tokens that it signs or an attacker forges, and its key set over HTTP."""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anyio
import orjson
from anyio.abc import SocketAttribute, SocketStream
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, get_default_algorithms

from portico.adapters.system import SystemClock

ISSUER = "https://id.example.org/"
AUDIENCE = "portico"


@dataclass(frozen=True)
class SigningKey:
    """A key pair with its id, for one algorithm."""

    kid: str
    algorithm: str
    private: Any

    @property
    def public(self) -> dict[str, Any]:
        """The public key as a member of a key set."""
        maker: Any = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}[self.algorithm]
        jwk: dict[str, Any] = maker.to_jwk(self.private.public_key(), as_dict=True)
        return {**jwk, "kid": self.kid, "alg": self.algorithm, "use": "sig"}

    def sign(self, data: bytes, algorithm: str | None = None) -> bytes:
        signature: bytes = get_default_algorithms()[algorithm or self.algorithm].sign(data, self.private)
        return signature


@cache
def rsa_key(kid: str, bits: int = 2_048) -> SigningKey:
    return SigningKey(kid, "RS256", rsa.generate_private_key(65_537, bits))


@cache
def ec_key(kid: str, *, curve: str = "P-256") -> SigningKey:
    kinds: dict[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1()}
    return SigningKey(kid, "ES256", ec.generate_private_key(kinds[curve]))


@cache
def ed_key(kid: str) -> SigningKey:
    return SigningKey(kid, "EdDSA", ed25519.Ed25519PrivateKey.generate())


def claims(now: float, **changes: Any) -> dict[str, Any]:
    """Return the claims of a good token; a changed claim of None is left out."""
    good = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "tenant": "acme",
        "scope": "can_send_messages model:* tool:* openid",
        "iat": now,
        "exp": now + 300,
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def encode(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def signed(
    key: SigningKey,
    body: Mapping[str, Any] | bytes,
    *,
    header: bytes | None = None,
    algorithm: str | None = None,
    **headers: Any,
) -> str:
    """Return a token with this body, signed with the key; `headers` change the header, `header` replaces it."""
    named = {"alg": key.algorithm, "typ": "JWT", "kid": key.kid, **headers}
    head = header or orjson.dumps({name: value for name, value in named.items() if value is not None})
    data = f"{encode(head)}.{encode(body if isinstance(body, bytes) else orjson.dumps(body))}"
    return f"{data}.{encode(key.sign(data.encode(), algorithm))}"


def signed_with_secret(secret: bytes, body: Mapping[str, Any], **headers: Any) -> str:
    """Return a token with an HMAC of this secret."""
    head = {"alg": "HS256", "typ": "JWT", **headers}
    data = f"{encode(orjson.dumps(head))}.{encode(orjson.dumps(body))}"
    return f"{data}.{encode(hmac.new(secret, data.encode(), hashlib.sha256).digest())}"


def key_set(*keys: SigningKey) -> bytes:
    """Return the key set of these keys."""
    return orjson.dumps({"keys": [key.public for key in keys]})


@dataclass
class IssuerServer:
    """An issuer whose key set is `body`; `status`, `headers` and `delay` say how it answers."""

    keys: Sequence[SigningKey]
    port: int = 0
    status: int = 200
    body: bytes | None = None
    headers: tuple[str, ...] = ()
    delay: float = 0.0
    requests: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/keys"

    async def answer(self, stream: SocketStream) -> None:
        """Answer one request and close its connection."""
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive()
            self.requests.append(received)
            await SystemClock().sleep(self.delay)
            body = key_set(*self.keys) if self.body is None else self.body
            lines = [f"HTTP/1.1 {self.status} X", f"Content-Length: {len(body)}", "Connection: close", *self.headers]
            with suppress(anyio.BrokenResourceError):  # a client that has refused the rest
                await stream.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


@asynccontextmanager
async def running_issuer(*keys: SigningKey) -> AsyncIterator[IssuerServer]:
    """Serve the key set of an issuer on loopback."""
    issuer = IssuerServer(keys)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    issuer.port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no Django
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, issuer.answer)
        yield issuer
        group.cancel_scope.cancel()
