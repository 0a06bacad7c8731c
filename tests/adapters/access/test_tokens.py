"""Authentication by token: what is accepted, and forty forgeries that are not."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest

from portico.adapters.access.key_sets import KeySets
from portico.adapters.access.tokens import MAX_TOKEN_BYTES, TokenRules, Tokens
from portico.domain.access.principal import Permissions
from portico.domain.failures import AccessFailure, Code
from portico.ports.runtime import Clock
from tests.support.issuer import (
    AUDIENCE,
    ISSUER,
    SigningKey,
    claims,
    ec_key,
    ed_key,
    encode,
    key_set,
    rsa_key,
    signed,
    signed_with_secret,
)

ALGORITHMS = ("RS256", "ES256", "EdDSA")
RULES = TokenRules(ISSUER, AUDIENCE, ALGORITHMS)
GOOD, CURVE, EDWARDS, STRANGER = rsa_key("r"), ec_key("e"), ed_key("d"), rsa_key("stranger")
PEM = orjson.dumps(GOOD.public)


@asynccontextmanager
async def tokens_of(
    clock: Clock, *keys: SigningKey, rules: TokenRules = RULES, body: bytes | None = None
) -> AsyncIterator[Tokens]:
    """Return the authentication by tokens that are signed with these keys."""

    async def fetch() -> bytes:
        return key_set(*keys) if body is None else body

    key_sets = KeySets(fetch, rules.algorithms, clock, lambda _: None)
    async with anyio.create_task_group() as group:
        group.start_soon(key_sets.run)
        yield Tokens(rules, key_sets, clock)
        group.cancel_scope.cancel()


@pytest.mark.parametrize("key", [GOOD, CURVE, EDWARDS], ids=lambda key: key.algorithm)
async def test_a_token_of_the_issuer_is_a_principal_with_its_scopes(clock: Clock, key: SigningKey) -> None:
    async with tokens_of(clock, GOOD, CURVE, EDWARDS) as tokens:
        principal = await tokens.authenticate(signed(key, claims(clock.now())))
    assert (principal.tenant, principal.user, principal.key_id) == ("acme", "ann", None)
    assert principal.permissions == Permissions.of(("can_send_messages", "model:*", "tool:*"))
    assert principal.expires_at == clock.now() + 300 + RULES.leeway


@pytest.mark.parametrize(
    ("changes", "headers"),
    [
        ({"aud": ["other", AUDIENCE]}, {}),
        ({"scope": ["can_send_messages", "profile"]}, {}),
        ({"scope": None}, {}),
        ({"scope": 7}, {}),
        ({"scope": "* :x tool: can_do_all tool:a tool:a"}, {}),
        ({"iat": None}, {"typ": None}),
        ({"nbf": 0}, {"typ": "at+jwt"}),
        ({"sub": "auth0|5f7c8ec7c33c6c004bbafe82"}, {"jku": "https://evil.example.org/", "x5u": "https://e.org/"}),
        ({}, {"jwk": STRANGER.public}),
    ],
)
async def test_what_other_issuers_do_is_accepted(
    clock: Clock, changes: dict[str, Any], headers: dict[str, Any]
) -> None:
    async with tokens_of(clock, GOOD, CURVE) as tokens:
        principal = await tokens.authenticate(signed(GOOD, claims(clock.now(), **changes), **headers))
    expected = {"None": (), "7": (), "*": ("tool:a",)}.get(str(changes.get("scope", "-")).split()[0])
    assert expected is None or principal.permissions.names == expected


async def test_a_set_of_one_key_needs_no_key_id(clock: Clock) -> None:
    token = signed(GOOD, claims(clock.now()), kid=None)
    async with tokens_of(clock, GOOD) as tokens:
        assert (await tokens.authenticate(token)).user == "ann"
    async with tokens_of(clock, GOOD, CURVE) as tokens:
        await refused(tokens, token)


async def test_the_claims_of_tenant_and_user_are_configurable(clock: Clock) -> None:
    rules = TokenRules(ISSUER, AUDIENCE, ALGORITHMS, "org", "email", "permissions")
    body = claims(clock.now(), org="acme", email="ann@example.org", permissions=["can_approve"])
    async with tokens_of(clock, GOOD, rules=rules) as tokens:
        principal = await tokens.authenticate(signed(GOOD, body))
    assert (principal.user, principal.permissions.names) == ("ann@example.org", ("can_approve",))


async def test_clocks_may_differ_by_the_leeway(clock: Clock) -> None:
    now = clock.now()
    async with tokens_of(clock, GOOD) as tokens:
        await tokens.authenticate(signed(GOOD, claims(now, exp=now - 59)))
        await tokens.authenticate(signed(GOOD, claims(now, nbf=now + 59, iat=now + 59)))
        await refused(tokens, signed(GOOD, claims(now, exp=now - 60)))
        await refused(tokens, signed(GOOD, claims(now, nbf=now + 61)))


async def refused(tokens: Tokens, token: str) -> None:
    with pytest.raises(AccessFailure) as caught:
        await tokens.authenticate(token)
    assert caught.value.code is Code.ACCESS_UNAUTHENTICATED
    assert not token or token not in str(caught.value)


def _duplicate(name: str, value: object) -> Callable[[float], str]:
    """Return a forgery with a claim that stands twice, the last one good."""

    def forge(now: float) -> str:
        text = orjson.dumps(claims(now))
        return signed(GOOD, b'{"%b":%b,' % (name.encode(), orjson.dumps(value)) + text[1:])

    return forge


def _with(**changes: Any) -> Callable[[float], str]:
    return lambda now: signed(GOOD, claims(now, **changes))


def _header(**changes: Any) -> Callable[[float], str]:
    return lambda now: signed(GOOD, claims(now), **changes)


def _unsigned(algorithm: str) -> Callable[[float], str]:
    def forge(now: float) -> str:
        return signed(GOOD, claims(now), alg=algorithm).rsplit(".", 1)[0] + "."

    return forge


def _changed(now: float) -> str:
    head, _, signature = signed(GOOD, claims(now)).split(".")
    return f"{head}.{encode(orjson.dumps(claims(now, tenant='other')))}.{signature}"


def _flipped(now: float) -> str:
    token = signed(GOOD, claims(now))
    return token[:-10] + ("A" if token[-10] != "A" else "B") + token[-9:]


def _nonzero_tail(now: float) -> str:
    """Return a token whose last character has bits that the encoding does not use."""
    token = signed(GOOD, claims(now))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) | 1]


FORGERIES: Mapping[str, Callable[[float], str]] = {
    "no signature, alg none": _unsigned("none"),
    "no signature, alg None": _unsigned("None"),
    "no signature, alg nOnE": _unsigned("nOnE"),
    "no signature": _unsigned("RS256"),
    "signature of zeros": lambda now: signed(GOOD, claims(now)).rsplit(".", 1)[0] + "." + encode(bytes(256)),
    "HS256 with the public key": lambda now: signed_with_secret(PEM, claims(now), kid="r"),
    "HS256 with the modulus": lambda now: signed_with_secret(GOOD.public["n"].encode(), claims(now), kid="r"),
    "HS256 with an empty secret": lambda now: signed_with_secret(b"", claims(now), kid="r"),
    "HS256 named RS256": lambda now: signed_with_secret(PEM, claims(now), kid="r", alg="RS256"),
    "RS512": lambda now: signed(GOOD, claims(now), alg="RS512", algorithm="RS512"),
    "PS256": lambda now: signed(GOOD, claims(now), alg="PS256", algorithm="PS256"),
    "alg of another key type": lambda now: signed(CURVE, claims(now), alg="RS256", kid="r"),
    "kid of another key type": lambda now: signed(CURVE, claims(now), kid="r"),
    "alg missing": _header(alg=None),
    "alg is a list": _header(alg=["RS256"]),
    "alg in lower case": _header(alg="rs256"),
    "another key": lambda now: signed(STRANGER, claims(now), kid="r"),
    "another key in the header": lambda now: signed(STRANGER, claims(now), kid="r", jwk=STRANGER.public),
    "key set of the attacker": lambda now: signed(STRANGER, claims(now), jku="https://evil.example.org/keys"),
    "unknown kid": _header(kid="unknown"),
    "kid is a path": _header(kid="../../dev/null"),
    "kid is a number": _header(kid=1),
    "kid missing": _header(kid=None),
    "critical extension": _header(crit=["exp"]),
    "detached payload": _header(b64=False, crit=["b64"]),
    "another type": _header(typ="logout+jwt"),
    "header with a duplicate": lambda now: signed(
        GOOD, claims(now), header=b'{"alg":"none","alg":"RS256","typ":"JWT","kid":"r"}'
    ),
    "header is a list": lambda now: signed(GOOD, claims(now), header=b'["RS256"]'),
    "header is deep": lambda now: signed(GOOD, claims(now), header=b'{"alg":' + b"[" * 500 + b"]" * 500 + b"}"),
    "duplicate tenant": _duplicate("tenant", "other"),
    "duplicate expiry": _duplicate("exp", 1),
    "claims are no JSON": lambda _: signed(GOOD, b"{'iss': 1}"),
    "claims are a list": lambda _: signed(GOOD, b"[]"),
    "claims with NaN": lambda _: signed(GOOD, b'{"exp":NaN}'),
    "claims that are changed": _changed,
    "signature that is changed": _flipped,
    "signature in another spelling": _nonzero_tail,
    "wrong issuer": _with(iss="https://id.example.org"),
    "issuer missing": _with(iss=None),
    "issuer is a list": _with(iss=[ISSUER]),
    "wrong audience": _with(aud="other"),
    "audience missing": _with(aud=None),
    "audience is a prefix": _with(aud="portico-admin"),
    "audience with a number": _with(aud=[AUDIENCE, 1]),
    "expired": lambda now: signed(GOOD, claims(now, exp=now - 61)),
    "expiry missing": _with(exp=None),
    "expiry is text": _with(exp="9999999999"),
    "expiry is true": _with(exp=True),
    "of the future": lambda now: signed(GOOD, claims(now, nbf=now + 120)),
    "issued in the future": lambda now: signed(GOOD, claims(now, iat=now + 3_600)),
    "tenant missing": _with(tenant=None),
    "tenant is empty": _with(tenant=""),
    "tenant is a list": _with(tenant=["acme"]),
    "tenant with a slash": _with(tenant="acme/../other"),
    "tenant with a newline": _with(tenant="acme\n"),
    "user missing": _with(sub=None),
    "user is too long": _with(sub="a" * 129),
    "oversized": _with(note="x" * MAX_TOKEN_BYTES),
    "two segments": lambda now: signed(GOOD, claims(now)).rsplit(".", 1)[0],
    "four segments": lambda now: signed(GOOD, claims(now)) + ".e30",
    "padded": lambda now: signed(GOOD, claims(now)) + "==",
    "with a space": lambda now: signed(GOOD, claims(now)).replace(".", " .", 1),
    "empty": lambda _: "",
    "not a token": lambda _: "secret",
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
async def test_a_forgery_is_refused(clock: Clock, forge: Callable[[float], str]) -> None:
    async with tokens_of(clock, GOOD, CURVE) as tokens:
        assert (await tokens.authenticate(signed(GOOD, claims(clock.now())))).user == "ann"
        await refused(tokens, forge(clock.now()))


@pytest.mark.parametrize(
    "change",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"alg": "RS512"},
        {"kty": "EC"},
        {"kid": 1},
        {"d": "AQAB"},
        {"n": "!"},
        {"n": None},
    ],
)
async def test_a_key_that_is_not_meant_to_verify_is_not_used(clock: Clock, change: dict[str, Any]) -> None:
    unusable = {name: value for name, value in {**GOOD.public, **change}.items() if value is not None}
    body = orjson.dumps({"keys": [unusable, CURVE.public, "no key", {"kty": "oct", "k": "AAAA", "kid": "r"}]})
    async with tokens_of(clock, body=body) as tokens:
        assert (await tokens.authenticate(signed(CURVE, claims(clock.now())))).user == "ann"
        await refused(tokens, signed(GOOD, claims(clock.now())))


async def test_weak_keys_and_other_curves_are_not_used(clock: Clock) -> None:
    weak, other = rsa_key("weak", 1_024), ec_key("wide", curve="P-384")
    body = orjson.dumps({"keys": [weak.public, {**other.public, "alg": "ES256"}, CURVE.public]})
    async with tokens_of(clock, body=body) as tokens:
        await refused(tokens, signed(weak, claims(clock.now())))
        await refused(tokens, signed(CURVE, claims(clock.now()), kid="wide"))


async def test_an_algorithm_that_is_not_configured_is_refused(clock: Clock) -> None:
    async with tokens_of(clock, GOOD, CURVE, rules=TokenRules(ISSUER, AUDIENCE, ("ES256",))) as tokens:
        await tokens.authenticate(signed(CURVE, claims(clock.now())))
        await refused(tokens, signed(GOOD, claims(clock.now())))
